"""The look for numbers that are not finite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.programs.compiling import FULL, LIGHT, NONE
from rollax.programs.loop import SMALL, first_not_finite

SHAPES = [(), (5,), (64,), (65,), (7, 33), (128, 64), (3, 64, 64), (SMALL + 1,)]
BAD = [np.nan, -np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("level", [FULL, LIGHT, NONE], ids=["full", "light", "none"])
@pytest.mark.parametrize("members", [0, 2])
def test_any_number_that_is_not_finite_is_found_wherever_it_is(members, level):
    """In each tensor, at its first, its last and random places.  XLA's own maximum of floats leaves out some NaNs."""
    draw, lead = np.random.default_rng(0), (members,) if members else ()
    tensors = [draw.normal(size=(*lead, *shape)).astype(np.float32) for shape in SHAPES]
    tensors[1].flat[0] = np.finfo(np.float32).max  # finite, and as large as can be
    look = jax.vmap(first_not_finite) if members else first_not_finite
    compiled = jax.jit(look).lower(tensors).compile(level)
    assert np.all(compiled(tensors) == len(tensors))
    for index, tensor in enumerate(tensors):
        for place in {0, tensor.size - 1, *draw.integers(tensor.size, size=6).tolist()}:
            for value in BAD:
                kept, tensor.flat[place] = tensor.flat[place], value
                expected = np.full(lead, len(tensors))
                expected[place * members // tensor.size if members else ...] = index
                np.testing.assert_array_equal(
                    compiled(tensors), expected, err_msg=f"{value} at {place} of {tensor.shape}"
                )
                tensor.flat[place] = kept


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_other_precisions_are_looked_at_too(dtype):
    for value in (1.0, np.nan, np.inf):
        found = first_not_finite([jnp.ones(3), jnp.ones(9, dtype).at[4].set(value)])
        assert int(found) == (2 if value == 1.0 else 1)


def test_of_several_the_first_is_named():
    large = jnp.ones(SMALL + 1)
    assert int(first_not_finite([jnp.ones(3), large.at[7].set(jnp.nan), jnp.array(jnp.inf)])) == 1
    assert int(first_not_finite([jnp.array(jnp.inf), large.at[7].set(jnp.nan)])) == 0
