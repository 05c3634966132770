"""A run in which actors collect without waiting for the learner: Ape-X (Horgan et al. 2018), on Ray.

Nobody waits for anybody, so a run does not repeat, and what is resumed is the learner alone: the replay fills anew.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, Learner
from rollax.agents.dqn import DQN, DQNConfig
from rollax.errors import ConfigError, missing, warn
from rollax.experiment.experiment import Experiment, population_size
from rollax.experiment.scheduled import value_at
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Sample
from rollax.memory.sequences import SequenceReplay
from rollax.programs import streams
from rollax.programs.actors import Totals, mean_epsilon
from rollax.programs.background import abandon, beside
from rollax.programs.evaluate import Best, Evaluation, Evaluator, Playing, blank, in_parts, nothing
from rollax.programs.loop import Health, Loop
from rollax.programs.processes import Fleet
from rollax.programs.program import (
    Chunk,
    Program,
    Running,
    Schedule,
    Window,
    nbytes,
    no_best,
    replay_problems,
)
from rollax.tracing import fetch
from rollax.types import Array, Key

TOGETHER = 16  # batches that are asked for, and learnt from, at once
AHEAD = 2  # requests that are under way
ROW_BYTES = 32  # of a transition in a shard, beside its two observations
PROCESS_BYTES = 300 * 2**20  # of Python and JAX in a process of their own
PATIENCE = 1.0  # seconds after which a caller hears how things stand, whatever was reached


class ActorsState(NamedTuple):
    """What is kept of such a run: the learner, as a population of one, and counters."""

    iteration: Array  # of environment steps, as everywhere
    key: Key
    learner: Learner
    memory: tuple  # nothing: the replay is in processes of its own
    updates: Array  # gradient steps
    health: Health


@dataclass(frozen=True)
class ActorsProgram(Program):
    """A learner here, actors and replay in processes of their own."""

    first_chunk: ClassVar[int] = 1
    searchable: ClassVar[bool] = False
    on_grid: ClassVar[bool] = False
    opening: ClassVar[str] = "Starting the actors"
    waits_for_others: ClassVar[bool] = True
    one_device: ClassVar[str] = "actors collect for a learner on one device"
    columns: ClassVar[tuple[str, ...]] = ("updates", "updates_per_second", "replay_ratio", "policy_lag", "lost")

    experiment: Experiment | None = None

    @classmethod
    def problems(cls, experiment: Experiment) -> list[str]:
        loop, found = experiment.loop, replay_problems(experiment)
        if experiment.choices.replay is None:
            found.append(f"actors=... collect for a replay, which {experiment.agent} has not; try `rollax train apex`")
        elif isinstance(experiment.choices.replay, SequenceReplay):
            found.append("actors=... do not collect sequences yet; leave --actors out, or try `rollax train apex`")
        elif not isinstance(experiment.choices.replay, PrioritizedReplay):
            found.append("actors=... want priorities; try `rollax train apex`, or --replay prioritized")
        if experiment.seeds != 1:
            found.append(f"seeds={experiment.seeds}: actors collect for one learner; leave --seeds out")
        elif population_size(experiment) > 1:
            found.append("several values of a hyper-parameter: actors collect for one learner; give one value of each")
        if getattr(getattr(experiment.hparams, "exploration", None), "epsilon_schedule", None) is not None:
            found.append("epsilon_schedule: each actor has an epsilon of its own, which stays; leave it out")
        if loop.num_envs % loop.actors:
            near = max(1, loop.num_envs // loop.actors) * loop.actors
            found.append(f"num_envs={loop.num_envs} cannot be shared out to {loop.actors} actors; try num_envs={near}")
        if loop.replay_shards > loop.actors:
            found.append(
                f"replay_shards={loop.replay_shards} are more than the actors; try replay_shards={loop.actors}"
            )
        if isinstance(experiment.choices.replay, PrioritizedReplay) and loop.replay_shards > 0:
            found += shard_problems(experiment)
        return found

    @property
    def missing(self) -> list[str]:
        return missing("ray", f"actors={cast(Experiment, self.experiment).loop.actors}")

    @classmethod
    def make(cls, experiment: Experiment, agent: Agent, task: Any, block: int, schedule: Schedule) -> ActorsProgram:
        if task.outside or not isinstance(agent, DQN):
            raise ConfigError(
                f"actors=... cannot collect for {experiment.agent} in {experiment.env}; "
                "they are for agents of the DQN family with one player in JAX"
            )
        loop, record = experiment.loop, experiment.record
        evaluator = Evaluator(agent, task, record.eval_episodes, record.max_episode_steps)
        inner = Loop(agent, task, loop.num_envs, loop.rollout_length)
        return cls(inner, evaluator, schedule=schedule, experiment=experiment)

    def init(self, keys: Key, hparams: Any) -> tuple[ActorsState, Best]:
        own = jax.vmap(streams.roots)(keys)
        learner = jax.vmap(lambda key, numbers: self.agent.init(key, numbers)[0])(own.agent, hparams)
        health = Health(jnp.zeros(1, jnp.int32), jnp.full(1, -1, jnp.int32))
        return ActorsState(jnp.int32(0), own.loop, learner, (), jnp.int32(0), health), no_best(learner, len(keys))

    def remarks(self, members: int, resumed: bool) -> list[str]:
        loop = cast(Experiment, self.experiment).loop
        lines = [f"{loop.actors} actors collect without waiting, {loop.replay_shards} shards remember"]
        return [*lines, "The learner goes on as it was; the replay is empty."] if resumed else lines

    def other_bytes(self) -> int:
        experiment = cast(Experiment, self.experiment)
        loop, choices = experiment.loop, cast(DQNConfig, experiment.choices)
        row = 2 * nbytes(self.task.observation) + ROW_BYTES
        drawn = (AHEAD + 1) * TOGETHER * choices.batch_size
        return (choices.replay.capacity + drawn) * row + (loop.actors + loop.replay_shards) * PROCESS_BYTES

    def temporary_bytes(self, keys: Key, hparams: Any) -> dict[str, int]:
        batch = cast(DQNConfig, cast(Experiment, self.experiment).choices).batch_size
        learner, _ = self.shapes(keys, hparams)
        widths = sum(leaf.shape[-1] for leaf in jax.tree.leaves(learner.learner.params))
        return {"advance": batch * (TOGETHER * (2 * nbytes(self.task.observation) + ROW_BYTES) + 8 * widths)}

    def compile(self, keys: Key, hparams: Any) -> ActorsRunning:
        return ActorsRunning(self, keys, hparams)

    def play(self, learner: Learner, keys: Key) -> Evaluation:
        return jax.jit(lambda learner, keys: self.evaluator(learner, keys))(learner, keys)


def shard_problems(experiment: Experiment) -> list[str]:
    """Whether a shard of the replay can hold what is waited for before a batch is drawn from it."""
    shards, replay = experiment.loop.replay_shards, experiment.choices.replay
    held = replay.capacity // shards
    wanted = {"batch_size": cast(DQNConfig, experiment.choices).batch_size}
    wanted["warm_up_steps"] = experiment.loop.warm_up_steps // shards
    return [
        f"{name}: a shard waits for {count} transitions, but holds {held} of capacity={replay.capacity}; "
        f"the least is capacity={count * shards}"
        for name, count in wanted.items()
        if count > held
    ]


class Tally(NamedTuple):
    """What had been counted by a row of the log."""

    time: float
    iteration: int
    steps: int
    updates: int
    episodes: np.ndarray


class ActorsRunning(Running):
    """The learner, and the books that it keeps."""

    def __init__(self, program: ActorsProgram, keys: Key, hparams: Any):
        began = time.perf_counter()
        self.program = program
        self.agent: Any = program.agent
        self.experiment = cast(Experiment, program.experiment)
        self.unit = self.experiment.steps_per_iteration
        self.init = jax.jit(program.init)  # so that the memory that comes with a new learner is never allocated
        self.learn, self.judge = jax.jit(self.lessons), jax.jit(self.judged, donate_argnums=4)
        self.learnt = False
        self.fleet: Fleet | None = None
        self.before = 0  # steps of lost shards, and of earlier parts of the run
        self.totals: dict[int, Totals] = {}  # of each shard, since it began
        self.ended = np.zeros(3)  # episodes that lost shards had seen
        self.told: list[dict[str, float]] = []  # sums of the metrics of so many gradient steps each
        self.cause = 0  # what is wrong with what came from the actors, or was made of it, as in `Health`
        self.memory_bytes = nbytes(program.shapes(keys, hparams))
        self.compile_seconds = time.perf_counter() - began

    def begin(self, keys: Key, hparams: Any) -> tuple[ActorsState, Best]:
        return beside(self.init, keys, hparams)

    def start(self, state: ActorsState) -> Fleet:
        """Starts the processes, for the learner as it stands."""
        self.before = int(state.iteration) * self.unit
        self.updates, self.learner = int(state.updates), jax.tree.map(lambda leaf: leaf[0], state.learner)
        fleet = Fleet(self.experiment, self.updates)
        fleet.publish(self.updates, self.learner.params)
        self.pending = deque(self.request(fleet, number % len(fleet.shards)) for number in range(AHEAD))
        self.tally = self.now()
        return fleet

    @property
    def steps(self) -> int:
        return self.before + sum(total.steps for total in self.totals.values())

    @property
    def learning_steps(self) -> int:
        """Environment steps since learning began, which schedules count."""
        return max(0, self.steps - self.experiment.loop.warm_up_steps)

    @property
    def iteration(self) -> int:
        """How many iterations the actors' steps make up: what is saved, and where rows of the log lie."""
        return self.steps // self.unit

    def request(self, fleet: Fleet, shard: int) -> tuple[int, Any]:
        """Asks a shard for batches."""
        hp, batch_size = self.experiment.hparams, self.agent.config.batch_size
        if hp.importance_schedule is not None:
            exponent = value_at("importance_schedule", hp.importance_schedule, self.learning_steps)
        else:
            share = min(1.0, self.learning_steps / hp.importance_steps)
            exponent = hp.importance_start + (hp.importance_end - hp.importance_start) * share
        least = max(self.experiment.loop.warm_up_steps // len(fleet.shards), batch_size)
        return shard, fleet.shards[shard].draw.remote(least, TOGETHER, batch_size, exponent)

    def lessons(self, learner: Any, samples: Sample, key: Any, env_steps: Any) -> tuple[Any, Any, Any, Any]:
        """Gradient steps with samples `[count, batch, ...]`: the learner, priorities and metrics of each.

        At last what is wrong with them, as in `Health`; the learner's weights are then as they were before.
        """

        def update(learner: Any, own: tuple[Sample, Any]) -> tuple[Any, tuple]:
            learner, priority, metrics = self.agent.improve(learner, *own, env_steps)
            return learner, (priority, metrics)

        after, (priority, metrics) = jax.lax.scan(update, learner, (samples, jax.random.split(key, TOGETHER)))
        cause = self.program.loop.cause(after, samples.batch, metrics)
        return self.program.loop.last_well(cause == 0, after, learner), priority, metrics, cause

    def advance_to(self, state: ActorsState, stop: int) -> Chunk:
        """Learns until the actors have taken the steps of that iteration, or the caller should hear of it."""
        try:
            fleet = self.fleet = self.fleet or self.start(state)
        except BaseException as error:
            if not isinstance(error, Exception):  # a signal: Ray is half started, and must not be asked to end
                abandon()
            raise
        windows: list[Window] = []
        log, total, began = self.program.schedule.log, self.program.schedule.total, time.monotonic()
        while self.iteration < stop and not self.cause and time.monotonic() - began < PATIENCE:
            fleet.look_after()
            shard, future = self.pending[0]
            if not fleet.ready(future):
                continue
            self.pending.popleft()
            self.pending.append(self.request(fleet, shard))
            drawn, totals = fleet.ray.get(future)
            self.count(shard, totals)
            if totals.cause:
                self.cause = totals.cause
                break
            if drawn is None:
                time.sleep(0.02)
                continue
            key = streams.ITERATIONS.key(state.key[0], self.updates // TOGETHER)
            samples = Sample(jax.tree.map(jnp.asarray, drawn.batch), jnp.asarray(drawn.weight), ())
            lesson = (self.learner, samples, key, np.float32(self.learning_steps))
            # The first time it is compiled.
            self.learner, priority, told, cause = self.learn(*lesson) if self.learnt else beside(self.learn, *lesson)
            self.learnt = True
            self.cause = int(cause)
            if self.cause:
                break
            self.told.append(jax.tree.map(np.sum, fetch(told)))
            self.updates += TOGETHER
            fleet.shards[shard].reprioritize.remote(drawn.handle, np.asarray(priority))
            fleet.publish(self.updates, self.learner.params)
            if self.iteration // log > self.tally.iteration // log:
                windows.append(self.window(fleet))
        reached = self.iteration
        if reached >= total and reached > self.tally.iteration:
            windows.append(self.window(fleet))
        learner = jax.tree.map(lambda leaf: leaf[None], self.learner)
        counted: dict[str, Any] = {"iteration": jnp.int32(reached), "updates": jnp.int32(self.updates)}
        if self.cause:
            counted["health"] = Health(jnp.full(1, self.cause, jnp.int32), jnp.full(1, max(reached - 1, 0), jnp.int32))
        return Chunk(state._replace(learner=learner, **counted), windows, reached)

    def judged(
        self, learner: Any, keys: Key, updates: Any, best: Best, playing: Playing, first: Any, stop: Any
    ) -> tuple[Playing, Best]:
        keys = streams.evaluation_keys(keys, updates)
        return self.program.evaluator.part(learner, keys, best, playing, first, stop)

    def evaluate(
        self, state: ActorsState, best: Best, between: Callable[[], None] = nothing
    ) -> tuple[Evaluation, Best]:
        evaluator = self.program.evaluator

        def part(playing: Playing, first: Any, stop: Any) -> tuple[Playing, Best]:
            arguments = (state.learner, state.key, state.updates, best, playing, first, stop)
            return self.judge(*arguments) if first else beside(self.judge, *arguments)

        begun = blank(jax.eval_shape(evaluator.begin, state.key))
        return in_parts(part, begun, evaluator.max_episode_steps, between)

    def count(self, shard: int, totals: Totals) -> None:
        """Takes down what a shard has seen; one that was lost has begun again from nothing."""
        last = self.totals.get(shard, totals)
        if totals.steps < last.steps:
            warn("a shard of the replay was lost; it fills anew")
            self.before, self.ended = self.before + last.steps, self.ended + np.array(last.episodes)
        self.totals[shard] = totals

    def now(self) -> Tally:
        episodes = self.ended + np.sum([total.episodes for total in self.totals.values()] or [np.zeros(3)], axis=0)
        return Tally(time.perf_counter(), self.iteration, self.steps, self.updates, episodes)

    def window(self, fleet: Fleet) -> Window:
        """What happened since the last one, and how far the actors are behind."""
        before, now, batch = self.tally, self.now(), self.agent.config.batch_size
        seconds, steps, updates = now.time - before.time, now.steps - before.steps, now.updates - before.updates
        newest = max((total.version for total in self.totals.values()), default=0)
        remarks = {
            "updates": now.updates,
            "updates_per_second": round(updates / seconds),
            "replay_ratio": round(updates * batch / steps, 3) if steps else None,
            "policy_lag": now.updates - newest,
            "lost": fleet.lost,
        }
        epsilon = mean_epsilon(self.experiment.loop.actors)
        count = len(self.told) * TOGETHER
        metrics = {name: sum(told.get(name, 0.0) for told in self.told) for name in self.agent.metric_names}
        metrics |= {"epsilon": epsilon * count}
        sums = [*(now.episodes - before.episodes), count, *metrics.values()]
        self.told, self.tally = [], now
        return Window(now.iteration, now.iteration * self.unit, np.array([sums]), remarks)

    def close(self) -> None:
        if self.fleet is not None:
            self.fleet.close()
