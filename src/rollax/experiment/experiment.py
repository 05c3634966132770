"""What a run is: a tree of parts whose leaves have names, which the command line, files and Python all set."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import math
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from flax import linen as nn

from rollax import settings as named
from rollax.agents.base import Choices
from rollax.agents.dqn import DQNConfig, DQNHParams
from rollax.agents.names import recipe_of
from rollax.envs import registry
from rollax.errors import ConfigError, did_you_mean
from rollax.experiment.old_files import regrouped
from rollax.experiment.parts import OWN_PARTS, PARTS, fit_for, other_part, part_fields, part_name, part_of
from rollax.experiment.presets import ENVIRONMENTS, known_as, preset_for
from rollax.settings import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, Limit, abouts, setting

MAIN_AGENT, MAIN_ENV, MAIN_SEEDS = "double", "CartPole-v1", 10


@dataclass(frozen=True)
class LoopConfig:
    """How data is collected."""

    num_envs: int = setting(16, "Environments of one member, stepped together.", limit=COUNT)
    rollout_length: int = setting(1, "Steps of each environment in one iteration.", limit=COUNT)
    warm_up_steps: int = setting(1_000, "Environment steps before learning begins.", limit=COUNT_OR_NONE)
    learners: Literal["independent", "shared"] = setting(
        "independent", "Of several players: one for each, or one for all."
    )
    agent_map: Literal["auto", "vmap", "map"] = setting("auto", "Independent learners at once, or one after the other.")
    overlap: bool = setting(
        True, "Environments outside JAX are stepped while the agent learns from the rollout before."
    )
    devices: int = setting(
        0,
        "Devices that share the work, members first, then environments; 0 for the most that divide it.",
        limit=COUNT_OR_NONE,
    )
    actors: int = setting(
        0,
        "Processes that collect without waiting for the learner (Ray); 0 for one program that does both.",
        limit=COUNT_OR_NONE,
    )
    replay_shards: int = setting(1, "Processes that share the replay of such actors.", limit=COUNT)
    replay_on: Literal["device", "host"] = setting(
        "device", "Where a replay of such environments is: with the learner or not."
    )


@dataclass(frozen=True)
class RecordConfig:
    """What is measured on the way, and what is kept."""

    log_steps: int = setting(0, "Steps between rows of metrics.csv; 0 for a hundredth of the run.", limit=COUNT_OR_NONE)
    eval_steps: int = setting(0, "Steps between evaluations; 0 for a tenth of the run.", limit=COUNT_OR_NONE)
    eval_episodes: int = setting(100, "Episodes of an evaluation.", limit=COUNT)
    max_episode_steps: int = setting(27_000, "Where an evaluation cuts an episode that does not end.", limit=COUNT)
    checkpoint_seconds: float = setting(30.0, "Seconds between checkpoints.", limit=NOT_NEGATIVE)
    keep_checkpoints: int = setting(2, "Checkpoints that are kept.", limit=COUNT)
    chunk_seconds: float = setting(
        2.0, "About how long the compiled program runs between two looks at it.", limit=NOT_NEGATIVE
    )
    log_to: tuple[Literal["jsonl", "tensorboard", "wandb"], ...] = setting((), "Where rows go beside the tables.")


@dataclass(frozen=True)
class Experiment:
    """All that determines a run.  A tuple of numbers for a hyper-parameter makes a population."""

    agent: str = setting(
        MAIN_AGENT, "The agent's name, or package.module:RECIPE for one of your own; `rollax list` shows all."
    )
    env: str = setting(MAIN_ENV, "The environment's name, or package.module:function for one of your own.")
    seeds: int = setting(1, "Members of each setting: seed, seed + 1, ...", limit=Limit(1, 1_000_000))
    seed: int = setting(0, "The first seed.", limit=COUNT_OR_NONE)
    steps: int = setting(100_000, "Environment steps of each member, the warm-up included.", limit=Limit(1, 2**53))
    init_from: str = setting("", "A run folder whose best weights each member starts from.")
    world: Any = registry.FixedWorld()
    choices: Choices = field(default_factory=DQNConfig)
    hparams: Any = field(default_factory=DQNHParams)
    loop: LoopConfig = LoopConfig()
    record: RecordConfig = RecordConfig()

    @property
    def steps_per_iteration(self) -> int:
        return self.loop.num_envs * self.loop.rollout_length

    def iterations(self, steps: int) -> int:
        """Whole iterations that make at least so many steps."""
        return -(-steps // self.steps_per_iteration)


class Leaf(NamedTuple):
    """One value of an experiment that can be set."""

    name: str
    path: tuple[str, ...]
    annotation: Any
    value: Any
    help: str
    traced: bool  # a hyper-parameter: several values make a population
    limit: Limit | None


class Member(NamedTuple):
    """One run of a population."""

    seed: int
    hparams: dict[str, float]


def make_experiment(agent: str = MAIN_AGENT, *, preset: str = "auto", **values: Any) -> Experiment:
    """An experiment by its agent's name, with any leaf set by name: `make_experiment("double", seeds=3, n_step=3)`.

    A part is set by its name or given itself: `head="categorical"`, `head=CategoricalHead(atoms=21)`.  What the
    environment asks of all agents applies first, then the preset of the agent there; `preset="none"` leaves the
    agent's defaults.
    """
    env = values.get("env", MAIN_ENV)
    tree = in_environment(default_experiment(agent), env)
    chosen = preset_for(agent, env, preset)
    asked = {} if preset == "none" else ENVIRONMENTS.get(known_as(env), {})
    parts = {slot: asked[slot] for slot in PARTS if slot in asked}
    tree = with_values(tree, parts | chosen)
    tree, rest = with_parts(tree, values)
    given = {slot for slot in PARTS if slot in values and not isinstance(values[slot], str)}
    fitting = {leaf.name for leaf in leaves(tree) if not given.intersection(leaf.path)} - chosen.keys()
    tree = with_values(tree, {name: value for name, value in asked.items() if name in fitting})
    return with_values(tree, rest)


def in_environment(tree: Experiment, env: str) -> Experiment:
    """The experiment in another environment, with that one's usual choices."""
    return tree if env == tree.env else dataclasses.replace(tree, env=env, world=registry.world_of(env))


