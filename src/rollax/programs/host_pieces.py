"""The pieces of an iteration with environments outside JAX: pure functions of one member, compiled for all of them.

The memory may lie elsewhere than the learner, as in the machine's own memory beside a GPU.  What an iteration learns
from is then drawn before its first gradient step, and priorities are told after its last: see `FarReplay`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, Learner, Lessons, Memory, Progress, Stepwise, own_axes
from rollax.agents.dqn import DQN
from rollax.envs.host import HostTask
from rollax.memory.rows import expand
from rollax.programs.far_replay import FarReplay
from rollax.programs.loop import Loop, TrainState
from rollax.programs.program import LIGHT, nbytes, population_axes, without_garbage_collection
from rollax.types import Array, Carry, Decision, Key, Metrics, Observation, Transition


class Shown(NamedTuple):
    """What all environments of all members show: arrays `[members, B, ...]`."""

    shown: Any
    ended: Any  # whether an episode has just ended, so that this is the next one's
    fresh: Any  # the same as the learner is told, to whom an episode may end sooner


class Raw(NamedTuple):
    """A rollout as it was collected: observations and decisions on the device, one by one, the rest from the host."""

    obs: tuple[Observation, ...]  # T of [members, B, ...]
    decisions: tuple[Decision, ...]
    carry: tuple[Carry, ...]  # before each step
    fresh: Any  # [members, T, B], as are rewards and flags
    reward: Any
    terminated: Any
    truncated: Any
    after: Shown  # what followed the last step
    cut: Any  # what truncated episodes showed last: [members, B, ...], or of each step [members, T, B, ...]


@dataclass(frozen=True)
class InOnePart(Stepwise):
    """An agent whose iteration of learning is one step: as it is for those that are not `Stepwise`."""

    agent: Agent

    @property
    def updates(self) -> int:
        return 1

    def init(self, key: Key, hparams: Any) -> tuple[Learner, Memory]:
        return self.agent.init(key, hparams)

    def act(
        self, learner: Learner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        return self.agent.act(learner, carry, obs, fresh, key, explore=explore)

    def begin(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Progress, Lessons]:
        return (learner, memory), Lessons(rollout, key[None])

    def step(self, progress: Progress, shared: Transition, own: Key) -> tuple[Progress, Metrics]:
        learner, memory, metrics = self.agent.learn(*progress, shared, own)
        return (learner, memory), metrics

    def conclude(self, progress: Progress, lessons: Lessons, metrics: Metrics) -> tuple[Learner, Memory, Metrics]:
        return *progress, metrics


@dataclass(frozen=True)
class HostLoop(Loop):
    """The pure pieces of an iteration, each of one member."""

    far: bool = False  # the memory is elsewhere

    @functools.cached_property
    def student(self) -> Stepwise:
        """Who learns, part by part: from a memory, or from what was drawn of one that is elsewhere."""
        if self.far:
            return FarReplay(cast(DQN, self.agent))
        return self.agent if isinstance(self.agent, Stepwise) else InOnePart(self.agent)

    @property
    def parts(self) -> int:
        """In how many equal parts an iteration's learning is sent to the device: at most one for each step."""
        updates = self.student.updates
        return max(count for count in range(1, self.rollout_length + 1) if updates % count == 0)

    @property
    def one_cut(self) -> bool:
        """Whether no environment can run out of time twice in a rollout."""
        return self.task.truncation_interval >= self.rollout_length

    def act(
        self, learner: Learner, carry: Carry, before: Observation, after: Shown, key: Key, *, explore: bool
    ) -> tuple[Observation, Decision]:
        obs = self.task.observe(before, after.shown, after.ended)
        return obs, self.agent.act(learner, carry, obs, after.fresh, key, explore=explore)

    def transitions(self, raw: Raw) -> Transition:
        """The rollout `[T, B, ...]` of a member."""
        obs, decision, carry = (
            jax.tree.map(lambda *steps: jnp.stack(steps), *steps) for steps in (raw.obs, raw.decisions, raw.carry)
        )
        last = self.task.observe(raw.obs[-1], raw.after.shown, raw.after.ended)
        next_obs = jax.tree.map(lambda seen, end: jnp.concatenate([seen[1:], end[None]]), obs, last)
        if self.one_cut:
            when = jnp.argmax(raw.truncated, axis=0), jnp.arange(self.num_envs)
            cut_from = jax.tree.map(lambda x: x[when], obs)
            cut = jax.tree.map(lambda x: x[None], self.task.observe(cut_from, raw.cut, jnp.zeros(self.num_envs, bool)))
        else:
            cut = self.task.observe(obs, raw.cut, jnp.zeros(raw.truncated.shape, bool))
        next_obs = jax.tree.map(lambda end, seen: jnp.where(expand(raw.truncated, seen), end, seen), cut, next_obs)
        return Transition(
            obs,
            decision.action,
            raw.reward,
            raw.terminated,
            raw.truncated,
            next_obs,
            decision.notes,
            raw.fresh,
            carry,
        )

    def remember(self, memory: Memory, raw: Raw) -> Memory:
        return self.agent.remember(memory, self.transitions(raw))

    def begin(self, learner: Learner, memory: Memory, raw: Raw, key: Key) -> tuple[Any, Memory, Any, Metrics]:
        """What learns, the memory, the lessons, and the sums of no metrics yet."""
        (learning, memory), lessons = self.student.begin(learner, memory, self.transitions(raw), key)
        first = jax.tree.map(lambda x: x[0], lessons.each)
        shapes = jax.eval_shape(lambda: self.student.step((learning, memory), lessons.shared, first)[1])
        return learning, memory, lessons, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def part(
        self, learning: Any, memory: Memory, lessons: Lessons, sums: Metrics, number: Array
    ) -> tuple[Any, Memory, Metrics]:
        """One part of the learning."""
        count = self.student.updates // self.parts
        own = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, number * count, count), lessons.each)
        (learning, memory), metrics = jax.lax.scan(
            lambda progress, own: self.student.step(progress, lessons.shared, own), (learning, memory), own
        )
        return learning, memory, jax.tree.map(lambda total, new: total + jnp.sum(new), sums, metrics)

    def learnt(
        self, state: TrainState, learning: Any, memory: Memory, lessons: Any, sums: Metrics, raw: Raw, episodes: Array
    ) -> tuple[TrainState, Memory]:
        """The state after all parts, and the memory, or what one that is elsewhere must be told."""
        means = jax.tree.map(lambda total: total / self.student.updates, sums)
        learner, memory, metrics = self.student.conclude((learning, memory), lessons, means)
        return self.conclude(state, learner, self.transitions(raw), metrics, tuple(episodes), learn=True), memory

    def warmed(self, state: TrainState, raw: Raw, episodes: Array) -> TrainState:
        """The state after an iteration that has remembered a rollout and not learnt."""
        rollout, metrics = self.transitions(raw), self.no_metrics()
        return self.conclude(state, state.learner, rollout, metrics, tuple(episodes), learn=False)

    def waited(self, state: TrainState, episodes: Array) -> TrainState:
        """The state after an iteration that has only collected."""
        numbers = jnp.concatenate([episodes, jnp.zeros(state.window.shape[-1] - len(episodes))])
        return state._replace(iteration=state.iteration + 1, window=state.window + numbers)


