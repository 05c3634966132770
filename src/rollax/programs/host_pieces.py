"""The pieces of an iteration with environments outside JAX: pure functions of one member, compiled for all of them.

The memory may lie elsewhere than the learner, as in the machine's own memory beside a GPU.  What an iteration learns
from is then drawn before its first gradient step, and priorities are told after its last: see `FarReplay`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from rollax.agents.base import Learner, Memory, own_axes
from rollax.programs.background import crew
from rollax.programs.compiling import LIGHT, compiler_options
from rollax.programs.far_replay import FarReplay
from rollax.programs.foresight import temporary_bytes
from rollax.programs.host_loop import HostLoop, HostRollout, TimeStep, shown_shapes
from rollax.programs.loop import TrainState
from rollax.programs.program import nbytes, population_axes, without_garbage_collection
from rollax.types import Carry, Key, Metrics, Observation


class Pieces(NamedTuple):
    """The pieces of an iteration, for all members.  Memory is given up to those that return it; nothing else is."""

    keys: Callable  # (slim state) -> a key for each step's actions, one to learn with
    act: Callable  # (learner, carry, observations before, TimeStep, key) -> observations, Decision
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
    after: TimeStep
    raw: HostRollout
    key: Any
    number: Any
    episodes: Any


def shapes_of(loop: HostLoop, state: TrainState) -> Shapes:
    members, length, envs = state.window.shape[0], loop.rollout_length, loop.num_envs

    def struct(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((members, *shape), dtype)

    shown = jax.tree.map(lambda x: struct((envs, *x.shape), x.dtype), shown_shapes(loop.task))
    flag, key, carry = struct((envs,), np.bool_), struct((), state.key.dtype), state.envs.carry
    after = TimeStep(shown, flag, flag)
    act = jax.vmap(functools.partial(loop.act, explore=True))
    obs, decision = jax.eval_shape(act, state.learner, carry, state.envs.obs, after, key)
    flags, reward = struct((length, envs), np.bool_), struct((length, envs), np.float32)
    cut = shown if loop.one_cut else jax.tree.map(lambda x: struct((length, *x.shape[1:]), x.dtype), shown)
    each = ((obs,) * length, (decision,) * length, (carry,) * length)
    raw = HostRollout(*each, flags, reward, flags, flags, after, cut)
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
    sources, waiting = sources_of(loop, state, device)
    programs, temporary = compile_all(sources)
    pieces = far_pieces(cast(FarReplay, loop.learning_in_parts), programs, device) if loop.far else Pieces(**programs)
    return pieces, temporary + waiting


def predicted_bytes(loop: HostLoop, state: TrainState, device: Any = None) -> int:
    """What the pieces will need beside the state, before they are compiled."""
    sources, waiting = sources_of(loop, state, device)
    near = [source for source in sources.values() if source.device is None]
    traced = (jax.make_jaxpr(source.function)(*source.arguments) for source in near)
    return waiting + max(temporary_bytes(closed.jaxpr) for closed in traced)


def sources_of(loop: HostLoop, state: TrainState, device: Any = None) -> tuple[dict[str, Source], int]:
    """The pieces before they are compiled, and the bytes of the rollouts and lessons that go from one to another."""
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
        replay: Any = loop.learning_in_parts
        draw = jax.vmap(replay.draw, in_axes=(0, axes, 0))
        light = jax.eval_shape(replay.light, shapes.learner)
        source, kept = jax.eval_shape(draw, light, memory, shapes.key), 0
        sources["draw"] = Source(draw, (light, memory, shapes.key), (), device)
    begin = jax.vmap(loop.begin, in_axes=(0, kept, 0, 0), out_axes=(0, kept, 0, 0))
    learning, material, lessons, sums = jax.eval_shape(begin, shapes.learner, source, shapes.raw, shapes.key)
    part = jax.vmap(loop.part, in_axes=(0, kept, 0, 0, None), out_axes=(0, kept, 0))
    learnt = jax.vmap(loop.learnt, in_axes=(slim_axes, 0, kept, 0, 0, 0, 0), out_axes=(slim_axes, kept))
    arguments = (shapes.slim, learning, material, lessons, sums, shapes.raw, shapes.episodes)
    sources["begin"] = Source(begin, (shapes.learner, source, shapes.raw, shapes.key), (1,))
    sources["part"] = Source(part, (learning, material, lessons, sums, shapes.number), (1,))
    sources["learnt"] = Source(learnt, arguments, (2,))
    if loop.far:
        priorities = jax.eval_shape(learnt, *arguments)[1]
        settle = jax.vmap(replay.settle, in_axes=(0, axes, 0), out_axes=axes)
        sources["settle"] = Source(settle, (light.hparams, memory, priorities), (1,), device)
    return sources, 2 * nbytes((shapes.raw.obs, lessons))


def far_pieces(replay: FarReplay, programs: dict[str, Callable], device: Any) -> Pieces:
    """The pieces where the memory is on another device: what it needs is sent there, what it gives is sent back."""
    near = jax.devices()[0]

    def away(tree: Any) -> Any:
        return jax.device_put(tree, device)

    def begin(learner: Learner, memory: Memory, raw: HostRollout, key: Key) -> tuple:
        drawn = programs["draw"](away(replay.light(learner)), memory, away(key))
        learning, _, lessons, sums = programs["begin"](learner, jax.device_put(drawn, near), raw, key)
        return learning, memory, lessons, sums

    def part(learning: Any, memory: Memory, lessons: Any, sums: Metrics, number: Any) -> tuple:
        learning, _, sums = programs["part"](learning, (), lessons, sums, number)
        return learning, memory, sums

    def learnt(
        state: TrainState, learning: Any, memory: Memory, lessons: Any, sums: Metrics, raw: HostRollout, episodes: Any
    ) -> tuple:
        new, priorities = programs["learnt"](state, learning, (), lessons, sums, raw, episodes)
        return new, programs["settle"](away(new.learner.hparams), memory, away(priorities))

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
        return lowered.compile(compiler_options(LIGHT, on_cpu=on_cpu))

    with without_garbage_collection(), crew() as submit:
        started = {}
        for name, (function, arguments, donated, device) in sources.items():
            place = None if device is None else jax.sharding.SingleDeviceSharding(device)
            placed: dict[str, Any] = {} if place is None else {"in_shardings": place, "out_shardings": place}
            lowered = jax.jit(function, donate_argnums=donated, **placed).lower(*arguments)
            platform = jax.default_backend() if device is None else device.platform
            started[name] = submit(finish, lowered, platform == "cpu")
        done = {name: program.result() for name, program in started.items()}
    sizes = [analysis.temp_size_in_bytes for program in done.values() if (analysis := program.memory_analysis())]
    return done, max(sizes, default=0)


def slim(state: TrainState) -> TrainState:
    """A state without what is large or outside."""
    return state._replace(memory=(), envs=())
