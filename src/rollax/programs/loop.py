"""One iteration of training: collect, remember, learn.  Everything that runs is this, repeated."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.agents.base import Agent, AgentDecider, Learner, Memory, last_finite
from rollax.envs.protocol import Envs, Episodes, play_envs
from rollax.programs import streams
from rollax.programs.bundles import scan_bundled
from rollax.tracing import LEARNING, REMEMBERING, min_over, own_key, phase, sum_over
from rollax.types import Array, Key, Metrics, Observation, Transition

# A window is a row of sums: of ended episodes, of iterations that learnt, then of the agent's own metrics.
WINDOW_COLUMNS = ("episodes", "return_sum", "length_sum", "learnt")
SMALL, ROW = 2**16, 64  # numbers of a tensor that is looked at with others, and of a row of these
NO_NUMBER = 0x7F800000  # the exponent of infinities and NaN in 32 bits
LEGAL = "legal actions"  # what is watched beside numbers
TELLING = {"loss": "loss", "grad_norm": "gradients"}  # metrics that are watched, and what they stand for


class Health(NamedTuple):
    """What went wrong first with a member: a number that is not finite, or a state without a legal action.

    The weights that act stay as they were before.
    """

    cause: Array  # 0 while all is well, else 1 + an index into `Loop.watched(...)`
    iteration: Array


class TrainState(NamedTuple):
    """All of a run.  Every field but `iteration` leads with the members of the population."""

    iteration: Array  # iterations done, the same for all members
    key: Key  # never changes: the streams of `rollax.programs.streams` are derived from it
    learner: Learner
    memory: Memory
    envs: Any  # Envs
    window: Array  # sums since the last row of the log
    health: Health


@dataclass(frozen=True)
class Loop:
    """An agent in its environments.  All methods are pure and speak of one member."""

    agent: Agent
    task: Any  # a Task, or a HostTask where environments are outside JAX
    num_envs: int  # of the whole member
    rollout_length: int

    def init(self, key: Key, hparams: Any) -> TrainState:
        agent_key, envs_key, loop_key = streams.roots(key)
        learner, memory = self.agent.init(agent_key, hparams)
        num_envs = self.agent.spec.share(self.num_envs)
        envs = self.task.begin(own_key(self.agent.spec, envs_key), num_envs, self.agent.initial_carry(num_envs))
        window = jnp.zeros(len(WINDOW_COLUMNS) + len(self.agent.metric_names), jnp.float32)
        health = Health(jnp.int32(0), jnp.int32(-1))
        return TrainState(jnp.int32(0), loop_key, learner, memory, envs, window, health)

    def iteration(self, state: TrainState, *, learn: bool) -> TrainState:
        """Collects a rollout, remembers it and learns; a warm-up does not learn."""
        collect_key, learn_key = self.keys(state)
        envs, rollout, episodes = self.collect(state.learner, state.envs, collect_key)
        with phase(REMEMBERING):
            memory = self.agent.remember(state.memory, rollout)
        learner, metrics = state.learner, self.no_metrics()
        if learn:
            with phase(LEARNING):
                learner, memory, metrics = self.agent.learn(learner, memory, rollout, learn_key)
        state = self.conclude(state, learner, rollout, metrics, episodes, learn=learn)
        return state._replace(memory=memory, envs=envs)

    def keys(self, state: TrainState) -> tuple[Key, Key]:
        """Of the next iteration: one to collect with, and one to learn with; each shard has its own."""
        key = own_key(self.agent.spec, streams.ITERATIONS.key(state.key, state.iteration))
        collect_key, learn_key = jax.random.split(key)
        return collect_key, learn_key

    def step_keys(self, key: Key) -> Key:
        """Keys `[T, 2]` of a rollout's steps: to act, and to step with."""
        return jax.random.split(key, (self.rollout_length, 2))

    def no_metrics(self) -> Metrics:
        return {name: jnp.float32(0) for name in self.agent.metric_names}

    def conclude(
        self,
        state: TrainState,
        learner: Learner,
        rollout: Transition,
        metrics: Metrics,
        episodes: tuple[Array, ...],
        *,
        learn: bool,
    ) -> TrainState:
        """The state after an iteration that made this learner, if the member is well; memory and envs as they were.

        `episodes` are the count, returns and lengths of the episodes that ended in it.
        """
        health = self.examine(state, learner, rollout, metrics)
        learner = self.last_well(health.cause == 0, learner, state.learner)
        episodes = sum_over(self.agent.spec, episodes)
        numbers = [*episodes, jnp.float32(learn), *(metrics[name] for name in self.agent.metric_names)]
        window = state.window + jnp.stack(numbers)
        return state._replace(iteration=state.iteration + 1, learner=learner, window=window, health=health)

    def collect(self, learner: Learner, envs: Envs, key: Key) -> tuple[Envs, Transition, tuple[Array, ...]]:
        """A rollout `[T, B, ...]`, and the count, returns and lengths of the episodes that ended in it."""
        decider = AgentDecider(self.agent, learner, explore=True).in_a_loop()

        def step(carry: tuple[Envs, Episodes], keys: Key) -> tuple[tuple[Envs, Episodes], Transition]:
            envs, transition, episodes = play_envs(self.task, carry[0], decider, keys)
            return (envs, jax.tree.map(jnp.add, carry[1], episodes)), transition

        begun = (envs, Episodes.none(len(envs.episode_length)))
        (envs, episodes), rollout = scan_bundled(step, begun, self.step_keys(key))
        return envs, rollout, tuple(jnp.sum(total) for total in episodes)

    def examine(self, state: TrainState, learner: Learner, rollout: Transition, metrics: Metrics) -> Health:
        """The member's health after this iteration: what came first stays."""
        cause = self.cause(learner, rollout, metrics)
        well = state.health.cause == 0
        return Health(
            cause=jnp.where(well, cause, state.health.cause),
            iteration=jnp.where(well & (cause > 0), state.iteration, state.health.iteration),
        )

    def cause(self, learner: Learner, rollout: Any, metrics: Metrics) -> Array:
        """What is wrong with these, as in `Health`.  The rollout may be a batch of a replay as well."""
        seen = _floats((rollout.obs.features, rollout.next_obs.features))
        told = [metrics[name] for name in self.telling]
        doubtful = _floats(self.agent.doubtful(learner))
        tensors = [*stuck(rollout.obs), rollout.reward, *seen, *told, *doubtful]
        first = min_over(self.agent.spec, first_not_finite(tensors))
        return jnp.where(first < len(tensors), 1 + first, 0).astype(jnp.int32)

    def last_well(self, well: Array, after: Learner, before: Learner) -> Learner:
        """The learner after an iteration, whose weights are finite; doubtful ones as before, if that did not go well.

        Weights that nobody doubts are kept by `apply_gradients`.  Held back here, a CPU would copy all of them in every
        iteration, which is why the rest of a learner is not held back either.
        """
        if not jax.tree.leaves(self.agent.doubtful(after)):
            return after
        last = jax.tree.map(lambda new, old: jnp.where(well, new, old), after.params, before.params)
        return after._replace(params=last_finite(last, before.params))

    def watched(self, learner: Learner) -> list[str]:
        """What `cause` looks at, by name."""
        told = [TELLING[name] for name in self.telling]
        doubtful = jax.tree_util.tree_leaves_with_path(self.agent.doubtful(learner))
        weights = [f"weights {leaf_name(path)}" for path, leaf in doubtful if _is_float(leaf)]
        features, legal = self.task.observation
        mask = [] if legal is None else [LEGAL]
        return [*mask, "rewards", *("observations" for _ in _floats((features, features))), *told, *weights]

    @property
    def telling(self) -> list[str]:
        """The metrics that say by themselves whether learning went well."""
        return [name for name in TELLING if name in self.agent.metric_names]


