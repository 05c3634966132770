"""Sampling in proportion to weights that keep changing.

A tree for each environment, all of the same shape, so that environments can be split over devices.  A node has
`FANOUT` children, which lie side by side in one cache line: a million leaves are five levels deep.  A parent is
always the sum of its children as they are now; nothing is added to it or taken from it, so no rounding piles up.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.types import Array, Key

FANOUT = 16


class SumTree(NamedTuple):
    """`levels[0]` are the weights themselves, each later level the sums of the one before."""

    levels: tuple[Array, ...]  # [B, groups, FANOUT], until there is one group


class Draw(NamedTuple):
    """Leaves that were drawn."""

    env: Array  # [batch]
    leaf: Array  # [batch]
    share: Array  # [batch], the leaf's weight over the sum of all


def init(num_envs: int, leaves: int) -> SumTree:
    """A tree of zeros."""
    levels, groups = [], leaves
    while not levels or groups > 1:
        groups = -(-groups // FANOUT)
        levels.append(jnp.zeros((num_envs, groups, FANOUT), jnp.float32))
    return SumTree(tuple(levels))


def set_columns(tree: SumTree, leaf: Array, weight: Array) -> SumTree:
    """Gives leaves `[K]` of every environment the weights `[K]`; no leaf may be there twice."""
    first = tree.levels[0].at[:, leaf // FANOUT, leaf % FANOUT].set(weight)
    levels = [first]
    for above in tree.levels[1:]:
        leaf = leaf // FANOUT
        sums = jnp.sum(levels[-1][:, leaf], axis=-1)  # one child's column for every parent that changed
        levels.append(above.at[:, leaf // FANOUT, leaf % FANOUT].set(sums))
    return SumTree(tuple(levels))


def set_leaves(tree: SumTree, env: Array, leaf: Array, weight: Array) -> SumTree:
    """Gives leaves `[K]` of environments `[K]` the weights `[K]`; of a leaf that is there twice, the larger one."""
    # First nothing, then the larger: unlike the last writer, the same on every device and every time.
    first = tree.levels[0].at[env, leaf // FANOUT, leaf % FANOUT].set(0.0)
    levels = [first.at[env, leaf // FANOUT, leaf % FANOUT].max(weight)]
    for above in tree.levels[1:]:
        leaf = leaf // FANOUT
        sums = jnp.sum(levels[-1][env, leaf], axis=-1)
        levels.append(above.at[env, leaf // FANOUT, leaf % FANOUT].set(sums))
    return SumTree(tuple(levels))


def draw(tree: SumTree, key: Key, batch_size: int) -> Draw:
    """Leaves with replacement, each with probability weight / sum of all.  Some weight must be positive.

    A leaf of weight 0 is never drawn, whatever the rounding.
    """
    totals = jnp.sum(tree.levels[-1][:, 0], axis=-1)  # [B]
    across = [_grouped(totals)]
    while across[-1].shape[0] > 1:
        across.append(_grouped(jnp.sum(across[-1], axis=-1)))
    fractions = jax.random.uniform(key, (len(across) + len(tree.levels), batch_size))
    env = jnp.zeros(batch_size, jnp.int32)
    for level, fraction in zip(reversed(across), fractions[: len(across)], strict=True):
        env, _ = _descend(level[env], env, fraction)
    leaf, weight = jnp.zeros(batch_size, jnp.int32), totals[env]
    for level, fraction in zip(reversed(tree.levels), fractions[len(across) :], strict=True):
        leaf, weight = _descend(level[env, leaf], leaf, fraction)
    return Draw(env, leaf, weight / jnp.sum(across[-1]))


def _descend(children: Array, node: Array, fraction: Array) -> tuple[Array, Array]:
    """From nodes `[batch]` with weights of children `[batch, FANOUT]` to one child each, and its weight."""
    below = jnp.where(children > 0, jnp.cumsum(children, axis=-1), 0.0)
    # Each level has a fraction of its own: one for all levels would run out of bits in a large tree.
    goal = fraction * jnp.max(below, axis=-1)
    child = jnp.argmax(below > goal[:, None], axis=-1).astype(jnp.int32)
    return node * FANOUT + child, jnp.take_along_axis(children, child[:, None], axis=-1)[:, 0]


def _grouped(weights: Array) -> Array:
    """Weights `[N]` as groups `[ceil(N / FANOUT), FANOUT]`, filled up with zeros."""
    return jnp.pad(weights, (0, -len(weights) % FANOUT)).reshape(-1, FANOUT)
