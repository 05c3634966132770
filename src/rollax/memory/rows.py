"""How one step is kept: an observation, and all else of it in two words."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.types import Array, Observation

# How a row ends.  STOPPED is a truncation whose last observation is in the next row: see `interruptions`.
RUNNING, TERMINATED, TRUNCATED, STOPPED = 0, 1, 2, 3
FILLER = 1 << 7  # marks a row that is no step
MOST_BLANK = (1 << 5) - 1


class RingState(NamedTuple):
    """Arrays lead with the environment; `observations` has the ring's rows and then the spare places."""

    observations: Observation  # [B, rows + spares, ...]; of stacks the newest frame
    steps: Array  # uint32[B, rows, 2]: what else a row holds, as `pack` writes it
    added: Array  # rows written so far, of one environment
    interrupted: Array | None = None  # what `added` was after the last interruption; None where there can be none
    vectors: Array | None = None  # float32[B, rows, size]: actions that are vectors; None where they are numbered


class Row(NamedTuple):
    """What a row holds beside its observation, and beside an action that is a vector."""

    action: Array  # its number, 0 where it is a vector; of a filler, how many rows before it the last step is
    reward: Array
    ending: Array  # RUNNING, TERMINATED, TRUNCATED or STOPPED
    blank: Array  # frames of its stack that are from before the episode
    filler: Array  # whether it is no step: it holds an observation, and no window begins there


def pack(row: Row) -> Array:
    """A row as two words `[..., 2]`, so that a look-up misses the cache once and not five times."""
    word = (row.action.astype(jnp.uint32) << 8) | row.ending.astype(jnp.uint32)
    word |= (row.blank.astype(jnp.uint32) << 2) | jnp.where(row.filler, jnp.uint32(FILLER), jnp.uint32(0))
    return jnp.stack([word, jax.lax.bitcast_convert_type(row.reward.astype(jnp.float32), jnp.uint32)], axis=-1)


def unpack(steps: Array) -> Row:
    word, reward = steps[..., 0], steps[..., 1]
    ending, blank = (word & 3).astype(jnp.int32), (word >> 2 & MOST_BLANK).astype(jnp.int32)
    action = (word >> 8).astype(jnp.int32)
    return Row(action, jax.lax.bitcast_convert_type(reward, jnp.float32), ending, blank, (word & FILLER) > 0)


def look_up(store: Array, env: Array, place: Array) -> Array:
    """`store[env, place]`, without the clamping that guards against indices that cannot occur here."""
    return store.at[env, place].get(mode="promise_in_bounds", wrap_negative_indices=False)


def overwrite(store: Array, values: Array, place: Array, axis: int = 1) -> Array:
    """The store with these values from a place on along that axis, in place where the store is not used again.

    For members that share the place as well: JAX would make that a scatter, with a dozen small operations before it
    that look whether each index is inside.
    """

    @jax.custom_batching.custom_vmap
    def write(store: Array, values: Array, place: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(store, values, place, axis=axis)

    @write.def_vmap
    def _write_all(size: int, batched: list[bool], store: Array, values: Array, place: Array) -> tuple[Array, bool]:
        if batched[2]:
            axes = tuple(0 if flag else None for flag in batched)
            one = functools.partial(jax.lax.dynamic_update_slice_in_dim, axis=axis)
            return jax.vmap(one, axes, axis_size=size)(store, values, place), True
        store, values = (
            leaf if flag else jnp.broadcast_to(leaf, (size, *leaf.shape))
            for leaf, flag in zip((store, values), batched, strict=False)
        )
        return overwrite(store, values, place, axis + 1), True

    return write(store, values, place)


def of_last(window: Array, length: Array) -> Array:
    """Of windows `[batch, n]` what their last steps have, with so many steps that count."""
    return jnp.take_along_axis(window, length[:, None] - 1, axis=1)[:, 0]


def expand(flag: Array, like: Array) -> Array:
    """A flag with as many axes as what it chooses among."""
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))
