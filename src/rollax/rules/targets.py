"""What a prediction should have been."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.types import Array


class NStep(NamedTuple):
    """The part of an n-step target that is known before any network is asked."""

    reward: Array  # discounted sum over the steps that count
    discount: Array  # what multiplies the successor's value; 0 after a termination
    length: Array  # how many steps count: the successor lies this far ahead
    truncated: Array  # whether a time limit cut the window, so that the successor ended its episode


def n_step(reward: Array, terminated: Array, truncated: Array, discount: Array | float) -> NStep:
    """Sums a window `[..., n]` of consecutive steps up to its first episode end.

    The successor's value is discounted by `discount ** length`, also when a time limit cut the
    window short; a termination leaves nothing to bootstrap from.  A step that both terminates
    and truncates is a termination.
    """
    ended = terminated | truncated
    running = jnp.cumprod(~ended, axis=-1, dtype=jnp.int32).astype(bool)
    counts = jnp.concatenate([jnp.ones_like(running[..., :1]), running[..., :-1]], axis=-1)
    factor = jnp.where(counts, discount, 1.0)
    weight = jnp.concatenate([jnp.ones_like(factor[..., :1]), jnp.cumprod(factor[..., :-1], axis=-1)], axis=-1)
    terminates = jnp.any(counts & terminated, axis=-1)
    return NStep(
        reward=jnp.sum(jnp.where(counts, weight * reward, 0.0), axis=-1),
        discount=jnp.where(terminates, 0.0, jnp.prod(factor, axis=-1)),
        length=jnp.sum(counts, axis=-1, dtype=jnp.int32),
        truncated=jnp.any(counts & truncated, axis=-1) & ~terminates,
    )


def lambda_returns(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    discount: Array | float,
    trace_lambda: Array | float,
) -> Array:
    """The lambda-return of every step of a rollout `[T, ...]`; `next_value[t]` is the value of step t's successor.

    A termination leaves nothing to bootstrap from.  A truncation, and the rollout's own end, bootstrap from the
    successor's value alone, as the later steps belong to another episode or are not known.  With lambda 0 it is the
    one-step target; less the values, it is the advantage of generalized advantage estimation.
    """
    ended = terminated | truncated
    last = jnp.zeros_like(ended).at[-1].set(True)

    def step(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, next_value, terminated, cut = now
        bootstrap = jnp.where(cut, next_value, (1 - trace_lambda) * next_value + trace_lambda * later)
        value = reward + jnp.where(terminated, 0.0, discount * bootstrap)
        return value, value

    inputs = (reward, next_value, terminated, ended | last)
    return jax.lax.scan(step, jnp.zeros_like(reward[0]), inputs, reverse=True)[1]
