"""From an experiment to a program that can be compiled: everything that may be refused is refused here."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from rollax.agents.base import Agent
from rollax.agents.players import UNROLLED, Independent, Shared
from rollax.envs import registry
from rollax.envs.host import HostTask
from rollax.envs.protocol import Task
from rollax.errors import ConfigError, EnvError, ResourceError
from rollax.experiment.experiment import Experiment, LoopConfig, Member, population, range_problems, resolve
from rollax.experiment.tree import leaves, replace_at
from rollax.memory.replay import UniformReplay
from rollax.programs.evaluate import Best, Evaluator
from rollax.programs.host import HostEvaluator, HostProgram
from rollax.programs.host_pieces import HostLoop
from rollax.programs.jit import JaxProgram
from rollax.programs.loop import Loop, TrainState
from rollax.programs.mesh import Grid, Spread, grid_of, largest_grid, mesh_of, split_axes
from rollax.programs.program import Program, nbytes, population_axes
from rollax.tracing import DATA
from rollax.types import EnvSpec, Key

LARGEST_BLOCK = 64


class Plan(NamedTuple):
    """A run that has been checked, and nothing allocated for it yet."""

    experiment: Experiment  # with every automatic value filled in
    members: list[Member]
    program: Program
    keys: Key
    hparams: Any
    grid: Grid  # of devices
    total: int  # iterations, as all numbers below
    warm_up: int
    log: int
    evaluation: int

    @property
    def steps_per_iteration(self) -> int:
        return self.experiment.steps_per_iteration

    @property
    def protocol(self) -> dict[str, Any]:
        """What a score depends on beside the agent, by name; empty where the environment's name says it all."""
        task = self.program.loop.task
        if not isinstance(task, HostTask) or not task.protocol:
            return {}
        chosen = {leaf.name: leaf.value for leaf in leaves(self.experiment) if leaf.about.protocol}
        return dict(task.protocol) | chosen

    def shapes(self) -> tuple[TrainState, Best]:
        return self.program.shapes(self.keys, self.hparams)


def make_plan(experiment: Experiment, start: int = 0, members: list[Member] | None = None) -> Plan:
    """Checks an experiment and lays it out, from step `start` on; with these members, if not its own.

    Raises ConfigError with every problem, or EnvError.
    """
    problems = range_problems(experiment)
    if hasattr(experiment.world, "problems") and not problems:
        problems += experiment.world.problems()
    out_of_range = bool(problems)
    task = None
    try:
        task = registry.make(experiment.env, experiment.world)
    except ConfigError as error:
        problems += error.problems
    except EnvError:
        if not problems:
            raise
    if task is None or not experiment.steps_per_iteration > 0:
        raise ConfigError(problems)
    problems += place_problems(experiment, task)
    members = members or ([] if problems else population(experiment))
    spec = learner_spec(task, experiment.loop)
    choices = experiment.choices
    warm_up = experiment.iterations(experiment.loop.warm_up_steps)
    problems += choices.problems(spec)
    least = choices.least_warm_up(spec)
    if warm_up < least:
        problems.append(
            f"warm_up_steps={experiment.loop.warm_up_steps} leaves nothing to learn from; "
            f"the least is warm_up_steps={least * spec.steps_per_iteration}"
        )
    most = (2**31 - 1) // spec.rollout_length * spec.steps_per_iteration  # rows are counted in 32 bits
    if experiment.steps > most and not out_of_range:
        problems.append(f"steps={experiment.steps} must be at most {most} with so few environments")
    if problems:
        raise ConfigError(problems)
    experiment = resolve(experiment)
    grid = choose_grid(experiment, task, spec, len(members))
    total = experiment.iterations(experiment.steps)
    warm_up = min(warm_up, total)
    log = experiment.iterations(experiment.record.log_steps)
    evaluation = experiment.iterations(experiment.record.eval_steps)
    keys, hparams = keys_and_hparams(experiment, members)
    program = make_program(
        experiment, task, block_length(total, warm_up, log, evaluation, experiment.iterations(start)), grid.data
    )
    if grid.size > 1:
        program = spread_over(mesh_of(grid), program, make_program(experiment, task, 1), keys, hparams)
    return Plan(
        experiment=experiment,
        members=members,
        program=program,
        keys=keys,
        hparams=hparams,
        grid=grid,
        total=total,
        warm_up=warm_up,
        log=log,
        evaluation=evaluation,
    )


def place_problems(experiment: Experiment, task: Task | HostTask) -> list[str]:
    """Whether the replay can be where, and draw from what, it is wanted."""
    replay = getattr(experiment.choices, "replay", None)
    if replay is not None and type(replay) is not UniformReplay and experiment.hparams.replay_limit != 0:
        return ["replay_limit is for replay=uniform; leave it out, or set --capacity"]
    if experiment.loop.replay_on == "device":
        return []
    if not isinstance(task, HostTask):
        return ["replay_on=host is for environments outside JAX; leave it out, or see --capacity for a smaller replay"]
    if not hasattr(experiment.choices, "replay"):
        return [f"replay_on=host: {experiment.agent} has no replay; leave it out"]
    return []


def choose_grid(experiment: Experiment, task: Task | HostTask, spec: EnvSpec, members: int) -> Grid:
    """The devices of a run: as many as were asked for, or the most that divide the work."""
    asked, there, processes = experiment.loop.devices, jax.device_count(), jax.process_count()
    if isinstance(task, HostTask):
        if asked > 1 or processes > 1:
            raise ConfigError("devices: environments outside JAX are stepped for one device; leave --devices out")
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


