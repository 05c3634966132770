"""From an experiment to a program that can be compiled: everything that may be refused is refused here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from rollax.agents.names import AGENTS
from rollax.agents.replaying import ReplayHParams
from rollax.envs import registry
from rollax.envs.actions import in_words
from rollax.envs.host import HostTask
from rollax.envs.protocol import Task
from rollax.errors import ConfigError, EnvError
from rollax.experiment.experiment import Experiment, Member, population, population_problems, resolve
from rollax.experiment.scheduled import ENDING, function_problem, is_function
from rollax.experiment.tree import leaves, numbers_of, range_problems
from rollax.memory.uniform import UniformReplay
from rollax.programs.debugging import NO_DEBUG, Debug, DebugProgram
from rollax.programs.evaluate import Best
from rollax.programs.fleet import ActorsProgram
from rollax.programs.host import HostProgram
from rollax.programs.jit import JitProgram
from rollax.programs.learners import built_agent, keys_and_hparams, learner_spec, with_players
from rollax.programs.machine import parsed_size
from rollax.programs.mesh import Grid, Spread, grid_of, largest_grid, mesh_of, split_axes
from rollax.programs.program import Program, Schedule, population_axes
from rollax.programs.streams import ITERATIONS
from rollax.tracing import DATA
from rollax.types import Discrete, EnvSpec, Key

LARGEST_BLOCK = 64


@dataclass(frozen=True)
class Plan:
    """A run that has been checked, and nothing allocated for it yet."""

    experiment: Experiment  # with every automatic value filled in
    members: list[Member]
    program: Program
    keys: Key
    hparams: Any
    grid: Grid = Grid()  # of devices

    @property
    def schedule(self) -> Schedule:
        return self.program.schedule

    @property
    def steps_per_iteration(self) -> int:
        return self.experiment.steps_per_iteration

    @property
    def last_step(self) -> int:
        """The environment steps of each member in all."""
        return self.schedule.total * self.steps_per_iteration

    @property
    def protocol(self) -> dict[str, Any]:
        """What a score depends on beside the agent, by name; empty where the environment's name says it all."""
        if not self.program.task.protocol:
            return {}
        chosen = {leaf.name: leaf.value for leaf in leaves(self.experiment) if leaf.about.protocol}
        return dict(self.program.task.protocol) | chosen

    def shapes(self) -> tuple[Any, Best]:
        """The state and the best weights as shapes: traced once, however often they are asked for."""
        return self._shapes

    @cached_property
    def _shapes(self) -> tuple[Any, Best]:
        return self.program.shapes(self.keys, self.hparams)


