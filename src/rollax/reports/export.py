"""A trained policy as files that run without the code that trained it.

`policy.jaxexport` is the whole policy as a program of XLA, `policy.onnx` the scores of its actions, and
`weights.safetensors` with `config.json` what both were made from.  None of them holds code that loading would run.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

import rollax
from rollax.envs import registry
from rollax.envs.actions import in_words
from rollax.envs.host import HostTask
from rollax.errors import CheckpointError, ConfigError, demand
from rollax.experiment.tree import to_json
from rollax.programs.evaluate import Evaluation, Evaluator
from rollax.programs.loop import leaf_name
from rollax.programs.streams import play_keys
from rollax.runs.checkpoint import flatten
from rollax.runs.files import write_text
from rollax.runs.folder import RunFolder
from rollax.runs.reader import (
    FORMAT,
    MOST_TABLE_BYTES,
    check_format,
    check_shape,
    kind_of,
    parsed,
    read_bytes,
    read_json,
    read_text,
    sha256_of,
)  # fmt: skip
from rollax.runs.result import Policy, Result
from rollax.runs.seals import sealed
from rollax.runs.tables import episode_statistics
from rollax.runs.trust import experiment_in, remember
from rollax.types import Array, Decision, Discrete, Key, Observation

CARD, WEIGHTS, CONFIG, PROGRAM, ONNX = (
    "export.json", "weights.safetensors", "config.json", "policy.jaxexport", "policy.onnx",
)  # fmt: skip
CARD_SHAPE = {"files": dict, "member": int, "seed": int, "carry?": [{"dtype": str, "shape": [int]}]}
PLATFORMS = ("cpu", "cuda", "tpu")


def export(
    run_dir: str | Path,
    target: str | Path,
    *,
    member: int = 0,
    best: bool = False,
    onnx: bool = False,
    trust: bool = False,
) -> list[Path]:
    """Writes a member's policy into a folder and returns the files, the card that describes them first."""
    if onnx:
        demand("jax2onnx", "onnx")
    demand("flatbuffers", "export")
    target, result = Path(target), Result(Path(run_dir), trust=trust)
    policy = result.policy(member, best=best)
    if onnx and (policy.task.players or not single_leaf(policy) or jax.tree.leaves(policy.start())):
        raise ConfigError(
            "onnx takes one array of observations of one player, and an agent that remembers nothing; leave --onnx out"
        )
    inside = Path(os.path.realpath(run_dir)) in Path(os.path.abspath(target)).parents
    if inside and kind_of(target) not in ("", "a folder"):
        raise CheckpointError(f"{target} is {kind_of(target)}, where a real folder must be")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out={target} cannot be made: {error.strerror}") from error
    for name in (CARD, WEIGHTS, CONFIG, PROGRAM, ONNX):
        if kind_of(target / name) not in ("", "a file"):
            raise CheckpointError(f"{target / name} is {kind_of(target / name)}, where a real file must be")
    save_file(flatten(policy.learner.params), target / WEIGHTS, {"format": "rollax", "agent": result.experiment.agent})
    config = to_json(result.experiment)
    remember(config)
    (target / CONFIG).write_text(json.dumps(config, indent=1) + "\n")
    (target / PROGRAM).write_bytes(program_of(policy).serialize())
    written = [target / name for name in (WEIGHTS, CONFIG, PROGRAM)]
    if onnx:
        written.append(write_onnx(policy, target / ONNX))
    card = card_of(policy, result, member, best) | {"files": {path.name: sha256_of(path) for path in written}}
    write_text(target / CARD, sealed({"format": FORMAT} | card))
    return [target / CARD, *written]


def card_of(policy: Policy, result: Result, member: int, best: bool) -> dict[str, Any]:
    """What one must know to call it."""
    shown = policy.task.observation
    return {
        "rollax": rollax.__version__,
        "jax": jax.__version__,
        "agent": result.experiment.agent,
        "env": result.experiment.env,
        "member": member,
        "seed": result.summary["members"][member]["seed"],
        "weights": "best evaluation" if best else "last",
        "actions": actions_of(policy),
        "observation": [
            {"name": leaf_name(path) or "observation", "dtype": str(leaf.dtype), "shape": list(leaf.shape)}
            for path, leaf in jax.tree_util.tree_leaves_with_path(shown.features)
        ],
        "mask": shown.legal is not None,
        "carry": [
            {"dtype": str(leaf.dtype), "shape": list(leaf.shape)} for leaf in jax.tree.leaves(carry_shapes(policy))
        ],
        "players": policy.task.players,
        "platforms": list(PLATFORMS),
    }


