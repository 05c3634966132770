"""A population's training run with environments outside JAX: they are stepped while the agent learns.

An iteration collects a rollout and absorbs one: it is remembered and learnt from.  With `overlap` that is the rollout
of the iteration before, in small parts that are sent to the device while the environments compute their next step; who
acts is then always one rollout behind.  Without it, it is the rollout just collected, as in `Loop.iteration`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, Learner
from rollax.envs.host import HostStep, HostTask, Stepper
from rollax.envs.protocol import Envs
from rollax.errors import EnvError
from rollax.programs.evaluate import Best, Evaluation, keep_best
from rollax.programs.far_memory import far_pieces
from rollax.programs.host_pieces import HostLoop, Pieces, Raw, Shown, near_pieces, shown_shapes, slim
from rollax.programs.loop import TrainState
from rollax.programs.program import LOG_ROWS, NONE, Program, Programs, evaluation_keys, nbytes
from rollax.types import Array, Key, Observation

START_STREAM = 2**30  # beside the keys of iterations and evaluations: seeds of environments


@dataclass(frozen=True)
class HostEvaluator:
    """Greedy episodes outside JAX, each environment counted once: `Evaluator`'s counterpart."""

    agent: Agent
    task: HostTask
    episodes: int
    max_episode_steps: int

    @functools.cached_property
    def act(self) -> Callable:
        """One decision of all members, compiled once."""
        loop = HostLoop(self.agent, self.task, self.episodes, 1)

        def decide(learner: Learner, obs: Observation, after: Shown, key: Key, step: Array) -> tuple:
            return loop.act(learner, obs, after, jax.random.fold_in(key, step), explore=False)[:2]

        return jax.jit(jax.vmap(decide, in_axes=(0, 0, 0, 0, None)))

    def stepper(self, members: int) -> Stepper:
        """Environments for evaluations of so many members, which serve one after the other."""
        return self.task.stepper(members * self.episodes)

    def play(self, learner: Learner, keys: Key, stepper: Stepper) -> Evaluation:
        """Evaluates a population: every leaf of the learner and the keys lead with the members."""
        shape = (len(keys), self.episodes)
        split = jax.vmap(lambda key: jax.random.split(key, 2))(keys)
        obs = jax.vmap(lambda _: self.task.blank_envs(self.episodes).obs)(jnp.arange(len(keys)))
        after = start(stepper, split[:, 0], shape)
        returns, lengths = np.zeros(shape), np.zeros(shape, np.int32)
        running, cut = np.ones(shape, bool), np.ones(shape, bool)
        for step in range(self.max_episode_steps):
            obs, action = self.act(learner, obs, after, split[:, 1], np.uint32(step))
            stepper.submit(np.asarray(action).reshape(-1))
            done = stepper.result()
            ended, truncated, reward = (x.reshape(shape) for x in (done.ended, done.truncated, done.reward))
            returns += np.where(running, reward, 0.0)
            lengths += running
            cut = np.where(running & ended, truncated & ~done.terminated.reshape(shape), cut)
            running = running & ~ended
            if not running.any():
                break
            after = Shown(_members(done.shown, shape), ended)
        return Evaluation(jnp.asarray(returns, jnp.float32), jnp.asarray(lengths), jnp.asarray(cut))