class Pieces(NamedTuple):
    """The pieces of an iteration, for all members.  Memory is given up to those that return it; nothing else is."""

    keys: Callable  # (slim state) -> a key for each step's actions, one to learn with
    act: Callable  # (learner, carry, observations before, Shown, key) -> observations, Decision
    remember: Callable  # (memory, raw) -> memory
    begin: Callable  # (learner, memory, raw, key) -> who learns, memory, lessons, sums of metrics
    part: Callable  # (who learns, memory, lessons, sums, number) -> who learns, memory, sums
    learnt: Callable  # (slim state, who learns, memory, lessons, sums, raw, episodes) -> slim state, memory
    warmed: Callable  # (slim state, raw, episodes) -> slim state: nothing was learnt
    waited: Callable  # (slim state, episodes) -> slim state: nor was there a rollout
    interrupt: Callable  # (memory, observations) -> memory


class Shapes(NamedTuple):
    """What goes into the pieces, as shapes; all but `number` lead with the members."""

    slim: TrainState
    learner: Learner
    memory: Memory
    obs: Observation
    carry: Carry
    after: Shown
    raw: Raw
    key: Any
    number: Any
    episodes: Any


def shapes_of(loop: HostLoop, state: TrainState) -> Shapes:
    members, length, envs = state.window.shape[0], loop.rollout_length, loop.num_envs

    def struct(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((members, *shape), dtype)

    shown = jax.tree.map(lambda x: struct((envs, *x.shape), x.dtype), shown_shapes(loop.task))
    flag, key, carry = struct((envs,), np.bool_), struct((), state.key.dtype), state.envs.carry
    after = Shown(shown, flag, flag)
    act = jax.vmap(functools.partial(loop.act, explore=True))
    obs, decision = jax.eval_shape(act, state.learner, carry, state.envs.obs, after, key)
    flags, reward = struct((length, envs), np.bool_), struct((length, envs), np.float32)
    cut = shown if loop.one_cut else jax.tree.map(lambda x: struct((length, *x.shape[1:]), x.dtype), shown)
    each = ((obs,) * length, (decision,) * length, (carry,) * length)
    raw = Raw(*each, flags, reward, flags, flags, after, cut)
    number, episodes = jax.ShapeDtypeStruct((), np.int32), struct((3,), np.float32)
    return Shapes(slim(state), state.learner, state.memory, obs, carry, after, raw, key, number, episodes)


class Source(NamedTuple):
    """A program before it is compiled."""

    function: Callable
    arguments: tuple
    donated: tuple[int, ...] = ()
    device: Any = None  # where it runs and what it takes and gives must lie; None for the usual one


def make_pieces(loop: HostLoop, state: TrainState, device: Any = None) -> tuple[Pieces, int]:
    """The pieces of a run, and the bytes that they need beside the state; `device` has a memory that is elsewhere."""
    shapes = shapes_of(loop, state)
    memory, axes, slim_axes = shapes.memory, own_axes(shapes.memory), population_axes(shapes.slim)

    def keys(state: TrainState) -> tuple[tuple[Key, ...], Key]:
        collect_key, learn_key = jax.vmap(loop.keys, in_axes=(slim_axes,))(state)
        each = jax.vmap(loop.step_keys)(collect_key)
        return tuple(each[:, step, 0] for step in range(loop.rollout_length)), learn_key

    sources = {
        "keys": Source(keys, (shapes.slim,)),
        "act": Source(
            jax.vmap(functools.partial(loop.act, explore=True)),
            (shapes.learner, shapes.carry, shapes.obs, shapes.after, shapes.key),
        ),
        "warmed": Source(
            jax.vmap(loop.warmed, in_axes=(slim_axes, 0, 0), out_axes=slim_axes),
            (shapes.slim, shapes.raw, shapes.episodes),
        ),
        "waited": Source(
            jax.vmap(loop.waited, in_axes=(slim_axes, 0), out_axes=slim_axes), (shapes.slim, shapes.episodes)
        ),
        "remember": Source(
            jax.vmap(loop.remember, in_axes=(axes, 0), out_axes=axes), (memory, shapes.raw), (0,), device
        ),
        "interrupt": Source(
            jax.vmap(loop.agent.interrupt, in_axes=(axes, 0), out_axes=axes), (memory, shapes.obs), (0,), device
        ),
    }
    source, kept = memory, axes  # what learning begins with, and the axes of what it goes on with
    if loop.far:
        student: Any = loop.student
        draw = jax.vmap(student.draw, in_axes=(0, axes, 0))
        light = jax.eval_shape(student.light, shapes.learner)
        source, kept = jax.eval_shape(draw, light, memory, shapes.key), 0
        sources["draw"] = Source(draw, (light, memory, shapes.key), (), device)
    begin = jax.vmap(loop.begin, in_axes=(0, kept, 0, 0), out_axes=(0, kept, 0, 0))
    learning, material, lessons, sums = jax.eval_shape(begin, shapes.learner, source, shapes.raw, shapes.key)
    part = jax.vmap(loop.part, in_axes=(0, kept, 0, 0, None), out_axes=(0, kept, 0))
    learnt = jax.vmap(loop.learnt, in_axes=(slim_axes, 0, kept, 0, 0, 0, 0), out_axes=(slim_axes, kept))
    told = (shapes.slim, learning, material, lessons, sums, shapes.raw, shapes.episodes)
    sources["begin"] = Source(begin, (shapes.learner, source, shapes.raw, shapes.key), (1,))
    sources["part"] = Source(part, (learning, material, lessons, sums, shapes.number), (1,))
    sources["learnt"] = Source(learnt, told, (2,))
    if loop.far:
        verdict = jax.eval_shape(learnt, *told)[1]
        settle = jax.vmap(student.settle, in_axes=(0, axes, 0), out_axes=axes)
        sources["settle"] = Source(settle, (light.hparams, memory, verdict), (1,), device)
    programs, temporary = compile_all(sources)
    pieces = far_pieces(student, programs, device) if loop.far else Pieces(**programs)
    return pieces, temporary + 2 * nbytes((shapes.raw.obs, lessons))


def far_pieces(student: FarReplay, programs: dict[str, Callable], device: Any) -> Pieces:
    """The pieces where the memory is on another device: what it needs is sent there, what it gives is sent back."""
    near = jax.devices()[0]

    def away(tree: Any) -> Any:
        return jax.device_put(tree, device)

    def begin(learner: Learner, memory: Memory, raw: Raw, key: Key) -> tuple:
        drawn = programs["draw"](away(student.light(learner)), memory, away(key))
        learning, _, lessons, sums = programs["begin"](learner, jax.device_put(drawn, near), raw, key)
        return learning, memory, lessons, sums

    def part(learning: Any, memory: Memory, lessons: Any, sums: Metrics, number: Any) -> tuple:
        learning, _, sums = programs["part"](learning, (), lessons, sums, number)
        return learning, memory, sums

    def learnt(
        state: TrainState, learning: Any, memory: Memory, lessons: Any, sums: Metrics, raw: Raw, episodes: Any
    ) -> tuple:
        new, verdict = programs["learnt"](state, learning, (), lessons, sums, raw, episodes)
        return new, programs["settle"](away(new.learner.hparams), memory, away(verdict))

    return Pieces(
        keys=programs["keys"],
        act=programs["act"],
        remember=lambda memory, raw: programs["remember"](memory, away(raw)),
        begin=begin,
        part=part,
        learnt=learnt,
        warmed=programs["warmed"],
        waited=programs["waited"],
        interrupt=lambda memory, obs: programs["interrupt"](memory, away(obs)),
    )


def compile_all(sources: dict[str, Source]) -> tuple[dict[str, Any], int]:
    """The programs, compiled side by side, and the most bytes that one of them needs for itself."""

    def finish(lowered: Any, on_cpu: bool) -> Any:
        return lowered.compile(LIGHT if on_cpu else None)

    with without_garbage_collection(), ThreadPoolExecutor(max_workers=4) as pool:
        started = {}
        for name, (function, arguments, donated, device) in sources.items():
            place = None if device is None else jax.sharding.SingleDeviceSharding(device)
            placed: dict[str, Any] = {} if place is None else {"in_shardings": place, "out_shardings": place}
            lowered = jax.jit(function, donate_argnums=donated, **placed).lower(*arguments)
            platform = jax.default_backend() if device is None else device.platform
            started[name] = pool.submit(finish, lowered, platform == "cpu")
    done = {name: program.result() for name, program in started.items()}
    sizes = [analysis.temp_size_in_bytes for program in done.values() if (analysis := program.memory_analysis())]
    return done, max(sizes, default=0)


def slim(state: TrainState) -> TrainState:
    """A state without what is large or outside."""
    return state._replace(memory=(), envs=())


def shown_shapes(task: HostTask) -> Any:
    """What one environment shows, as shapes."""
    if task.one_hot:
        return jax.ShapeDtypeStruct((), np.int32)
    features = task.observation.features
    if task.stack > 1:
        return jax.ShapeDtypeStruct(features.shape[:-1], features.dtype)
    return features
