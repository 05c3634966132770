"""The pieces of an iteration with environments outside JAX: pure functions of one member, compiled for all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Learner, Memory, own_axes
from rollax.agents.players import Acting
from rollax.envs.host import HostTask
from rollax.memory.rows import expand
from rollax.programs.loop import Loop, TrainState
from rollax.programs.program import LIGHT, nbytes, population_axes, without_garbage_collection
from rollax.types import Array, Key, Metrics, Observation, Transition


class Shown(NamedTuple):
    """What all environments of all members show: arrays `[members, B, ...]`."""

    shown: Any
    fresh: Any  # whether an episode has just begun


class Raw(NamedTuple):
    """A rollout as it was collected: observations and actions on the device, one by one, the rest from the host."""

    obs: tuple[Observation, ...]  # T of [members, B, ...]
    action: tuple[Any, ...]
    extras: tuple[Any, ...]
    reward: Any  # [members, T, B], as are the flags
    terminated: Any
    truncated: Any
    after: Shown  # what followed the last step
    cut: Any  # what truncated episodes showed last: [members, B, ...], or of each step [members, T, B, ...]


@dataclass(frozen=True)
class HostLoop(Loop):
    """The pure pieces of an iteration, each of one member."""

    agent: Any  # an Agent that is Stepwise

    @property
    def parts(self) -> int:
        """In how many equal parts an iteration's learning is sent to the device: at most one for each step."""
        updates = self.agent.updates
        return max(count for count in range(1, self.rollout_length + 1) if updates % count == 0)

    @property
    def one_cut(self) -> bool:
        """Whether no environment can run out of time twice in a rollout."""
        return self.task.truncation_interval >= self.rollout_length

    def act(
        self, learner: Learner, before: Observation, after: Shown, key: Key, *, explore: bool
    ) -> tuple[Observation, Array, Any]:
        obs = self.task.observe(before, after.shown, after.fresh)
        return obs, *Acting(self.agent, learner, explore).all(obs, key)

    def transitions(self, raw: Raw) -> Transition:
        """The rollout `[T, B, ...]` of a member."""
        obs = jax.tree.map(lambda *steps: jnp.stack(steps), *raw.obs)
        action, extras = jax.tree.map(lambda *steps: jnp.stack(steps), *zip(raw.action, raw.extras, strict=True))
        last = self.task.observe(raw.obs[-1], *raw.after)
        next_obs = jax.tree.map(lambda seen, end: jnp.concatenate([seen[1:], end[None]]), obs, last)
        if self.one_cut:
            when = jnp.argmax(raw.truncated, axis=0), jnp.arange(self.num_envs)
            cut_from = jax.tree.map(lambda x: x[when], obs)
            cut = jax.tree.map(lambda x: x[None], self.task.observe(cut_from, raw.cut, jnp.zeros(self.num_envs, bool)))
        else:
            cut = self.task.observe(obs, raw.cut, jnp.zeros(raw.truncated.shape, bool))
        next_obs = jax.tree.map(lambda end, seen: jnp.where(expand(raw.truncated, seen), end, seen), cut, next_obs)
        return Transition(obs, action, raw.reward, raw.terminated, raw.truncated, next_obs, extras)

    def remember(self, memory: Memory, raw: Raw) -> Memory:
        return self.agent.remember(memory, self.transitions(raw))

    def begin(self, learner: Learner, memory: Memory, raw: Raw, key: Key) -> tuple[Any, Memory, Any, Metrics]:
        """What learns, the memory, the lessons, and the sums of no metrics yet."""
        (student, memory), lessons = self.agent.begin(learner, memory, self.transitions(raw), key)
        shapes = jax.eval_shape(lambda: self.agent.step((student, memory), lessons.shared, first_of(lessons.each))[1])
        return student, memory, lessons, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def part(
        self, student: Any, memory: Memory, lessons: Any, sums: Metrics, number: Array
    ) -> tuple[Any, Memory, Metrics]:
        """One part of the learning."""
        count = self.agent.updates // self.parts
        (student, memory), metrics = self.agent.part((student, memory), lessons, number * count, count)
        return student, memory, jax.tree.map(lambda total, new: total + jnp.sum(new), sums, metrics)

    def learnt(
        self, state: TrainState, student: Any, memory: Memory, lessons: Any, sums: Metrics, raw: Raw, episodes: Array
    ) -> tuple[TrainState, Memory]:
        means = jax.tree.map(lambda total: total / self.agent.updates, sums)
        learner, memory, metrics = self.agent.conclude((student, memory), lessons, means)
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
    act: Callable  # (learner, observations before, Shown, key) -> observations, actions, extras
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
    after, key = Shown(shown, struct((envs,), np.bool_)), struct((), state.key.dtype)
    act = jax.vmap(functools.partial(loop.act, explore=True))
    obs, action, extras = jax.eval_shape(act, state.learner, state.envs.obs, after, key)
    flags, reward = struct((length, envs), np.bool_), struct((length, envs), np.float32)
    cut = shown if loop.one_cut else jax.tree.map(lambda x: struct((length, *x.shape[1:]), x.dtype), shown)
    raw = Raw((obs,) * length, (action,) * length, (extras,) * length, reward, flags, flags, after, cut)
    number, episodes = jax.ShapeDtypeStruct((), np.int32), struct((3,), np.float32)
    return Shapes(slim(state), state.learner, state.memory, obs, after, raw, key, number, episodes)


