"""Random numbers without loops: the same as JAX's own, to the bit."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from rollax.programs.draws import MANY, PARITY, loop_of_rounds, row_of_rounds, stored_rounds

# Known answers of Threefry-2x32 with twenty rounds: keys, counts, results (Salmon et al. 2011, the Random123 vectors).
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
WAYS = [row_of_rounds, loop_of_rounds, stored_rounds]
DRAWS = """
import sys
from contextlib import nullcontext
import jax, numpy as np
from rollax.programs.draws import _replace_rule, rounds_in_a_row
def draws(key):
    keys = jax.random.split(key, (3, 2))
    shuffled = jax.random.permutation(key, 33)
    normal = jax.vmap(jax.vmap(lambda key: jax.random.normal(key, (5,))))(keys)
    bits = [jax.random.bits(key, (7,), dtype) for dtype in ("uint8", "uint16", "uint32")]
    return jax.random.key_data(keys), jax.random.key_data(jax.random.fold_in(key, 9)), shuffled, normal, bits
def large(key):
    keys = jax.random.split(key, 3)
    return jax.random.normal(key, (301,)), jax.vmap(lambda key: jax.random.bits(key, (200,)))(keys)
if sys.argv[1] == "loop": _replace_rule()
with rounds_in_a_row() if sys.argv[1] == "row" else nullcontext():
    programs = [jax.jit(function).lower(jax.random.key(3)) for function in (draws, large)]
results = [program.compile()(jax.random.key(3)) for program in programs]
values = [np.asarray(value).tobytes().hex() for value in jax.tree.leaves(results)]
print("while" in programs[0].as_text(), *values)
"""


@pytest.mark.parametrize(("keys", "counts", "results"), KNOWN)
@pytest.mark.parametrize("draw", [*WAYS, *map(jax.jit, WAYS)])
def test_known_answers(keys, counts, results, draw):
    words = [jnp.array([number], jnp.uint32) for number in (*keys, *counts)]
    assert tuple(int(word[0]) for word in draw(*words)) == results


def test_every_draw_is_jaxs_own():
    """JAX's own, in processes of their own, as one that has replaced it does not go back."""
    jaxs, loop, row = (
        subprocess.run([sys.executable, "-c", DRAWS, which], check=True, capture_output=True, text=True).stdout.split()
        for which in ("jax", "loop", "row")
    )
    assert (jaxs[0], loop[0], row[0]) == ("True", "True", "False")
    assert jaxs[1:] == loop[1:] == row[1:]


def test_words_that_are_stored_are_the_same_however_often_their_loop_runs():
    counts = jnp.arange(2 * MANY, dtype=jnp.uint32)
    for first in (PARITY, PARITY ^ 1):
        words = [jnp.array([number], jnp.uint32) for number in (first, 7)]
        for stored, row in zip(
            stored_rounds(*words, counts, counts), row_of_rounds(*words, counts, counts), strict=True
        ):
            assert stored.tolist() == row.tolist()