def default_experiment(agent: str) -> Experiment:
    recipe = recipe_of(agent)
    loop = dataclasses.replace(LoopConfig(), **recipe.loop)
    return Experiment(agent=agent, choices=recipe.choices, hparams=recipe.hparams, loop=loop)


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All leaves of an experiment, in the order of their declaration.  Their names are unique."""
    hints = typing.get_type_hints(type(tree))
    about = abouts(type(tree))
    for name in part_fields(tree):
        value, here = getattr(tree, name), (*path, name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, here)
        else:
            traced = getattr(tree, "traced", False)
            yield Leaf(name, here, hints[name], value, about[name].help, traced, about[name].limit)


@functools.cache
def field_comments(part: type) -> dict[str, str]:
    """The comment behind each field of a part is its help."""
    own = (kind for kind in reversed(part.__mro__) if dataclasses.is_dataclass(kind) and kind is not nn.Module)
    pattern = r"^    (\w+):.*?\s#\s(.+)$"
    return {name: text for kind in own for name, text in re.findall(pattern, source(kind), flags=re.MULTILINE)}


def source(kind: type) -> str:
    """The source of a class; empty for one that was typed at a prompt."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def with_values(tree: Experiment, values: dict[str, Any]) -> Experiment:
    """The experiment with parts, then leaves, replaced by name.  Raises ConfigError with all that is wrong."""
    tree, values = with_parts(tree, values)
    if isinstance(values.get("env"), str):
        tree = in_environment(tree, values["env"])
    known = {leaf.name: leaf for leaf in leaves(tree)}
    problems = [f"{name} is no field; {did_you_mean(name, known)}" for name in values if name not in known]
    for name, value in values.items():
        if name in known:
            try:
                tree = replace_at(tree, known[name].path, coerce(known[name], value))
            except (TypeError, ValueError, OverflowError) as error:
                problems.append(f"{name}={value!r} {error}")
    if problems:
        raise ConfigError(problems)
    return tree


