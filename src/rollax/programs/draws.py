"""JAX's random numbers, drawn faster on a CPU where it matters.

JAX draws by the hash Threefry-2x32.  On a CPU it compiles the hash's twenty rounds as a loop, which is short to compile
and long to run: each turn of it starts more than a dozen small operations, where the rounds in a row are one.  In a
small training program that is up to a fifth of all time.  The numbers are the same to the bit.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

from rollax.types import Array

ROTATIONS = np.array([[13, 15, 26, 6], [17, 29, 16, 24]], np.uint32)
GROUPS = 5  # of four rounds
PARITY = np.uint32(0x1BD11BDA)
MANY = 64  # words of one key that are stored
_in_a_row = ContextVar("draws are compiled in a row", default=False)


@contextmanager
def rounds_in_a_row() -> Generator[None]:
    """What is lowered in here draws without loops on a CPU."""
    _replace_rule()
    token = _in_a_row.set(True)
    try:
        yield
    finally:
        _in_a_row.reset(token)


@functools.cache
def _replace_rule() -> None:
    """From here on JAX asks `_draw` how to compile a draw for a CPU."""
    mlir.register_lowering(threefry2x32_p, mlir.lower_fun(_draw, multiple_results=True), platform="cpu", inline=False)


def _draw(key_0: Array, key_1: Array, count_0: Array, count_1: Array) -> tuple[Array, Array]:
    if not _in_a_row.get():
        return loop_of_rounds(key_0, key_1, count_0, count_1)
    draw = stored_rounds if count_0.size >= MANY * key_0.size else row_of_rounds
    return draw(key_0, key_1, count_0, count_1)


def stored_rounds(key_0: Array, key_1: Array, count_0: Array, count_1: Array) -> tuple[Array, Array]:
    """The words of `row_of_rounds`, each computed once.

    XLA would put the rounds into everything that reads a word, those of the word's key too, and compute them there for
    each element anew.  The result of a loop is stored, if XLA cannot know that it runs once; twice changes nothing.
    """
    turns = 1 + (jnp.ravel(key_0)[0] == PARITY).astype(jnp.int32)
    blank = jnp.zeros(jnp.broadcast_shapes(key_0.shape, count_0.shape), jnp.uint32)

    def turn(state: tuple) -> tuple:
        return state[0] + 1, row_of_rounds(key_0, key_1, count_0, count_1)

    return jax.lax.while_loop(lambda state: state[0] < turns, turn, (jnp.int32(0), (blank, blank)))[1]


def row_of_rounds(key_0: Array, key_1: Array, count_0: Array, count_1: Array) -> tuple[Array, Array]:
    """Two random words of 32 bits for each pair of counts."""
    keys = (key_0, key_1, key_0 ^ key_1 ^ PARITY)
    words = (count_0 + keys[0], count_1 + keys[1])
    for number in range(1, GROUPS + 1):
        turned = (keys[number % 3], keys[(number + 1) % 3])
        words = _group(words, turned, ROTATIONS[(number - 1) % 2], np.uint32(number))
    return words


def loop_of_rounds(key_0: Array, key_1: Array, count_0: Array, count_1: Array) -> tuple[Array, Array]:
    """The same, as a loop over the groups."""
    key_0, key_1 = jnp.broadcast_arrays(key_0, key_1)  # to one another, not to the counts: a loop carries them
    count_0, count_1, _ = jnp.broadcast_arrays(count_0, count_1, key_0)

    def turn(number: Array, state: tuple) -> tuple:
        words, (first, *rest), (now, later) = state
        words = _group(words, (first, rest[0]), now, (number + 1).astype(jnp.uint32))
        return words, (*rest, first), (later, now)

    start = (count_0 + key_0, count_1 + key_1)
    keys = (key_1, key_0 ^ key_1 ^ PARITY, key_0)
    rotations = (jnp.asarray(ROTATIONS[0]), jnp.asarray(ROTATIONS[1]))
    words, _, _ = jax.lax.fori_loop(0, GROUPS, turn, (start, keys, rotations))
    return words


def _group(words: tuple[Array, Array], keys: tuple[Array, Array], rotations: Any, number: Any) -> tuple:
    """Four rounds, and the keys that come in after them."""
    left, right = words
    for index in range(4):
        left = left + right
        high = jax.lax.shift_left(right, jnp.broadcast_to(rotations[index], right.shape))
        low = jax.lax.shift_right_logical(right, jnp.broadcast_to(np.uint32(32) - rotations[index], right.shape))
        right = left ^ (high | low)
    return left + keys[0], right + keys[1] + number