def spread_over(mesh: Mesh, program: Program, alone: Program, keys: Key, hparams: Any) -> Program:
    """A program over a mesh, from its share for one device and from the same run on one device alone."""
    shards = mesh.shape[DATA]
    whole = alone.shapes(keys, hparams)
    share = jax.eval_shape(
        jax.vmap(lambda _: program.init(keys, hparams), axis_name=DATA, axis_size=shards), jnp.arange(shards)
    )
    share = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), share)
    axes = (population_axes(whole[0]), jax.tree.map(lambda _: 0, whole[1]))
    return replace(program, spread=Spread(mesh, whole, split_axes(whole, share, axes)))


def make_program(experiment: Experiment, task: Task | HostTask, block: int, shards: int = 1) -> Any:
    """The way to run an agent where its environments are; with shards, what one of them does."""
    loop, record = experiment.loop, experiment.record
    spec = learner_spec(task, loop)._replace(shards=shards)
    agent = with_players(experiment.choices.build(spec), task, loop)
    if isinstance(task, HostTask):
        return HostProgram(
            HostLoop(agent, task, loop.num_envs, loop.rollout_length),
            HostEvaluator(agent, task, record.eval_episodes, record.max_episode_steps),
            overlap=loop.overlap,
            memory_device=far_device(experiment),
        )
    evaluator = Evaluator(agent, task, record.eval_episodes, record.max_episode_steps)
    return JaxProgram(Loop(agent, task, loop.num_envs, loop.rollout_length), evaluator, block)


def far_device(experiment: Experiment) -> Any:
    """Where the memory is, if it is not to be where the learner is."""
    apart = experiment.loop.replay_on == "host" and jax.default_backend() != "cpu"
    return jax.devices("cpu")[0] if apart else None


def learner_spec(task: Task | HostTask, loop: LoopConfig) -> EnvSpec:
    """What one learner knows of where it acts; to a shared one each player is an environment."""
    shared = max(task.players, 1) if loop.learners == "shared" else 1
    return task.spec(loop.num_envs * shared, loop.rollout_length)


def with_players(agent: Agent, task: Task | HostTask, loop: LoopConfig) -> Agent:
    """The agent of all players."""
    if not task.players:
        return agent
    if loop.learners == "shared":
        return Shared(agent, task.players)
    if loop.agent_map != "auto":
        return Independent(agent, task.players, loop.agent_map, loop.agent_map)
    if jax.default_backend() != "cpu":
        return Independent(agent, task.players, "vmap", "vmap")
    # One player's large products fill a CPU's cores, and stay in its cache; many players' small ones do not.
    return Independent(agent, task.players, "map" if task.players <= UNROLLED else "vmap", "map")


def block_length(*boundaries: int) -> int:
    """The longest inner loop that fits between all boundaries; on a CPU, where asking is free, 1."""
    if jax.default_backend() == "cpu":
        return 1
    common = math.gcd(*boundaries)
    return max(length for length in range(1, LARGEST_BLOCK + 1) if common % length == 0)


def check_memory(plan: Plan) -> None:
    """Refuses a run whose state cannot fit, with a replay that does.  A tenth is left to the programs."""
    needed, available = nbytes(plan.shapes()), int(available_bytes() * 0.9)
    if far_device(plan.experiment) is not None:
        held = nbytes(plan.shapes()[0].memory)
        if held > int(host_bytes() * 0.9):
            free = memory_size(host_bytes() * 0.9)
            raise ResourceError(f"the replay needs {memory_size(held)}, but the machine has only {free} free")
        needed -= held
    if needed <= available:
        return
    message = f"the run needs {memory_size(needed)} of memory, but only {memory_size(available)} are free"
    replay = getattr(plan.experiment.choices, "replay", None)
    if replay is not None and far_device(plan.experiment) is None:
        held = nbytes(plan.shapes()[0].memory)
        unit = plan.steps_per_iteration
        fits = int((available - (needed - held)) / held * replay.capacity * 0.95) // unit * unit
        if fits >= unit * 2:
            raise ResourceError(f"{message}; --capacity {fits} would fit")
    raise ResourceError(f"{message}; try fewer seeds or settings")


def available_bytes() -> int:
    """Memory that a run may take on the device that it will use."""
    statistics = jax.local_devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return statistics["bytes_limit"] - statistics["bytes_in_use"]
    return host_bytes()


def host_bytes() -> int:
    """Memory that is free on the machine."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:  # a container may be allowed less than the machine has
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return min(free, int(limit) - int(used)) if limit.isdigit() else free
    except OSError:
        return free


def own_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_size(count: float) -> str:
    """Bytes as a person reads them."""
    units = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
    name, unit = next(((name, unit) for name, unit in units.items() if abs(count) >= unit), ("B", 1))
    return f"{count / unit:.1f} {name}" if name != "B" and abs(count) < 100 * unit else f"{count / unit:.0f} {name}"


def keys_and_hparams(experiment: Experiment, members: list[Member]) -> tuple[Key, Any]:
    """Of all members, `[members]`; numbers as strong types, so that a restored run meets the same program."""
    tree = experiment
    for leaf in (leaf for leaf in leaves(experiment) if leaf.traced):
        kind = jnp.int32 if leaf.annotation is int else jnp.float32
        tree = replace_at(tree, leaf.path, jnp.array([member.hparams[leaf.name] for member in members], kind))
    keys = jax.vmap(jax.random.key)(np.array([member.seed for member in members], np.uint32))
    return keys, tree.hparams