def with_parts(tree: Experiment, values: dict[str, Any]) -> tuple[Experiment, dict[str, Any]]:
    """The experiment with the parts that values name, and the values that are left."""
    held = parts_of(tree)
    problems = [f"{slot}: {tree.agent} has no {slot}" for slot in PARTS if slot in values and slot not in held]
    for slot, part in ((slot, values[slot]) for slot in held if slot in values):
        try:
            if not isinstance(part, str):
                fit_for(slot, type(part))
            else:
                part = other_part(getattr(getattr(tree, place_of(tree, slot)), slot), part_of(slot, part))
            tree = replace_at(tree, (place_of(tree, slot), slot), part)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return tree, {name: value for name, value in values.items() if name not in held}


def parts_of(tree: Experiment) -> dict[str, str]:
    """The slots of an agent that hold a part that may be another, and the names of those parts."""
    places = {slot: place_of(tree, slot) for slot in PARTS}
    return {slot: part_name(slot, getattr(getattr(tree, place), slot)) for slot, place in places.items() if place}


def place_of(tree: Experiment, slot: str) -> str:
    """Where an experiment has a slot: parts made of traced numbers are among the hyper-parameters."""
    return next((place for place in ("choices", "hparams") if hasattr(getattr(tree, place), slot)), "")


def replace_at(tree: Any, path: tuple[str, ...], value: Any) -> Any:
    head, *rest = path
    if rest:
        value = replace_at(getattr(tree, head), tuple(rest), value)
    if isinstance(tree, nn.Module):
        return tree.clone(**{head: value})
    return dataclasses.replace(tree, **{head: value})


def coerce(leaf: Leaf, value: Any) -> Any:
    """The value as the leaf's type; a sequence for a traced number stays one."""
    if leaf.traced and isinstance(value, list | tuple):
        if not value:
            raise ValueError("holds no number")
        numbers = tuple(_coerce(leaf.annotation, item) for item in value)
        return numbers[0] if len(numbers) == 1 else numbers
    return _coerce(leaf.annotation, value)


