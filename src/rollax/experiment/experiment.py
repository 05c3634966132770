"""What a run is: an experiment, which the command line, files and Python all set by the names of its settings."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from rollax.agents.base import AgentConfig
from rollax.agents.dqn import DQNConfig, DQNHParams
from rollax.agents.names import recipe_of
from rollax.envs import registry
from rollax.envs.given import name_for
from rollax.envs.views import ViewConfig
from rollax.errors import ConfigError
from rollax.experiment.parts import PARTS
from rollax.experiment.presets import ENVIRONMENTS, known_as, preset_for
from rollax.experiment.tree import (
    leaves,
    matching,
    numbers_of,
    range_problems,
    read_into,
    value_at,
    with_leaves,
    with_parts,
)
from rollax.settings import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, Limit, check_text, name_of, setting

MAIN_AGENT, MAIN_ENV, MAIN_SEEDS = "double", "CartPole-v1", 10
MOST_MEMBERS = 1_000_000


@dataclass(frozen=True)
class LoopConfig:
    """How data is collected, and where all is computed."""

    num_envs: int = setting(16, "Number of environments that each member steps in parallel.", limit=COUNT, memory=True)
    rollout_length: int = setting(
        1, "Number of steps that each environment makes in one iteration.", limit=COUNT, memory=True
    )
    warm_up_steps: int = setting(
        1_000, "Number of environment steps that are collected before learning begins.", limit=COUNT_OR_NONE
    )
    learners: Literal["independent", "shared"] = setting(
        "independent", "Whether several players have a learner each or share one.", group="environment", rare=True
    )
    agent_map: Literal["auto", "vmap", "map"] = setting(
        "auto",
        "Whether independent learners are computed at once (vmap) or one after the other (map).",
        group="devices and processes",
        rare=True,
    )
    overlap: bool = setting(
        True,
        "Step environments outside JAX while the agent learns from the rollout before.",
        group="devices and processes",
        rare=True,
    )
    devices: int = setting(
        0,
        "Number of devices that share the members, then the environments; 0 takes the most that divide the work.",
        limit=COUNT_OR_NONE,
        group="devices and processes",
        resumable=True,
        incidental=True,
    )
    actors: int = setting(
        0,
        "Number of Ray processes that collect data without waiting for the learner; 0 collects and learns in turn.",
        limit=COUNT_OR_NONE,
        group="devices and processes",
        rare=True,
    )
    replay_shards: int = setting(
        1,
        "Number of processes that share the replay buffer of a run with actors.",
        limit=COUNT,
        group="devices and processes",
        rare=True,
    )
    max_memory: str = setting(
        "",
        "The most memory that a run may take, as in 4GiB; by default what is free.",
        group="devices and processes",
        rare=True,
        resumable=True,
        incidental=True,
        searchable=False,
    )
    replay_on: Literal["device", "host"] = setting(
        "device",
        "Whether the replay buffer of environments outside JAX is kept with the learner or in the host's memory.",
        group="devices and processes",
        rare=True,
    )


@dataclass(frozen=True)
class RecordConfig:
    """What is measured on the way, and what is kept."""

    log_steps: int = setting(
        0,
        "Number of environment steps between rows of metrics.csv; 0 takes a hundredth of the run.",
        limit=COUNT_OR_NONE,
        rare=True,
        incidental=True,
    )
    eval_steps: int = setting(
        0,
        "Number of environment steps between evaluations; 0 takes a tenth of the run.",
        limit=COUNT_OR_NONE,
        incidental=True,
    )
    eval_episodes: int = setting(100, "Number of episodes of each evaluation.", limit=COUNT, memory=True)
    max_episode_steps: int = setting(
        27_000,
        "Number of steps after which an evaluation cuts an episode that has not ended.",
        limit=COUNT,
        rare=True,
        protocol=True,
    )
    checkpoint_seconds: float = setting(
        30.0,
        "Least seconds between checkpoints; 0 writes one after every chunk.",
        limit=NOT_NEGATIVE,
        rare=True,
        resumable=True,
        incidental=True,
    )
    keep_checkpoints: int = setting(
        2, "Number of checkpoints that are kept.", limit=COUNT, rare=True, resumable=True, incidental=True
    )
    chunk_seconds: float = setting(
        2.0,
        "Seconds, roughly, that the compiled program runs before the host logs, saves and looks for signals.",
        limit=NOT_NEGATIVE,
        rare=True,
        resumable=True,
        incidental=True,
    )
    log_to: tuple[Literal["jsonl", "tensorboard", "wandb"], ...] = setting(
        (), "Loggers that get every row beside the CSV files.", resumable=True, incidental=True
    )


@dataclass(frozen=True)
class Experiment:
    """All that determines a run.  A tuple of numbers for a hyper-parameter makes a population."""

    agent: str = setting(
        MAIN_AGENT,
        "The agent's name, or package.module:RECIPE for one of your own.",
        group="experiment",
        searchable=False,
    )
    env: str = setting(
        MAIN_ENV,
        "The environment's name, or package.module:function for one of your own.",
        group="experiment",
        searchable=False,
        incidental=True,
    )
    seeds: int = setting(
        1,
        "Number of members of each setting, which are trained at once with consecutive seeds.",
        limit=Limit(1, MOST_MEMBERS),
        group="experiment",
        searchable=False,
        incidental=True,
        memory=True,
    )
    seed: int = setting(
        0, "The first random seed.", limit=COUNT_OR_NONE, group="experiment", searchable=False, incidental=True
    )
    steps: int = setting(
        100_000,
        "Number of environment steps of each member, the warm-up included.",
        limit=Limit(1, 2**53),
        group="experiment",
        resumable=True,
    )
    init_from: str = setting(
        "", "A run folder, or zoo:NAME, whose best weights every member starts from.", group="experiment", rare=True
    )
    world: Any = setting(registry.FixedWorld(), group="environment")
    view: ViewConfig = setting(ViewConfig(), group="environment")
    choices: AgentConfig = setting(DQNConfig(), group="agent")
    hparams: Any = setting(DQNHParams(), group="agent", population=True)
    loop: LoopConfig = setting(LoopConfig(), group="rollouts")
    record: RecordConfig = setting(RecordConfig(), group="evaluation and logging")

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of each member in one iteration."""
        return self.loop.num_envs * self.loop.rollout_length

    def iterations(self, steps: int) -> int:
        """Whole iterations that make at least so many steps."""
        return -(-steps // self.steps_per_iteration)


# Names that mean the experiment's own wherever they are used; no part may have a field of that name.
RESERVED = {item.name for item in dataclasses.fields(Experiment)} | {"preset"}


class Member(NamedTuple):
    """One run of a population."""

    seed: int
    hparams: dict[str, Any]  # numbers and the texts of schedules, by the names of the leaves


def make_experiment(agent: str = MAIN_AGENT, *, preset: str = "auto", **values: Any) -> Experiment:
    """An experiment by its agent's name, with any setting by name: `make_experiment("double", seeds=3, n_step=3)`.

    A part is set by its name or given itself: `head="categorical"`, `head=CategoricalHead(atoms=21)`.  A qualified name
    is a key of a dictionary: `**{"torso.hidden": (64, 64)}`.  What the environment asks of all agents applies first,
    then the preset of the agent there; `preset="none"` leaves the agent's defaults.  `env` is a name, an environment
    itself, or a class or function that makes one.
    """
    values["env"] = env = name_for(values.get("env", MAIN_ENV))
    tree = in_environment(default_experiment(agent), env)
    chosen = preset_for(agent, env, preset)
    asked = {} if preset == "none" else ENVIRONMENTS.get(known_as(env), {})
    parts = {slot: asked[slot] for slot in PARTS if slot in asked}
    tree = with_values(tree, parts | chosen)
    tree, rest = with_parts(tree, values)
    check_names(tree)
    given = {name for name in values.keys() - rest.keys() if not isinstance(values[name], str)}
    slots = {name.split(".")[-1] for name in given}
    free = [leaf.path for leaf in leaves(tree) if not slots.intersection(leaf.path)]
    decided = {path for name in chosen for path in matching(name, free)}
    fitting = {name for name in asked if set(matching(name, free)) - decided}
    tree = with_values(tree, {name: value for name, value in asked.items() if name in fitting})
    return with_values(tree, rest)


def in_environment(tree: Experiment, env: str) -> Experiment:
    """The experiment in another environment, with that one's usual choices."""
    check_text("env", env)
    return tree if env == tree.env else dataclasses.replace(tree, env=env, world=registry.world_of(env))


def default_experiment(agent: str) -> Experiment:
    """The agent with its own defaults, without a preset.  Raises ConfigError where a name means two things."""
    check_text("agent", agent)
    recipe = recipe_of(agent)
    loop = dataclasses.replace(LoopConfig(), **recipe.loop)
    tree = Experiment(agent=agent, choices=recipe.choices, hparams=recipe.hparams, loop=loop)
    check_names(tree)
    return tree


def check_names(tree: Experiment) -> None:
    """Raises ConfigError where a part has a field that is named like one of the experiment's own."""
    taken = [leaf.path for leaf in leaves(tree) if len(leaf.path) > 1 and leaf.path[-1] in RESERVED]
    if taken:
        raise ConfigError([taken_line(tree, path) for path in taken])


def taken_line(tree: Experiment, path: tuple[str, ...]) -> str:
    holder = value_at(tree, path[:-1])
    new = f"{path[-2]}_{path[-1]}"
    return f"{path[-2]}={name_of(type(holder))} has a field {path[-1]}, which is the experiment's; rename it, as {new}"


def with_values(tree: Experiment, values: dict[str, Any]) -> Experiment:
    """The experiment with parts, then leaves, replaced by name.  Raises ConfigError with all that is wrong."""
    tree, values = with_parts(tree, values)
    if isinstance(values.get("env"), str):
        tree = in_environment(tree, values["env"])
    check_names(tree)
    return with_leaves(tree, values)


def from_json(data: Any) -> Experiment:
    """The experiment of plain data, as `to_json` makes it.  Raises ConfigError with all that is wrong.

    The data is no code; an agent and parts of the user's own are imported by the names that it holds.
    """
    if not isinstance(data, dict):
        raise ConfigError("a configuration is a JSON object, as in a run folder's config.json")
    start = in_environment(default_experiment(data.get("agent", MAIN_AGENT)), data.get("env", MAIN_ENV))
    problems: list[str] = []
    tree = read_into(start, data, problems)
    if problems:
        raise ConfigError(problems + range_problems(tree))
    check_names(tree)
    return tree


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


def population_size(tree: Experiment) -> int:
    """How many members there are, of which none need be listed."""
    return tree.seeds * math.prod(len(numbers_of(leaf)) for leaf in leaves(tree) if leaf.traced)


def population_problems(tree: Experiment) -> list[str]:
    """Whether there are more members than can be listed."""
    count = population_size(tree)
    if count <= MOST_MEMBERS:
        return []
    settings = count // max(1, tree.seeds)
    return [f"{settings:,} settings x seeds={tree.seeds} are {count:,} members; the most is {MOST_MEMBERS:,}"]


def population(tree: Experiment) -> list[Member]:
    """The members: settings outer, in the order of their product, seeds inner.  Raises ConfigError for too many."""
    if problems := population_problems(tree):
        raise ConfigError(problems)
    inputs = [leaf for leaf in leaves(tree) if leaf.traced and not (leaf.scheduled and leaf.value is None)]
    numbers = {leaf.name: numbers_of(leaf) for leaf in inputs}
    points = [dict(zip(numbers, values, strict=True)) for values in itertools.product(*numbers.values())]
    return [Member(tree.seed + offset, point) for point in points for offset in range(tree.seeds)]
