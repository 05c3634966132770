"""A population's training run as four compiled programs, each compiled exactly once."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from rollax.agents.base import Learner
from rollax.training.evaluate import Best, Evaluation, keep_best
from rollax.training.loop import TrainState
from rollax.training.mesh import BY_MEMBER, EVERYWHERE, Spread
from rollax.training.program import (
    FULL,
    LIGHT,
    LOG_ROWS,
    NONE,
    Program,
    Programs,
    evaluation_keys,
    nbytes,
    population_axes,
    without_garbage_collection,
)
from rollax.types import Array, Key


@dataclass(frozen=True)
class JaxProgram(Program):
    """`jit(vmap(repeat(iteration)))` with donated state.

    The iteration to stop at and the length of a log window are arguments, so one executable
    serves every chunk length, log grid and budget: none of them can change a bit of the result.
    `block` iterations form an inner loop of fixed length, for devices where asking the host after
    each iteration whether to go on would cost as much as the iteration; every stop must then be
    a multiple of it away.  With a `spread`, all of this runs inside `shard_map`: what is said here of members and
    environments is then said of those of one device.
    """

    spread: Spread | None = None

    def shapes(self, keys: Key, hparams: Any) -> tuple[TrainState, Best]:
        return self.spread.shapes if self.spread else super().shapes(keys, hparams)

    def repeat(self, state: TrainState, stop: Array, log_iterations: Array, *, learn: bool) -> tuple[TrainState, Array]:
        """Runs until `iteration == stop`; returns the state and the windows that ended, `[members, LOG_ROWS, ...]`.

        Row `i` is the window that contains iteration `(start // log_iterations + i) * log_iterations`.
        """
        first_row = state.iteration // log_iterations
        members, columns = state.window.shape
        iterate = self.over_members(lambda one: self.loop.iteration(one, learn=learn), population_axes(state), members)

        def step(carry: tuple[TrainState, Array], _: Any) -> tuple[tuple[TrainState, Array], None]:
            state, rows = carry
            row = state.iteration // log_iterations - first_row
            state = iterate(state)
            rows = jax.lax.dynamic_update_slice_in_dim(rows, state.window[:, None], row, axis=1)
            ended = state.iteration % log_iterations == 0
            return (state._replace(window=jnp.where(ended, 0.0, state.window)), rows), None

        def body(carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
            return jax.lax.scan(step, carry, length=self.block)[0]

        rows = jnp.zeros((members, LOG_ROWS, columns), jnp.float32)
        return jax.lax.while_loop(lambda carry: carry[0].iteration < stop, body, (state, rows))

    def over_members(self, step: Callable[[TrainState], TrainState], axes: TrainState, members: int) -> Any:
        """The step of one member for all of them.

        A single one whose players decide one by one takes it without an axis of length one, which would make every
        condition a choice between two results that are both computed.  Elsewhere the axis stays: without it a large
        replay is not written in place.
        """
        if members > 1 or not self.loop.task.players:
            return jax.vmap(step, in_axes=(axes,), out_axes=axes)

        def own(function: Callable[[Array], Array], state: TrainState) -> TrainState:
            return jax.tree.map(
                lambda axis, leaf: leaf if axis is None else function(leaf),
                axes,
                state,
                is_leaf=lambda axis: axis is None,
            )

        return lambda state: own(lambda leaf: leaf[None], step(own(lambda leaf: leaf[0], state)))

    def evaluate(self, learner: Learner, keys: Key, iteration: Array, best: Best) -> tuple[Evaluation, Best]:
        """Plays with randomness that training never draws, and keeps the better weights."""
        result = self.evaluator(learner, evaluation_keys(keys, iteration))
        return result, keep_best(best, learner, result)

    def play(self, learner: Learner, keys: Key) -> Evaluation:
        return jax.jit(self.evaluator)(learner, keys)

    def restoring(self) -> Any:
        """In the machine's own memory, if it is to be split from there."""
        return jax.default_device(jax.local_devices(backend="cpu")[0]) if self.spread else super().restoring()

    def placed(self, state: TrainState, best: Best) -> tuple[TrainState, Best]:
        if self.spread is None:
            return state, best
        return self.spread.place((state, best), self.spread.specs)

    def with_weights(self, learner: Learner, params: Any) -> Learner:
        if self.spread is None:
            return super().with_weights(learner, params)
        specs = self.spread.specs[0].learner
        adopt = self.spread_out(jax.vmap(self.loop.agent.with_weights), (specs, BY_MEMBER), specs)
        return adopt(learner, self.spread.place(params, BY_MEMBER))

    def spread_out(self, function: Callable, in_specs: tuple, out_specs: Any, **options: Any) -> Any:
        """The function compiled for the mesh, if there is one."""
        if self.spread is None:
            return jax.jit(function, **options)
        # Without `check_vma`, which would add up the gradients of all shards by itself.
        mapped = jax.shard_map(function, mesh=self.spread.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        shardings = {
            "in_shardings": self.spread.sharding(in_specs),
            "out_shardings": self.spread.sharding(out_specs),
        }
        return jax.jit(mapped, **shardings, **options)

    def compile(self, keys: Key, hparams: Any) -> Programs:
        """All programs, compiled side by side; `evaluate`, which is needed last, while the others run already."""
        started = time.perf_counter()
        state, best = self.shapes(keys, hparams)
        number = jax.ShapeDtypeStruct((), jnp.int32)
        chunk = (state, number, number)
        on_cpu = jax.default_backend() == "cpu"

        state_specs, best_specs = self.spread.specs if self.spread else (EVERYWHERE, EVERYWHERE)
        learner_specs = getattr(state_specs, "learner", EVERYWHERE)
        chunk_specs = ((state_specs, EVERYWHERE, EVERYWHERE), (state_specs, BY_MEMBER))

        def lower_chunk(learn: bool) -> Any:
            function = functools.partial(self.repeat, learn=learn)
            return self.spread_out(function, *chunk_specs, donate_argnums=0).lower(*chunk)

        def lower_init() -> Any:
            return self.spread_out(self.init, (BY_MEMBER, BY_MEMBER), (state_specs, best_specs)).lower(keys, hparams)

        def lower_evaluate() -> Any:
            specs = ((learner_specs, BY_MEMBER, EVERYWHERE, best_specs), (BY_MEMBER, best_specs))
            return self.spread_out(self.evaluate, *specs).lower(state.learner, state.key, number, best)

        usual = FULL if self.loop.task.costly else LIGHT

        def finish(lowered: Any, level: dict[str, Any] = usual) -> Any:
            return lowered.compile(level if on_cpu else None)

        pool = ThreadPoolExecutor(max_workers=4)
        with without_garbage_collection():
            advance = pool.submit(finish, lower_chunk(learn=True))
            warm_up = pool.submit(finish, lower_chunk(learn=False))
            init = pool.submit(finish, lower_init(), NONE)
            needed: list[Any] = [program.result() for program in (init, warm_up, advance)]
        evaluate = pool.submit(lambda: finish(lower_evaluate()))
        pool.shutdown(wait=False)
        beside = max(analysis.temp_size_in_bytes for program in needed if (analysis := program.memory_analysis()))
        begin, *rest = needed
        return Programs(
            lambda *arguments: begin(*(self.spread.place(arguments, BY_MEMBER) if self.spread else arguments)),
            *rest,
            evaluate=lambda *arguments: evaluate.result()(*arguments),
            compile_seconds=time.perf_counter() - started,
            memory_bytes=nbytes((state, best)) + beside,
        )