def actions_of(policy: Policy) -> int | str:
    """How many actions there are to choose from, or in words what an action is."""
    space = policy.task.action
    return space.n if isinstance(space, Discrete) else in_words(space)


def single_leaf(policy: Policy) -> bool:
    return len(jax.tree.leaves(policy.task.observation.features)) == 1


def program_of(policy: Policy) -> jax.export.Exported:
    """The policy as a program: `(observations [b, ...], legal actions [b, A], seed) -> actions [b]`.

    It holds the weights.  Observations of several arrays are as many arguments, in the order of the card; without a
    mask there are no legal actions to tell.  The seed matters to a policy that draws, as with an evaluation epsilon.
    Of an agent that remembers, the carry's arrays `[b, ...]` and `fresh` `bool[b]` come before the seed, and its new
    carry comes after the actions.  Actions that are not numbered are as the environment takes them, `[b, *shape]`, or
    several arrays.
    """
    (batch,) = jax.export.symbolic_shape("b")
    together = (policy.task.players,) if policy.task.players else ()

    def of_batch(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((batch, *together, *leaf.shape), leaf.dtype)

    observation = policy.task.observation
    arrays, structure = jax.tree.flatten(observation)  # the mask, if there is one, last
    memory, outline = jax.tree.flatten(carry_shapes(policy))

    def act(*arguments: Array) -> Any:
        *inputs, seed = arguments
        obs = jax.tree.unflatten(structure, inputs[: len(arrays)])
        remembered = inputs[len(arrays) :]
        carry = jax.tree.unflatten(outline, remembered[:-1])
        first = jax.tree.leaves(obs.features)[0]
        fresh = remembered[-1] if memory else jnp.zeros((first.shape[0], *together), bool)
        decision = policy.agent.act(policy.learner, carry, obs, fresh, jax.random.key(seed), explore=False)
        action = jax.tree.leaves(policy.task.for_environment(decision.action))
        return (*action, *jax.tree.leaves(decision.carry)) if memory or len(action) > 1 else action[0]

    flags = [jax.ShapeDtypeStruct((batch, *together), jnp.bool_)] if memory else []
    rows = [jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype) for leaf in memory]
    shapes = [*map(of_batch, arrays), *rows, *flags, jax.ShapeDtypeStruct((), jnp.uint32)]
    return jax.export.export(jax.jit(act), platforms=PLATFORMS)(*shapes)


def carry_shapes(policy: Policy) -> Any:
    """What the agent remembers of one environment, as shapes."""
    one = jax.eval_shape(lambda: policy.start())
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), one)


def write_onnx(policy: Policy, path: Path) -> Path:
    """The scores of all actions `[b, A]` for observations `[b, ...]`: the greedy action is the largest legal one's."""
    with quiet_converter():
        import jax2onnx

        (leaf,) = jax.tree.leaves(policy.task.observation.features)
        # Written as float numbers, which is what runtimes take; whole ones stay exact.
        model = jax2onnx.to_onnx(scores_of(policy, leaf.dtype), [("b", *leaf.shape)], model_name="policy")
        path.write_bytes(model.SerializeToString())
    return path


def scores_of(policy: Policy, dtype: Any = jnp.float32) -> Callable[[Array], Array]:
    """What the greedy action is the largest of, as a function of observations: values, or the policy's logits."""

    def scores(observations: Array) -> Array:
        fresh = jnp.zeros(observations.shape[0], bool)
        found = policy.agent.scores(policy.learner, (), Observation(observations.astype(dtype)), fresh)
        if found is None:
            raise ConfigError(f"{type(policy.agent).__name__} has no scores to write as ONNX; leave --onnx out")
        return found

    return scores


@contextlib.contextmanager
def quiet_converter():
    """Without the converter's remarks about shapes that it does not need."""
    logger = logging.getLogger("onnx_ir")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@dataclass(frozen=True)