@dataclass(frozen=True)
class HostProgram(Program):
    """The programs of a run whose environments are outside JAX."""

    loop: HostLoop
    evaluator: HostEvaluator
    overlap: bool = True  # Learn from a rollout while the next is collected.
    memory_device: Any = None  # Where the memory is, if it is not where the learner is.

    def compile(self, keys: Key, hparams: Any) -> Programs:
        """The pieces, compiled side by side; environments are started by the first call of `warm_up` or `advance`."""
        began = time.perf_counter()
        state, best = self.shapes(keys, hparams)
        if self.memory_device is None:
            pieces, temporary = near_pieces(self.loop, state)
        else:
            pieces, temporary = far_pieces(self.loop, state, self.memory_device)
        run = HostRun(self.loop, self.evaluator, pieces, len(keys), self.overlap)
        return Programs(
            init=self.compile_init(keys, hparams),
            warm_up=functools.partial(run.repeat, learn=False),
            advance=functools.partial(run.repeat, learn=True),
            evaluate=run.evaluate,
            compile_seconds=time.perf_counter() - began,
            memory_bytes=nbytes((state, best)) + temporary,
            close=run.close,
        )

    def compile_init(self, keys: Key, hparams: Any) -> Callable[[Key, Any], tuple[TrainState, Best]]:
        options = NONE if jax.default_backend() == "cpu" else None
        if self.memory_device is None:
            return jax.jit(self.init).lower(keys, hparams).compile(options)

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


class Absorption:
    """A rollout, if there is one, that is being remembered and learnt from, part by part."""

    def __init__(self, pieces: Pieces, parts: int, state: TrainState, raw: Raw | None, key: Key, learn: bool):
        self.pieces, self.state, self.raw = pieces, state, raw
        self.memory = state.memory
        self.parts = parts if learn and raw is not None else 0
        self.key, self.done = key, -1

    def advance(self, share: float) -> None:
        """Sends to the device what is missing of that share of the work."""
        if self.done < 0:
            self.begin()
        while self.done < int(self.parts * share):
            self.student, self.memory, self.sums = self.pieces.part(
                self.student, self.memory, self.lessons, self.sums, np.int32(self.done)
            )
            self.done += 1

    def begin(self) -> None:
        self.done = 0
        if self.raw is not None and jax.tree.leaves(self.memory):
            self.memory = self.pieces.remember(self.memory, self.raw)
        if self.parts:
            self.student, self.memory, self.lessons, self.sums = self.pieces.begin(
                self.state.learner, self.memory, self.raw, self.key
            )

    def finish(self, episodes: np.ndarray) -> TrainState:
        """The state after all of it, with the sums over an iteration's episodes."""
        self.advance(1.0)
        if self.raw is None:
            return self.pieces.waited(slim(self.state), episodes)._replace(memory=self.memory)
        if not self.parts:
            return self.pieces.warmed(slim(self.state), self.raw, episodes)._replace(memory=self.memory)
        new, memory = self.pieces.learnt(
            slim(self.state), self.student, self.memory, self.lessons, self.sums, self.raw, episodes
        )
        return new._replace(memory=memory)


