"""Small arrays of a step, written together."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.memory.rows import overwrite
from rollax.programs.bundles import MOST, scan_bundled


class Out(NamedTuple):
    number: Any
    other: Any
    flag: Any
    count: Any
    alone: Any
    small: Any  # of a type that is not bundled
    large: Any
    nothing: Any = ()


def step(carry, x):
    noise = jax.random.normal(x, (4,))
    bits = jnp.where(noise > 0, noise, jnp.array([jnp.nan, -jnp.inf, -0.0, 1e-42]))
    large = jnp.broadcast_to(carry, (MOST + 1,))
    out = Out(bits, noise + carry, noise > 0, jnp.int32(-7) * (noise > 0), noise[:3], noise.astype(jnp.bfloat16), large)
    return carry + jnp.sum(noise), out


@pytest.mark.parametrize("members", [0, 3])
def test_a_bundled_scan_is_a_scan_to_the_bit(members):
    keys = jax.random.split(jax.random.key(0), (5, members) if members else 5)

    def of(scan):
        def run(keys):
            return scan(step, jnp.float32(0.5), keys)

        return (jax.vmap(run, in_axes=1) if members else run)(keys)

    expected, found = of(jax.lax.scan), of(scan_bundled)
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert left.dtype == right.dtype
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


def test_a_bundled_scan_writes_each_shape_once():
    keys = jax.random.split(jax.random.key(0), 5)
    text = jax.jit(lambda keys: scan_bundled(step, jnp.float32(0.5), keys)).lower(keys).as_text()
    assert text.count("dynamic_update_slice") == 4  # four numbers each; three numbers; bfloat16; the large one


@pytest.mark.parametrize("own_place", [False, True])
def test_members_that_share_a_place_write_without_a_scatter(own_place):
    stores, values = jnp.zeros((3, 2, 9, 4)), jax.random.normal(jax.random.key(0), (3, 2, 2, 4))
    places = jnp.array([5, 1, 7])
    axes = (0, 0, 0 if own_place else None)
    write = jax.jit(jax.vmap(overwrite, axes))
    place = places if own_place else places[0]
    found = np.asarray(write(stores, values, place))
    for member in range(3):
        at = int(places[member] if own_place else places[0])
        expected = np.zeros((2, 9, 4), np.float32)
        expected[:, at : at + 2] = values[member]
        np.testing.assert_array_equal(found[member], expected)
    assert ("scatter" in write.lower(stores, values, place).as_text()) == own_place
    twice = jax.vmap(jax.vmap(overwrite, (0, 0, None)), (0, 0, None))
    both = twice(jnp.stack([stores, stores]), jnp.stack([values, values]), places[0])
    np.testing.assert_array_equal(both[1], jax.vmap(overwrite, (0, 0, None))(stores, values, places[0]))
