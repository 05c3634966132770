"""A population's training run as a handful of compiled programs, each compiled exactly once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.training.evaluate import Best, Evaluation, Evaluator
from rollax.training.loop import Loop, TrainState
from rollax.types import Array, Key, Params

LOG_ROWS = 64  # rows of the log that one call can finish


class Rows(NamedTuple):
    """Windows that ended during a call, in order; the first `count` are filled."""

    sums: Array  # [members, LOG_ROWS, columns]


@dataclass(frozen=True)
class JaxProgram:
    """`jit(vmap(repeat(iteration)))`, with donated state.

    The number of iterations of a call and of a log window are arguments, so the same executable
    serves every chunk length, log grid and budget: none of them can change a bit of the result.
    `block` iterations form an inner loop of fixed length, for devices where asking the host
    after each iteration whether to go on would cost as much as the iteration; calls must then
    run a multiple of it.
    """

    loop: Loop
    evaluator: Evaluator
    block: int = 1

    def init(self, keys: Key, hparams: Any) -> TrainState:
        """A population: keys `[members]`, and hyper-parameters with the same leading axis."""
        states = jax.vmap(self.loop.init)(keys, hparams)
        return states._replace(iteration=jnp.int32(0))

    def repeat(self, state: TrainState, stop: Array, log_iterations: Array, *, learn: bool) -> tuple[TrainState, Array]:
        """Runs until `iteration == stop`; returns the state and the windows that ended, `[members, LOG_ROWS, ...]`."""
        first_row = state.iteration // log_iterations
        members, columns = state.window.shape
        axes = TrainState(None, 0, 0, 0, 0, 0, 0)
        iterate = jax.vmap(lambda one: self.loop.iteration(one, learn=learn), in_axes=(axes,), out_axes=axes)

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