def make_plan(
    experiment: Experiment,
    start: int = 0,
    members: list[Member] | None = None,
    debug: Debug = NO_DEBUG,
    *,
    searched: bool = False,
) -> Plan:
    """Checks an experiment and lays it out, from step `start` on; with these members, if not its own.

    In a search their hyper-parameters may become others; else the program has only what these need.
    Raises ConfigError with every problem, or EnvError.
    """
    problems = range_problems(experiment) + population_problems(experiment) + rival_problems(experiment)
    if not problems:
        problems += experiment.world.problems()
    out_of_range = bool(problems)
    task = None
    try:
        task = registry.make(experiment.env, experiment.world, experiment.view)
    except ConfigError as error:
        problems += error.problems
    except EnvError:
        if not problems:
            raise
    if task is None or not experiment.steps_per_iteration > 0:
        raise ConfigError(problems)
    kind = kind_of(experiment, task, debug)
    problems += kind.problems(experiment) + debug.problems(experiment) + limit_problems(experiment)
    try:
        parsed_size(experiment.loop.max_memory)
    except ConfigError as error:
        problems += error.problems
    members = members or ([] if problems else population(experiment))
    spec = learner_spec(task, experiment.loop)
    choices = experiment.choices
    warm_up = experiment.iterations(experiment.loop.warm_up_steps)
    problems += action_problems(experiment, spec) or choices.problems(spec)
    least = choices.least_warm_up(spec)
    if warm_up < least:
        problems.append(
            f"warm_up_steps={experiment.loop.warm_up_steps} fills the replay with less than learning needs; "
            f"the least is warm_up_steps={least * spec.steps_per_iteration}"
        )
    # Rows are counted in 32 bits, and iterations have so many keys.
    most = min((2**31 - 1) // spec.rollout_length, ITERATIONS.count) * spec.steps_per_iteration
    if experiment.steps > most and not out_of_range:
        problems.append(f"steps={experiment.steps} must be at most {most} with so few environments")
    if problems:
        raise ConfigError(problems)
    experiment = resolve(experiment)
    grid = choose_grid(experiment, kind, spec, len(members))
    total = experiment.iterations(experiment.steps)
    schedule = Schedule(
        total=total,
        warm_up=min(warm_up, total),
        log=experiment.iterations(experiment.record.log_steps),
        evaluation=experiment.iterations(experiment.record.eval_steps),
    )
    block = block_length(*schedule, experiment.iterations(start))
    keys, hparams = keys_and_hparams(experiment, members)

    def program(shards: int) -> Program:
        """What one of so many shards of a member does."""
        agent = built_agent(experiment, spec._replace(shards=shards))
        agent = agent if searched else agent.fitted([member.hparams for member in members])
        return kind.make(experiment, with_players(agent, task, experiment.loop), task, block, schedule)

    if grid.size > 1:
        spread = spread_over(mesh_of(grid), program(grid.data), program(1), keys, hparams)
        return Plan(experiment, members, spread, keys, hparams, grid)
    made = program(1)
    return Plan(experiment, members, replace(made, debug=debug) if kind is DebugProgram else made, keys, hparams, grid)


def kind_of(experiment: Experiment, task: Task | HostTask, debug: Debug) -> type[Program]:
    """The way to run an experiment: the one place that asks."""
    if debug.rebuilds and (experiment.loop.actors or task.outside):
        where = (
            "actors: the replay is elsewhere" if experiment.loop.actors else f"env={experiment.env!r} runs outside JAX"
        )
        raise ConfigError(f"{where}, where of the debug modes there is only --check-leaks; leave the others out")
    if experiment.loop.actors:
        return ActorsProgram
    if task.outside:
        return HostProgram
    return DebugProgram if debug.rebuilds else JitProgram


def action_problems(experiment: Experiment, spec: EnvSpec) -> list[str]:
    """Whether the agent can act in spaces of this kind, with those that can."""
    if isinstance(spec.action, experiment.choices.takes):
        return []
    able = [name for name, recipe in AGENTS.items() if isinstance(spec.action, recipe.choices.takes)]
    words = in_words(spec.action)
    if isinstance(spec.action, Discrete):
        words = f"there are {words}"
        able = [name for name in ("dqn", "pqn", "ppo") if name in able]
    return [
        f"agent={experiment.agent!r} cannot act in env={experiment.env!r}, where {words}; "
        f"take `rollax train {able[0]} --env {experiment.env}`" + (f", or {' or '.join(able[1:])}" if able[1:] else "")
    ]


def limit_problems(experiment: Experiment) -> list[str]:
    """Whether the replay can draw from what is wanted."""
    hparams = experiment.hparams
    limited = isinstance(hparams, ReplayHParams) and hparams.replay_limit != 0
    if limited and type(experiment.choices.replay) is not UniformReplay:
        return ["replay_limit is for replay=uniform; leave it out, or set --capacity"]
    return []


def rival_problems(experiment: Experiment) -> list[str]:
    """Whether a population differs in a number whose place a schedule takes."""
    known = leaves(experiment)
    return [
        f"{other.name} has several values, but {leaf.name} takes its place; leave one out"
        for leaf in known
        if leaf.scheduled and leaf.value is not None
        for other in known
        if isinstance(other.value, tuple) and other is not leaf and other.path[:-1] == leaf.path[:-1]
        if other.path[-1].startswith(leaf.path[-1].removesuffix(ENDING))
    ]


def check_functions(experiment: Experiment) -> None:
    """Raises ConfigError where a function that a run is to follow is missing, or returns no such number."""
    problems = [
        function_problem(leaf.name, text, leaf.limit, experiment.steps)
        for leaf in leaves(experiment)
        if leaf.scheduled
        for text in numbers_of(leaf)
        if text and is_function(text)
    ]
    if any(problems):
        raise ConfigError([problem for problem in problems if problem])


def choose_grid(experiment: Experiment, kind: type[Program], spec: EnvSpec, members: int) -> Grid:
    """The devices of a run: as many as were asked for, or the most that divide the work."""
    asked, there, processes = experiment.loop.devices, jax.device_count(), jax.process_count()
    if kind.one_device:
        if asked > 1 or processes > 1:
            raise ConfigError(f"devices: {kind.one_device}; leave --devices out")
        return Grid()
    if asked > there:
        raise ConfigError(f"devices={asked}, but there are only {there}; leave it out to take what fits")

    def fits(shards: int) -> bool:
        return experiment.loop.num_envs % shards == 0 and not experiment.choices.problems(spec._replace(shards=shards))

    def pays(shards: int) -> bool:
        """A CPU's cores gain from members of their own; to share one they would have to meet at every step."""
        return fits(shards) and (jax.default_backend() != "cpu" or shards in (1, processes))

    grid = largest_grid(there, processes, members, fits)
    if not asked and (best := largest_grid(there, processes, members, pays) or grid):
        return best
    if asked % processes == 0 and (wanted := grid_of(asked, members, fits)):
        return wanted
    work = f"{members} members, num_envs={experiment.loop.num_envs} and what is learnt from at once"
    whole = f", a multiple of the {processes} processes" if processes > 1 else ""
    fix = f"; the most that do{whole}: --devices {grid.size}" if grid else "; change one of them"
    raise ConfigError(f"devices={asked or there} do not divide {work}{fix}")


def spread_over(mesh: Mesh, program: Any, alone: Program, keys: Key, hparams: Any) -> Program:
    """A program over a mesh, from its share for one device and from the same run on one device alone."""
    shards = mesh.shape[DATA]
    whole = alone.shapes(keys, hparams)
    share = whole
    if shards > 1:
        share = jax.eval_shape(
            jax.vmap(lambda _: program.init(keys, hparams), axis_name=DATA, axis_size=shards), jnp.arange(shards)
        )
        share = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), share)
    axes = (population_axes(whole[0]), jax.tree.map(lambda _: 0, whole[1]))
    return replace(program, spread=Spread(mesh, whole, split_axes(whole, share, axes)))


def block_length(*boundaries: int) -> int:
    """The longest inner loop that fits between all boundaries; on a CPU, where asking is free, 1."""
    if jax.default_backend() == "cpu":
        return 1
    common = math.gcd(*boundaries)
    return max(length for length in range(1, LARGEST_BLOCK + 1) if common % length == 0)
