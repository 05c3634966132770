"""Many small arrays of a step as few: what a loop writes at every step, in as few writes as there are shapes.

Each write of a loop is a kernel of its own on a GPU, and takes as long as arithmetic there does on so few numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.types import Array

MOST = 2**12  # numbers of a leaf that is bundled; larger ones are worth a write of their own


class Plan(NamedTuple):
    """How a tree was bundled."""

    tree: Any  # its structure
    kinds: list[Any]  # the types of its leaves
    groups: list[list[int]]  # which leaves share an array; the last of them are alone in theirs


def scan_bundled(step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` to the same results, whose loop writes small leaves of the same shape together."""
    if len(jax.tree.leaves(xs)[0]) == 1:  # no loop, so there is nothing to gain
        return jax.lax.scan(step, carry, xs)
    plans: list[Plan] = []

    def bundling(carry: Any, x: Any) -> tuple[Any, list[Array]]:
        carry, out = step(carry, x)
        plan, arrays = bundle(out)
        plans.append(plan)
        return carry, arrays

    carry, arrays = jax.lax.scan(bundling, carry, xs)
    return carry, unbundle(plans[-1], arrays)


def bundle(tree: Any) -> tuple[Plan, list[Array]]:
    """The leaves in groups, each as one array `[leaves, ...]` of words, those alone as they are."""
    leaves, structure = jax.tree.flatten(tree)
    shapes: dict[Any, list[int]] = {}
    for index, leaf in enumerate(leaves):
        together = leaf.size <= MOST and leaf.dtype in (jnp.float32, jnp.int32, jnp.uint32, jnp.bool_)
        shapes.setdefault(leaf.shape if together else index, []).append(index)
    groups = list(shapes.values())
    arrays = [leaves[group[0]] if len(group) == 1 else jnp.stack([word(leaves[i]) for i in group]) for group in groups]
    return Plan(structure, [leaf.dtype for leaf in leaves], groups), arrays


def unbundle(plan: Plan, arrays: list[Array]) -> Any:
    """The tree of what `scan` has stacked, `[T, ...]`."""
    leaves: dict[int, Array] = {}
    for group, array in zip(plan.groups, arrays, strict=True):
        for place, index in enumerate(group):
            leaves[index] = array if len(group) == 1 else number(array[:, place], plan.kinds[index])
    return jax.tree.unflatten(plan.tree, [leaves[index] for index in range(len(plan.kinds))])


def word(leaf: Array) -> Array:
    """Its bits as numbers of 32."""
    return leaf.astype(jnp.uint32) if leaf.dtype == jnp.bool_ else jax.lax.bitcast_convert_type(leaf, jnp.uint32)


def number(words: Array, kind: Any) -> Array:
    """The other way round."""
    return words.astype(jnp.bool_) if kind == jnp.bool_ else jax.lax.bitcast_convert_type(words, kind)
