"""Convolution and max pooling over images `[B, H, W, C]`, in forms that stay fast inside `lax.scan` and under `vmap`.

On a CPU XLA's own convolution takes many times as long, most of it for the kernel's gradient, and on a GPU too it is
slow when `vmap` over members turns it into a grouped one (`benchmarks/pixels.py` has the numbers).  Here an image is
cut into blocks of one stride, so that neighbours inside a block are already contiguous; the few shifts of whole blocks
are joined on the channel axis, and one matrix product does the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from rollax.types import Array

Padding = Literal["VALID", "SAME"]
# Rows of a kernel are multiplied apart and added up afterwards, which copies less of the image, where each of them
# holds at least this many numbers: a shallower product is slower than the copies are.
LEAST_DEPTH = 32


class Axis(NamedTuple):
    """How windows lie along one axis of an image."""

    outputs: int
    before: int  # padding
    after: int  # padding; negative where the last pixels are in no window
    blocks: int  # blocks of one stride in a window, the last perhaps in part

    @classmethod
    def of(cls, size: int, window: int, stride: int, padding: Padding) -> Axis:
        outputs = -(-size // stride) if padding == "SAME" else (size - window) // stride + 1
        before = max((outputs - 1) * stride + window - size, 0) // 2 if padding == "SAME" else 0
        blocks = -(-window // stride)
        return cls(outputs, before, (outputs - 1 + blocks) * stride - size - before, blocks)


def pad_image(x: Array, rows: Axis, columns: Axis, value: float = 0) -> Array:
    """The image padded, or cropped, to the blocks that its windows cover."""
    edges = (0, 0, 0), (rows.before, rows.after, 0), (columns.before, columns.after, 0), (0, 0, 0)
    return x if edges == ((0, 0, 0),) * 4 else lax.pad(x, jnp.asarray(value, x.dtype), edges)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def add_rows(x: Array, count: int) -> Array:
    """`[B, R, W, shifts, C]` to `[B, count, W, C]`: the sum over shifts `i` of the rows from `i` on."""
    return functools.reduce(jnp.add, [x[:, i : i + count, :, i] for i in range(x.shape[3])])


def _add_rows_forward(x: Array, count: int) -> tuple[Array, int]:
    return add_rows(x, count), x.shape[3]


def _add_rows_backward(count: int, shifts: int, gradient: Array) -> tuple[Array]:
    # What autodiff would write instead is a sum of padded copies, each of the whole result.
    edge = shifts - 1
    padded = jnp.pad(gradient, ((0, 0), (edge, edge), (0, 0), (0, 0)))
    shifted = [padded[:, edge - i : 2 * edge - i + count] for i in range(shifts)]
    return (jnp.concatenate(shifted, axis=-1).reshape(*shifted[0].shape[:3], shifts, -1),)


add_rows.defvjp(_add_rows_forward, _add_rows_backward)


def convolve(x: Array, kernel: Array, strides: tuple[int, int] = (1, 1), padding: Padding = "VALID") -> Array:
    """`[B, H, W, C]` and `[kh, kw, C, F]` to `[B, rows, columns, F]`, as `flax.linen.Conv` without bias.

    The kernel's dtype is that of the products and of the result.
    """
    batch, height, width, channels = x.shape
    down, across = strides
    window, features = kernel.shape[:2], kernel.shape[-1]
    rows = Axis.of(height, window[0], down, padding)
    columns = Axis.of(width, window[1], across, padding)
    covered = rows.outputs - 1 + rows.blocks
    blocks = pad_image(x, rows, columns).reshape(batch, covered, down, -1, across * channels)
    whole = (rows.blocks * down - window[0], columns.blocks * across - window[1])
    kernel = jnp.pad(kernel, ((0, whole[0]), (0, whole[1]), (0, 0), (0, 0))) if any(whole) else kernel

    def product(starts: range, length: int, matrix: Array) -> Array:
        """Multiplies what windows hold of the `length` block rows from each start on."""
        shifts = [(i, row, j) for i in starts for row in range(down) for j in range(columns.blocks)]
        parts = [blocks[:, i : i + length, row, j : j + columns.outputs] for i, row, j in shifts]
        held = jnp.concatenate(parts, axis=-1).astype(kernel.dtype)
        # Two axes, or the product would not be handed to the fast matrix library.
        flat = held.reshape(-1, held.shape[-1]) @ matrix
        return flat.reshape(batch, length, columns.outputs, -1)

    if rows.blocks == 1 or down * columns.blocks * across * channels < LEAST_DEPTH:
        return product(range(rows.blocks), rows.outputs, kernel.reshape(-1, features))
    matrix = jnp.moveaxis(kernel.reshape(rows.blocks, -1, features), 0, 1)
    partial = product(range(1), covered, matrix.reshape(-1, rows.blocks * features))
    return add_rows(partial.reshape(*partial.shape[:3], rows.blocks, features), rows.outputs)


def max_pool(x: Array, window: tuple[int, int], strides: tuple[int, int], padding: Padding = "VALID") -> Array:
    """As `flax.linen.max_pool`; of equal numbers the first in reading order gets the gradient, as there."""
    if jax.default_backend() != "cpu":
        return nn.max_pool(x, window, strides, padding)
    rows = Axis.of(x.shape[1], window[0], strides[0], padding)
    columns = Axis.of(x.shape[2], window[1], strides[1], padding)

    def first(a: Array, b: Array) -> Array:
        return jnp.where((a >= b) | jnp.isnan(a), a, b)  # what is not a number stays to be noticed

    def along(x: Array, axis: int, places: Axis, size: int, stride: int) -> Array:
        last = (places.outputs - 1) * stride + 1
        parts = [lax.slice_in_dim(x, i, i + last, stride, axis) for i in range(size)]
        return functools.reduce(first, parts)

    x = along(pad_image(x, rows, columns, -math.inf), 2, columns, window[1], strides[1])
    return along(x, 1, rows, window[0], strides[0])


class Conv(nn.Module):
    """`flax.linen.Conv` with the parameters of that name and shape, computed by `convolve`.

    Bool and uint8 images may be passed as they are; `scale=1/255` brings bytes to [0, 1] through the kernel.
    """

    features: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: Padding = "VALID"
    scale: float = 1.0  # A factor for the input.
    dtype: Any = None  # Of products and results; None for that of the parameters.
    kernel_init: Callable[..., Any] = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", self.kernel_init, (*self.kernel_size, x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        kernel = kernel if self.scale == 1 else kernel * self.scale
        kernel, bias = (value.astype(self.dtype or value.dtype) for value in (kernel, bias))
        return convolve(x, kernel, self.strides, self.padding) + bias
