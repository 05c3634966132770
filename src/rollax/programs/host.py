"""A population's training run with environments outside JAX: they are stepped while the agent learns.

An iteration collects a rollout and absorbs one: it is remembered and learnt from.  With `overlap` that is the rollout
of the iteration before, in small parts that are sent to the device while the environments compute their next step; who
acts is then always one rollout behind.  Without it, it is the rollout just collected, as in `Loop.iteration`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, Learner
from rollax.envs.host import HostStep, Stepper
from rollax.envs.protocol import Envs
from rollax.errors import EnvError
from rollax.experiment.experiment import Experiment
from rollax.programs.absorption import Absorption
from rollax.programs.background import beside
from rollax.programs.compiling import NONE, compiler_options
from rollax.programs.evaluate import Best, Evaluation, keep_best, nothing
from rollax.programs.host_evaluate import HostEvaluator
from rollax.programs.host_loop import (
    HostLoop,
    HostRollout,
    TimeStep,
    by_member,
    for_all,
    shown_shapes,
    start,
    time_step_after,
)
from rollax.programs.host_pieces import Pieces, make_pieces, predicted_bytes, slim
from rollax.programs.loop import TrainState
from rollax.programs.program import (
    LOG_ROWS,
    Chunk,
    Program,
    Running,
    Schedule,
    advance_in_chunks,
    nbytes,
)
from rollax.programs.streams import STARTS, evaluation_keys
from rollax.types import Array, Key, Observation


@dataclass(frozen=True)
class HostProgram(Program):
    """A run whose environments are outside JAX."""

    first_chunk: ClassVar[int] = 1
    searchable: ClassVar[bool] = False
    opening: ClassVar[str] = "Starting the environments"
    waits_for_others: ClassVar[bool] = True
    one_device: ClassVar[str] = "environments outside JAX are stepped for one device"
    columns: ClassVar[tuple[str, ...]] = ("discarded_episodes",)

    loop: HostLoop
    evaluator: HostEvaluator
    overlap: bool = True  # Learn from a rollout while the next is collected.
    memory_device: Any = None  # Where the memory is, if it is not where the learner is.

    @classmethod
    def problems(cls, experiment: Experiment) -> list[str]:
        if experiment.loop.replay_on == "device" or experiment.choices.replay is not None:
            return []
        return [f"replay_on=host: {experiment.agent} has no replay; leave it out"]

    @classmethod
    def make(cls, experiment: Experiment, agent: Agent, task: Any, block: int, schedule: Schedule) -> HostProgram:
        loop, record = experiment.loop, experiment.record
        apart = loop.replay_on == "host" and jax.default_backend() != "cpu"
        return cls(
            HostLoop(agent, task, loop.num_envs, loop.rollout_length, far=apart),
            HostEvaluator(agent, task, record.eval_episodes, record.max_episode_steps),
            schedule=schedule,
            overlap=loop.overlap,
            memory_device=jax.devices("cpu")[0] if apart else None,
        )

    def remarks(self, members: int, resumed: bool) -> list[str]:
        how = "stepped while the agent learns" if self.overlap else "stepped, then learnt from"
        lines = [f"{members * self.loop.num_envs} environments outside JAX, {how}"]
        if resumed:
            lines.append("Learner and memory go on exactly as they were; the environments begin new episodes.")
        return lines

    def far_bytes(self, shapes: tuple[TrainState, Best]) -> int:
        return 0 if self.memory_device is None else nbytes(shapes[0].memory)

    def temporary_bytes(self, keys: Key, hparams: Any) -> dict[str, int]:
        return {"advance": predicted_bytes(self.loop, self.shapes(keys, hparams)[0], self.memory_device)}

    def compile(self, keys: Key, hparams: Any) -> HostRunning:
        """The pieces, compiled side by side; the environments are started when the run is first advanced."""
        began = time.perf_counter()
        state, best = self.shapes(keys, hparams)
        pieces, temporary = make_pieces(self.loop, state, self.memory_device)
        run = HostRunning(self, pieces, len(keys), self.compile_init(keys, hparams))
        run.compile_seconds = time.perf_counter() - began
        run.memory_bytes = nbytes((state, best)) + temporary
        return run

    def compile_init(self, keys: Key, hparams: Any) -> Callable[[Key, Any], tuple[TrainState, Best]]:
        options = compiler_options(NONE)
        if self.memory_device is None:
            return beside(jax.jit(self.init).lower(keys, hparams).compile, options)

        def without_memory(keys: Key, hparams: Any) -> tuple[TrainState, Best]:
            state, best = self.init(keys, hparams)
            return state._replace(memory=()), best

        slight = jax.jit(without_memory).lower(keys, hparams).compile(options)
        place = jax.sharding.SingleDeviceSharding(self.memory_device)
        memory = jax.jit(lambda keys, hparams: self.init(keys, hparams)[0].memory, out_shardings=place)

        def begin(keys: Key, hparams: Any) -> tuple[TrainState, Best]:
            state, best = slight(keys, hparams)
            there = jax.device_put((keys, hparams), self.memory_device)
            return state._replace(memory=memory(*there)), best

        return begin

    def restoring(self) -> Any:
        """While a state is read back it must not fill the learner's device with what belongs elsewhere."""
        return nullcontext() if self.memory_device is None else jax.default_device(self.memory_device)

    def placed(self, state: TrainState, best: Best) -> tuple[TrainState, Best]:
        if self.memory_device is None:
            return state, best
        memory = jax.device_put(state.memory, self.memory_device)
        rest, best = jax.device_put((state._replace(memory=()), best), jax.devices()[0])
        return rest._replace(memory=memory), best

    def play(self, learner: Learner, keys: Key) -> Evaluation:
        with closing(self.evaluator.stepper(len(keys))) as stepper:
            return self.evaluator.play(learner, keys, stepper)