class HostRun:
    """A run in progress: environments, what they show, and the rollout that has not been absorbed yet."""

    def __init__(self, loop: HostLoop, evaluator: HostEvaluator, pieces: Pieces, members: int, overlap: bool):
        self.loop, self.evaluator, self.pieces, self.overlap = loop, evaluator, pieces, overlap
        self.shape = (members, loop.num_envs)
        self.observe = jax.jit(jax.vmap(loop.task.observe))
        self.stepper: Stepper | None = None
        self.evaluation_stepper: Stepper | None = None  # kept from one evaluation to the next: making it takes long
        self.pending: Raw | None = None

    def begin(self, state: TrainState) -> TrainState:
        """Starts the environments: all in new episodes, also where the run goes on."""
        self.stepper = self.loop.task.stepper(int(np.prod(self.shape)))
        iteration = jnp.uint32(START_STREAM) + state.iteration.astype(jnp.uint32)
        seeds = jax.vmap(lambda key: jax.random.fold_in(key, iteration))(state.key)
        self.after = start(self.stepper, seeds, self.shape)
        self.obs = state.envs.obs
        self.returns, self.lengths = np.zeros(self.shape, np.float32), np.zeros(self.shape, np.int32)
        self.no_cut = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.cut_shapes())  # on the device for good
        if int(state.iteration) > 0:
            state = state._replace(memory=self.pieces.interrupt(state.memory, state.envs.obs))
        return state

    def close(self) -> None:
        for stepper in (self.stepper, self.evaluation_stepper):
            if stepper is not None:
                stepper.close()

    def evaluate(self, learner: Learner, keys: Key, iteration: Array, best: Best) -> tuple[Evaluation, Best]:
        """As `JaxProgram.evaluate`."""
        if self.evaluation_stepper is None:
            self.evaluation_stepper = self.evaluator.stepper(len(keys))
        result = self.evaluator.play(learner, evaluation_keys(keys, iteration), self.evaluation_stepper)
        return result, jax.jit(keep_best)(best, learner, result)

    def cut_shapes(self) -> Any:
        members, envs = self.shape
        steps = () if self.loop.one_cut else (self.loop.rollout_length,)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((members, *steps, envs, *x.shape), x.dtype), shown_shapes(self.loop.task)
        )

    def repeat(self, state: TrainState, stop: Array, log_iterations: Array, *, learn: bool) -> tuple[TrainState, Array]:
        """As `JaxProgram.repeat`: runs until that iteration; returns the state and the log windows that ended."""
        if self.stepper is None:
            state = self.begin(state)
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
        obs = self.observe(self.obs, *self.after) if self.pending is None else self.pending.obs[0]
        envs = Envs((), obs, jnp.asarray(self.returns), jnp.asarray(self.lengths))
        return state._replace(envs=envs), jnp.asarray(rows)

    def iterate(self, state: TrainState, *, learn: bool) -> TrainState:
        act_keys, learn_key = self.pieces.keys(slim(state))
        if self.overlap:
            work = Absorption(self.pieces, self.loop.parts, state, self.pending, learn_key, learn)
            self.pending, episodes = self.collect(state.learner, act_keys, work)
        else:
            raw, episodes = self.collect(state.learner, act_keys, None)
            work = Absorption(self.pieces, self.loop.parts, state, raw, learn_key, learn)
        return work.finish(episodes)

    def collect(self, learner: Learner, keys: tuple[Key, ...], work: Absorption | None) -> tuple[Raw, np.ndarray]:
        """A rollout, and `[members, 3]` sums over the episodes that ended in it; `work` goes on meanwhile."""
        assert self.stepper is not None
        length = self.loop.rollout_length
        seen, actions, noted, steps = [], [], [], []
        cut, sums = self.no_cut, np.zeros((self.shape[0], 3), np.float32)
        for step in range(length):
            self.obs, action, extras = self.pieces.act(learner, self.obs, self.after, keys[step])
            self.stepper.submit(np.asarray(action).reshape(-1))
            # What follows is done while the environments are stepped.
            seen.append(self.obs), actions.append(action), noted.append(extras)
            if work is not None:
                work.advance((step + 1) / length)
            if steps:
                cut = self.note(steps[-1], len(steps) - 1, sums, cut)
            result = self.stepper.result()
            self.after = Shown(_members(result.shown, self.shape), result.ended.reshape(self.shape))
            steps.append(result)
        cut = self.note(steps[-1], length - 1, sums, cut)
        reward, terminated, truncated = (
            np.stack([getattr(result, name).reshape(self.shape) for result in steps], axis=1)
            for name in ("reward", "terminated", "truncated")
        )
        reward = self.loop.task.lesson_reward(reward)
        return Raw(tuple(seen), tuple(actions), tuple(noted), reward, terminated, truncated, self.after, cut), sums

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

        return jax.tree.map(put, cut, _members(step.last, self.shape))


def start(stepper: Stepper, keys: Key, shape: tuple[int, int]) -> Shown:
    """Starts all environments with seeds of their own."""
    bits = jax.vmap(lambda key: jax.random.bits(key, (shape[1],)))(keys)
    seeds = (np.asarray(bits).reshape(-1) >> 1).astype(np.int32)  # not negative
    return Shown(_members(stepper.reset(seeds), shape), np.ones(shape, bool))


def _members(tree: Any, shape: tuple[int, int]) -> Any:
    """Arrays `[N, ...]` as `[members, B, ...]`."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), tree)