def _coerce(annotation: Any, value: Any) -> Any:
    if typing.get_origin(annotation) is Literal:
        if value not in typing.get_args(annotation):
            raise ValueError(f"must be one of {', '.join(typing.get_args(annotation))}")
        return value
    if typing.get_origin(annotation) is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError("must be a list")
        return tuple(_coerce(typing.get_args(annotation)[0], item) for item in value)
    if annotation is bool or annotation is str:
        if not isinstance(value, annotation):
            raise TypeError(f"must be a {annotation.__name__}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("must be a number")
    if annotation is int and value != int(value if math.isfinite(value) else 0):
        raise TypeError("must be a whole number")
    return annotation(value)


def resolve(tree: Experiment) -> Experiment:
    """The experiment with every automatic value filled in, on whole iterations."""
    unit = tree.steps_per_iteration

    def grid(asked: int, share: int) -> int:
        if asked:
            return math.ceil(asked / unit) * unit
        iterations = max(1, math.ceil(tree.steps / share / unit))
        # A multiple of a power of two: the more the boundaries of a run have in common, the longer the
        # inner loop of a GPU can be.
        coarse = 2 ** max(0, iterations.bit_length() - 3)
        return round(iterations / coarse) * coarse * unit

    log_steps = grid(tree.record.log_steps, 100)
    eval_steps = grid(tree.record.eval_steps, 10)
    record = dataclasses.replace(tree.record, log_steps=log_steps, eval_steps=eval_steps)
    return dataclasses.replace(tree, record=record)


def range_problems(tree: Experiment) -> list[str]:
    """Every leaf that is out of its range."""
    found = []
    for leaf in leaves(tree):
        for value in leaf.value if isinstance(leaf.value, tuple) else (leaf.value,):
            if leaf.limit is not None and not leaf.limit.admits(value):
                found.append(f"{leaf.name}={value} must be {leaf.limit.demand(value)}")
    return found


def population(tree: Experiment) -> list[Member]:
    """The members: settings outer, in the order of their product, seeds inner."""
    numbers = {leaf.name: leaf.value for leaf in leaves(tree) if leaf.traced}
    listed = [value if isinstance(value, tuple) else (value,) for value in numbers.values()]
    settings = [dict(zip(numbers, values, strict=True)) for values in itertools.product(*listed)]
    return [Member(tree.seed + offset, setting) for setting in settings for offset in range(tree.seeds)]


def to_json(tree: Any, slot: str = "") -> Any:
    """An experiment as plain data."""
    if dataclasses.is_dataclass(tree):
        part = {"part": part_name(slot, tree)} if slot in PARTS else {}
        return part | {name: to_json(getattr(tree, name), name) for name in part_fields(tree)}
    return list(tree) if isinstance(tree, tuple) else tree


def from_json(data: Any) -> Experiment:
    """The experiment of plain data.  Raises ConfigError with all that is wrong.

    The data is no code; an agent and parts of the user's own are imported by the names that it holds.
    """
    if not isinstance(data, dict):
        raise ConfigError("a configuration is a JSON object, as in a run folder's config.json")
    if isinstance(data.get("hparams"), dict):
        data = data | {"hparams": regrouped(data["hparams"])}
    start = in_environment(default_experiment(str(data.get("agent", MAIN_AGENT))), str(data.get("env", MAIN_ENV)))
    problems: list[str] = []
    tree = _read(start, data, "", problems)
    if problems:
        raise ConfigError(problems)
    return tree


def _read(start: Any, data: dict[str, Any], where: str, problems: list[str]) -> Any:
    if "part" in data:
        slot = where.rstrip(".").rpartition(".")[2]
        fitting = PARTS.get(slot, {})
        part = data["part"]
        own = isinstance(part, str) and named.is_own(part) and slot in OWN_PARTS
        if not own and (not isinstance(part, str) or part not in fitting):
            fix = did_you_mean(str(part), fitting) if fitting else "leave it out, nothing else fits there"
            problems.append(f"{where}part={part!r} does not fit here; {fix}")
            return start
        try:
            start = other_part(start, part_of(slot, part))
        except ConfigError as error:
            problems += error.problems
            return start
    annotated = {leaf.name: leaf for leaf in leaves(start)}
    for name, value in data.items():
        if name == "part":
            continue
        if name not in part_fields(start):
            problems.append(f"{where}{name} is no field; {did_you_mean(name, part_fields(start))}")
        elif dataclasses.is_dataclass(getattr(start, name)):
            if not isinstance(value, dict):
                problems.append(f"{where}{name}={value!r} must be an object")
                continue
            start = replace_at(start, (name,), _read(getattr(start, name), value, f"{where}{name}.", problems))
        else:
            try:
                start = replace_at(start, (name,), coerce(annotated[name], value))
            except (TypeError, ValueError, OverflowError) as error:
                problems.append(f"{where}{name}={value!r} {error}")
    return start


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two experiments as plain data differ, as `hparams.learning_rate: 0.001 -> 0.01`."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(name for name in new if name not in old)]
        return [
            line for name in names for line in differences(old.get(name), new.get(name), f"{path}.{name}".strip("."))
        ]
    return [] if old == new else [f"{path}: {old} -> {new}"]