class HostRunning(Running):
    """A run in progress: environments, what they show, and the rollout that has not been absorbed yet."""

    def __init__(self, program: HostProgram, pieces: Pieces, members: int, init: Callable):
        self.program, self.loop, self.pieces, self.init = program, program.loop, pieces, init
        self.shape = (members, self.loop.num_envs)
        self.observe = jax.jit(jax.vmap(self.loop.task.observe))
        self.stepper: Stepper | None = None
        self.evaluation_stepper: Stepper | None = None  # kept from one evaluation to the next: making it takes long
        self.pending: HostRollout | None = None
        self.gap: Observation | None = None  # what led to a rollout that was begun anew
        self.discarded = 0  # episodes of environments that broke

    def begin(self, keys: Key, hparams: Any) -> tuple[TrainState, Best]:
        return self.init(keys, hparams)

    def advance_to(self, state: TrainState, stop: int) -> Chunk:
        unit = self.loop.num_envs * self.loop.rollout_length
        chunk = advance_in_chunks(self.repeat, state, stop, self.program.schedule, unit)
        remarks = {"discarded_episodes": self.discarded}
        return chunk._replace(windows=[window._replace(remarks=remarks) for window in chunk.windows])

    def start(self, state: TrainState) -> TrainState:
        """Starts the environments: all in new episodes, also where the run goes on."""
        self.stepper = self.loop.task.stepper(int(np.prod(self.shape)))
        seeds = jax.vmap(lambda key: STARTS.key(key, state.iteration))(state.key)
        self.after = start(self.stepper, seeds, self.shape)
        self.obs, self.carry = state.envs.obs, state.envs.carry
        self.returns, self.lengths = np.zeros(self.shape, np.float32), np.zeros(self.shape, np.int32)
        self.no_cut = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.cut_shapes())  # on the device for good
        if int(state.iteration) > 0:
            state = state._replace(memory=self.pieces.interrupt(state.memory, state.envs.obs))
        return state

    def close(self) -> None:
        for stepper in (self.stepper, self.evaluation_stepper):
            if stepper is not None:
                stepper.close()

    def evaluate(self, state: TrainState, best: Best, between: Callable[[], None] = nothing) -> tuple[Evaluation, Best]:
        evaluator, keys = self.program.evaluator, evaluation_keys(state.key, state.iteration)
        if self.evaluation_stepper is None:
            self.evaluation_stepper = evaluator.stepper(len(keys))
        result = evaluator.play(state.learner, keys, self.evaluation_stepper, between)
        return result, jax.jit(keep_best)(best, state.learner, result)

    def cut_shapes(self) -> Any:
        members, envs = self.shape
        steps = () if self.loop.one_cut else (self.loop.rollout_length,)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((members, *steps, envs, *x.shape), x.dtype), shown_shapes(self.loop.task)
        )

    def repeat(self, state: TrainState, stop: Array, log_iterations: Array, *, learn: bool) -> tuple[TrainState, Array]:
        """As `JitProgram.repeat`: runs until that iteration; returns the state and the log windows that ended."""
        if self.stepper is None:
            state = self.start(state)
        first, last, log = int(state.iteration), int(stop), int(log_iterations)
        rows = np.zeros((self.shape[0], LOG_ROWS, state.window.shape[1]), np.float32)
        for iteration in range(first, last):
            state = self.iterate(state, learn=learn)
            ended = (iteration + 1) % log == 0
            if ended or iteration + 1 == last:
                rows[:, iteration // log - first // log] = np.asarray(state.window)
            if ended:
                state = state._replace(window=jnp.zeros_like(state.window))
        # What the last remembered row led to.
        if self.pending is None:
            obs = self.observe(self.obs, self.after.shown, self.after.ended)
        else:
            obs = self.pending.obs[0]
        sums = jnp.asarray(self.returns), jnp.asarray(self.lengths)
        envs = Envs((), obs, self.carry, *sums)
        return state._replace(envs=envs), jnp.asarray(rows)

    def iterate(self, state: TrainState, *, learn: bool) -> TrainState:
        act_keys, learn_key = self.pieces.keys(slim(state))
        if self.program.overlap:
            before = self.pending
            work = Absorption(self.pieces, self.loop.parts, state, before, learn_key, learn)
            self.pending, episodes = self.collect(state.learner, act_keys, work)
            state = work.finish(episodes)
            return state if before is None else self.interrupted(state)
        raw, episodes = self.collect(state.learner, act_keys, None)
        state = self.interrupted(state)
        return Absorption(self.pieces, self.loop.parts, state, raw, learn_key, learn).finish(episodes)

    def interrupted(self, state: TrainState) -> TrainState:
        """The state whose memory knows, if the last rollout was begun anew, that it does not follow on the one before.

        What had been begun is left out for all environments: no step is made up for the one that broke.
        """
        if self.gap is None or not int(state.iteration):
            return state
        return state._replace(memory=self.pieces.interrupt(state.memory, self.gap))

    def collect(
        self, learner: Learner, keys: tuple[Key, ...], work: Absorption | None
    ) -> tuple[HostRollout, np.ndarray]:
        """A rollout, and `[members, 3]` sums over the episodes that ended in it; `work` goes on meanwhile."""
        assert self.stepper is not None
        length = self.loop.rollout_length
        seen, decisions, carries, fresh, steps = [], [], [], [], []
        cut, sums, self.gap = self.no_cut, np.zeros((self.shape[0], 3), np.float32), None
        while len(steps) < length:
            step = len(steps)
            self.obs, decision = self.pieces.act(learner, self.carry, self.obs, self.after, keys[step])
            self.stepper.submit(for_all(decision.action))
            # What follows is done while the environments are stepped.
            seen.append(self.obs), decisions.append(decision), carries.append(self.carry)
            fresh.append(self.after.fresh)
            self.carry = decision.carry
            if work is not None:
                work.advance((step + 1) / length)
            if steps:
                cut = self.note(steps[-1], len(steps) - 1, sums, cut)
            result = self.stepper.result()
            self.after = time_step_after(result, self.shape)
            steps.append(result)
            if result.lost is not None:
                self.note(result, 0, sums, self.no_cut)
                self.discard(result.lost)
                if self.gap is None:
                    self.gap = seen[0]
                else:
                    self.begin_anew()
                cut = self.no_cut
                for begun in (seen, decisions, carries, fresh, steps):
                    begun.clear()
        cut = self.note(steps[-1], length - 1, sums, cut)
        reward, terminated, truncated = (
            np.stack([getattr(result, name).reshape(self.shape) for result in steps], axis=1)
            for name in ("reward", "terminated", "truncated")
        )
        reward = self.loop.task.lesson_reward(reward)
        each, flags = map(tuple, (seen, decisions, carries)), (reward, terminated, truncated)
        return HostRollout(*each, np.stack(fresh, axis=1), *flags, self.after, cut), sums

    def discard(self, lost: np.ndarray) -> None:
        """Forgets the episodes of environments that broke, and counts them."""
        own = lost.reshape(self.shape)
        self.returns[own], self.lengths[own] = 0, 0
        self.discarded += int(own.sum())

    def begin_anew(self) -> None:
        """New episodes everywhere, for a rollout that broke twice.

        The interruption of a ring is as long as a rollout.  Where more than that is left out, time limits would lie
        closer together in it than the environment promises.
        """
        assert self.stepper is not None
        self.discard(np.ones(self.shape, bool))
        seeds = np.random.default_rng().integers(0, 2**31, int(np.prod(self.shape)), dtype=np.int32)
        shown = by_member(self.stepper.reset(seeds), self.shape)
        self.after = TimeStep(shown, np.ones(self.shape, bool), np.ones(self.shape, bool))

    def check_promise(self, length: int) -> None:
        """Raises EnvError for an episode that was cut sooner than the environment promises: a replay relies on it."""
        task = self.loop.task
        if length < task.truncation_interval:
            raise EnvError(
                f"{task.name} cut an episode after {length} steps, but promises {task.truncation_interval}; "
                f"say so with --least-time {length}, or 1 to promise nothing"
            )

    def note(self, step: HostStep, number: int, sums: np.ndarray, cut: Any) -> Any:
        """Adds a step to its episodes' sums; returns what truncated episodes showed last, with those of this step."""
        reward, truncated, ended = (x.reshape(self.shape) for x in (step.reward, step.truncated, step.ended))
        self.returns += reward
        self.lengths += 1
        if not ended.any():
            return cut
        sums += np.stack([np.sum(np.where(ended, x, 0), axis=1) for x in (1, self.returns, self.lengths)], axis=1)
        lengths = self.lengths.copy()
        self.returns[ended], self.lengths[ended] = 0, 0
        if not truncated.any():
            return cut
        self.check_promise(int(lengths[truncated].min()))

        def put(store: Any, last: np.ndarray) -> np.ndarray:
            store = np.array(store)
            place = store if self.loop.one_cut else store[:, number]
            place[truncated] = last[truncated]
            return store

        return jax.tree.map(put, cut, by_member(step.last, self.shape))