def first_not_finite(tensors: list[Array]) -> Array:
    """The number of the first tensor that has a number which is not finite; their count if there is none.

    Every reduction takes about as long, however small it is.  So tensors of one shape, and of shapes that it begins
    with, are looked at place by place, and all small ones together, as rows of one array.
    """
    found = [jnp.where(exponent(tensor) == NO_NUMBER, index, len(tensors)) for index, tensor in enumerate(tensors)]
    firsts = [jnp.reshape(numbers, ()) for numbers in found if numbers.size == 1]
    places: dict[tuple[int, ...], Array] = {}  # by shape
    for numbers in sorted((numbers for numbers in found if numbers.size > 1), key=lambda numbers: -numbers.ndim):
        like = next((shape for shape in places if shape[: numbers.ndim] == numbers.shape), numbers.shape)
        spread = numbers.reshape(*numbers.shape, *(1,) * (len(like) - numbers.ndim))
        places[like] = jnp.minimum(places[like], spread) if like in places else numbers
    small = [jnp.ravel(numbers) for numbers in places.values() if numbers.size <= SMALL]
    firsts += [jnp.min(numbers) for numbers in places.values() if numbers.size > SMALL or len(small) == 1]
    if len(small) > 1:
        rows = [jnp.pad(numbers, (0, -numbers.size % ROW), constant_values=len(tensors)) for numbers in small]
        firsts.append(jnp.min(jnp.concatenate(rows).reshape(-1, ROW)))
    return functools.reduce(jnp.minimum, firsts)


def exponent(numbers: Array) -> Array:
    """The bits of each number's exponent, as int32: `NO_NUMBER` where it is not finite.

    Whole numbers, because XLA's largest of several floats may leave a NaN out on a CPU, against its own rules.
    """
    if numbers.dtype != jnp.float32:
        return jnp.where(jnp.isfinite(numbers), 0, NO_NUMBER)
    return jax.lax.bitcast_convert_type(numbers, jnp.int32) & NO_NUMBER


def stuck(obs: Observation) -> list[Array]:
    """For a mask, a number for each observation that is not finite where no action is legal."""
    return [] if obs.legal is None else [jnp.where(jnp.any(obs.legal, axis=-1), 0.0, jnp.inf)]


def leaf_name(path: Any) -> str:
    """The path of a leaf of a tree, as `params/torso/Dense_0/kernel`."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _floats(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)