class ExportedPolicy:
    """A policy read back from its folder; it can be called, and play in its environment."""

    folder: Path | str

    @cached_property
    def card(self) -> dict[str, Any]:
        """What is said of it.  Raises CheckpointError if a file is not as it was written."""
        path = Path(self.folder) / CARD
        text = read_text(path, missing=f"{self.folder} is no exported policy: it has no {CARD}")
        card = parsed(text, str(path))
        check_shape(card, CARD_SHAPE, str(path))
        if {"format", "sha256"} & set(card) and text != sealed({key: card[key] for key in card if key != "sha256"}):
            raise CheckpointError(f"{path} is damaged; export the policy again")
        check_format(card, path)
        listed = card["files"]
        if not {CONFIG, PROGRAM} <= set(listed) <= {WEIGHTS, CONFIG, PROGRAM, ONNX}:
            raise CheckpointError(f"{path} does not list its files; export the policy again")
        for name, expected in listed.items():
            if sha256_of(path.with_name(name)) != expected:
                raise CheckpointError(f"{path.with_name(name)} is damaged; export the policy again")
        return card

    def verify(self) -> None:
        """Raises CheckpointError unless every file is as it was written."""
        _ = self.card

    @cached_property
    def program(self) -> jax.export.Exported:
        """The program itself, once all files have been verified."""
        self.verify()
        return jax.export.deserialize(bytearray(read_bytes(Path(self.folder) / PROGRAM, most=MOST_TABLE_BYTES)))

    def __call__(self, observations: Any, legal: Any = None, seed: int = 0) -> np.ndarray:
        """Actions `[b]` for observations `[b, ...]`."""
        if self.card.get("carry"):
            raise ConfigError("this agent remembers: carry = policy.initial_carry(b), then policy.step(carry, ...)")
        arrays = map(jnp.asarray, jax.tree.leaves((observations, legal)))
        return np.asarray(self.program.call(*arrays, np.uint32(seed)))

    def step(
        self, carry: list[Array], observations: Any, fresh: Any, legal: Any = None, seed: int = 0
    ) -> tuple[np.ndarray, list[Array]]:
        """Actions `[b]` for observations `[b, ...]`, of which `fresh` begin an episode, and the carry from there on."""
        arrays = map(jnp.asarray, jax.tree.leaves((observations, legal, carry, fresh)))
        actions, *carry = self.program.call(*arrays, np.uint32(seed))
        return np.asarray(actions), carry

    def initial_carry(self, num: int) -> list[Array]:
        """Blank arrays: the program clears them itself where an episode begins."""
        return [jnp.zeros((num, *one["shape"]), one["dtype"]) for one in self.card.get("carry", [])]

    def greedy_carry(self, num: int) -> list[Array]:
        """As an agent's: the program never explores."""
        return self.initial_carry(num)

    def act(self, learner: Any, carry: Any, obs: Observation, fresh: Array, key: Key, *, explore: bool) -> Decision:
        """As an agent acts, so that it can be evaluated like one."""
        # A program of XLA cannot be vmapped; members, of which there is one, are taken one after the other.
        call = jax.custom_batching.sequential_vmap(lambda *arguments: self.program.call(*arguments))
        memory = [*carry, fresh] if carry else []
        result = call(*jax.tree.leaves(obs), *memory, jax.random.bits(key, dtype=jnp.uint32))
        return Decision(result[0], (), list(result[1:])) if carry else Decision(result, (), carry)

    def evaluate(self, episodes: int, seed: int = 0, *, trust: bool = False) -> list[dict[str, Any]]:
        """Plays greedy episodes; a row as `rollax eval` gives for a run's member."""
        self.verify()
        path = Path(self.folder) / CONFIG
        experiment = experiment_in(read_json(path, f"{self.folder} has no {CONFIG}"), path, trust=trust)
        task = registry.make(experiment.env, experiment.world, experiment.view)
        if isinstance(task, HostTask):
            raise ConfigError(f"{experiment.env} is outside JAX; call the policy from a loop of your own")
        player: Any = self
        play = Evaluator(player, task, episodes, experiment.record.max_episode_steps)
        keys = play_keys(seed, jnp.array([self.card["member"]]))
        found: Evaluation = jax.jit(lambda keys: play((), keys))(keys)
        returns, lengths, truncated = (np.asarray(array[0], np.float64) for array in found)
        own = {"member": self.card["member"], "seed": self.card["seed"]}
        return [own | episode_statistics(returns, lengths, truncated)]


def is_export(folder: str | Path) -> bool:
    return bool(kind_of(Path(folder) / CARD)) and not kind_of(RunFolder(folder).config.with_name("metrics.csv"))