class Source(NamedTuple):
    """A program before it is compiled."""

    function: Callable
    arguments: tuple
    donated: tuple[int, ...] = ()
    device: Any = None  # where it runs and what it takes and gives must lie; None for the usual one


def common_sources(loop: HostLoop, shapes: Shapes) -> dict[str, Source]:
    """The pieces that are the same wherever the memory is."""
    axes = population_axes(shapes.slim)

    def keys(state: TrainState) -> tuple[tuple[Key, ...], Key]:
        collect_key, learn_key = jax.vmap(loop.keys, in_axes=(axes,))(state)
        each = jax.vmap(loop.step_keys)(collect_key)
        return tuple(each[:, step, 0] for step in range(loop.rollout_length)), learn_key

    act = jax.vmap(functools.partial(loop.act, explore=True))
    warmed = jax.vmap(loop.warmed, in_axes=(axes, 0, 0), out_axes=axes)
    waited = jax.vmap(loop.waited, in_axes=(axes, 0), out_axes=axes)
    return {
        "keys": Source(keys, (shapes.slim,)),
        "act": Source(act, (shapes.learner, shapes.obs, shapes.after, shapes.key)),
        "warmed": Source(warmed, (shapes.slim, shapes.raw, shapes.episodes)),
        "waited": Source(waited, (shapes.slim, shapes.episodes)),
    }


def memory_sources(loop: HostLoop, shapes: Shapes, device: Any = None) -> dict[str, Source]:
    """The pieces that touch the memory alone."""
    memory, axes = shapes.memory, own_axes(shapes.memory)
    remember = jax.vmap(loop.remember, in_axes=(axes, 0), out_axes=axes)
    interrupt = jax.vmap(loop.agent.interrupt, in_axes=(axes, 0), out_axes=axes)
    return {
        "remember": Source(remember, (memory, shapes.raw), (0,), device),
        "interrupt": Source(interrupt, (memory, shapes.obs), (0,), device),
    }


def near_pieces(loop: HostLoop, state: TrainState) -> tuple[Pieces, int]:
    """The pieces of a run whose memory is where its learner is, and the bytes that they need beside the state."""
    shapes = shapes_of(loop, state)
    memory, axes, slim_axes = shapes.memory, own_axes(shapes.memory), population_axes(shapes.slim)
    begin = jax.vmap(loop.begin, in_axes=(0, axes, 0, 0), out_axes=(0, axes, 0, 0))
    given = (shapes.learner, memory, shapes.raw, shapes.key)
    student, _, lessons, sums = jax.eval_shape(begin, *given)
    part = jax.vmap(loop.part, in_axes=(0, axes, 0, 0, None), out_axes=(0, axes, 0))
    learnt = jax.vmap(loop.learnt, in_axes=(slim_axes, 0, axes, 0, 0, 0, 0), out_axes=(slim_axes, axes))
    sources = {
        **common_sources(loop, shapes),
        **memory_sources(loop, shapes),
        "begin": Source(begin, given, (1,)),
        "part": Source(part, (student, memory, lessons, sums, shapes.number), (1,)),
        "learnt": Source(learnt, (shapes.slim, student, memory, lessons, sums, shapes.raw, shapes.episodes), (2,)),
    }
    programs, temporary = compile_all(sources)
    return Pieces(**programs), temporary + 2 * nbytes((shapes.raw.obs, lessons))


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


def first_of(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)


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
