"""One learner on several devices: each has a share of its environments and of its memory, and all have its weights.

Devices form a mesh of two axes: over `MEMBERS` a population is spread, over `DATA` the environments of one member.
What is said here is for code inside such a program; with one share it changes nothing, and needs no mesh.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from rollax.types import Array, EnvSpec, Key

MEMBERS, DATA = "members", "data"

# The phases of an iteration, as scopes in the compiled program by which a profile tells operations apart.
ACTING = "acting"  # choosing actions
STEPPING = "stepping"  # the environments
REMEMBERING = "remembering"  # writing to the replay
SAMPLING = "sampling"  # choosing what to learn from, and fetching it
LEARNING = "learning"  # losses, gradients, optimizer
PHASES = (ACTING, STEPPING, REMEMBERING, SAMPLING, LEARNING)


def phase(name: str) -> Any:
    """A context: what is traced in it carries that name, and computes what it would without."""
    return jax.named_scope(name)


def mean_over(spec: EnvSpec, tree: Any) -> Any:
    """The mean of what all shards have: of equal shares, the mean of the whole."""
    return jax.lax.pmean(tree, DATA) if spec.shards > 1 else tree


def max_over(spec: EnvSpec, tree: Any) -> Any:
    """The largest that any shard has."""
    return jax.lax.pmax(tree, DATA) if spec.shards > 1 else tree


def min_over(spec: EnvSpec, tree: Any) -> Any:
    """The smallest that any shard has."""
    return jax.lax.pmin(tree, DATA) if spec.shards > 1 else tree


def sum_over(spec: EnvSpec, tree: Any) -> Any:
    """The sum of what all shards have."""
    return jax.lax.psum(tree, DATA) if spec.shards > 1 else tree


def own_key(spec: EnvSpec, key: Key) -> Key:
    """A key that no other shard has."""
    return jax.random.fold_in(key, jax.lax.axis_index(DATA)) if spec.shards > 1 else key


def mean_and_variance(spec: EnvSpec, rows: Array, axis: int | None = None) -> tuple[Array, Array]:
    """Of the rows of all shards together."""
    mean = mean_over(spec, jnp.mean(rows, axis=axis))
    return mean, mean_over(spec, jnp.mean(jnp.square(rows - mean), axis=axis))


def fetch(tree: Any) -> Any:
    """Arrays as NumPy's, whole, wherever they are.  With several processes, all of them must ask for the same."""
    return jax.tree.map(_fetched, tree)


def _fetched(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        # One leaf at a time: only that one is on every device whole.
        leaf = jax.jit(lambda x: x, out_shardings=NamedSharding(leaf.sharding.mesh, PartitionSpec()))(leaf)
    return np.asarray(leaf)
