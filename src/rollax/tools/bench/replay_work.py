"""What a replay is asked to do when its cost is measured: every output is used, and sampling reaches everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rollax.memory.replay import Replay, Request
from rollax.types import Array, Discrete, EnvSpec, Observation, Transition

SPEC = EnvSpec(Observation(jax.ShapeDtypeStruct((4,), jnp.float32)), Discrete(2), 8, 1, truncation_interval=500)


def rollout(number: Array) -> Transition:
    shape = (SPEC.rollout_length, SPEC.num_envs)
    obs = Observation(jnp.full((*shape, 4), number, jnp.float32) + jnp.arange(4))
    never = jnp.zeros(shape, bool)
    return Transition(
        obs, jnp.full(shape, number % 2, jnp.int32), jnp.full(shape, number, jnp.float32), never, never, obs
    )


def working(replay: Replay, batch_size: int, steps: int) -> Callable[[Any, Array], tuple[Any, Array]]:
    """A scan that adds in every step and, with a batch size, samples and reprioritises."""
    buffer, request = replay.build(SPEC), Request(batch_size, discount=0.99, importance_exponent=0.5)

    def step(state: Any, inputs: tuple[Array, Array]) -> tuple[Any, Array]:
        number, key = inputs
        state = buffer.add(state, rollout(number))
        if not batch_size:
            return state, jnp.float32(0)
        sample = buffer.sample(state, key, request)
        total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(sample.batch)) + jnp.sum(sample.weight)
        priority = jnp.abs(sample.batch.obs.features[:, 0] % 7)
        return buffer.reprioritize(state, sample.handle, priority, 0.5), jnp.float32(total)

    def run(state: Any, key: Array) -> tuple[Any, Array]:
        state, totals = jax.lax.scan(step, state, (jnp.arange(steps), jax.random.split(key, steps)))
        return state, jnp.sum(totals)

    return run


def full(replay: Replay) -> Any:
    """A memory whose every row was written."""
    buffer, rows = replay.build(SPEC), replay.capacity // SPEC.num_envs

    def fill(state: Any) -> Any:
        return jax.lax.fori_loop(0, rows, lambda number, state: buffer.add(state, rollout(number)), state)

    return jax.jit(fill, donate_argnums=0)(jax.jit(buffer.init)())
