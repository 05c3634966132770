"""JAX's random numbers, drawn faster on a CPU.

JAX draws by the hash Threefry-2x32.  On a CPU it compiles the hash's twenty rounds as a loop, which is shorter to
compile and much longer to run: each turn of it starts more than a dozen small operations, where the rounds in a row are
one.  In a small program that is a third of all time.  The numbers are the same to the bit.
"""

from __future__ import annotations

import functools

import jax
import numpy as np
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

from rollax.types import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


@functools.cache
def draw_without_loops() -> None:
    """Compiles draws on a CPU without loops from here on, in the whole process."""
    rule = mlir.lower_fun(threefry_2x32, multiple_results=True)
    mlir.register_lowering(threefry2x32_p, rule, platform="cpu", inline=False)


def threefry_2x32(key_0: Array, key_1: Array, count_0: Array, count_1: Array) -> tuple[Array, Array]:
    """Two random words for each pair of counts, of 32 bits without a sign: five groups of four rounds."""
    keys = (key_0, key_1, key_0 ^ key_1 ^ PARITY)
    left, right = count_0 + keys[0], count_1 + keys[1]
    for group in range(1, 6):
        for turn in ROTATIONS[(group - 1) % 2]:
            left = left + right
            right = left ^ rotated(right, turn)
        left = left + keys[group % 3]
        right = right + keys[(group + 1) % 3] + np.uint32(group)
    return left, right


def rotated(word: Array, turn: int) -> Array:
    """The word with its bits moved to the left, those that fall out coming in again on the right."""
    return jax.lax.shift_left(word, np.uint32(turn)) | jax.lax.shift_right_logical(word, np.uint32(32 - turn))
