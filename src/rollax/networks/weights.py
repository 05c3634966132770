"""How a network's weights are initialised."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from rollax.types import Array, Key, Params


def orthogonal(scale: float) -> Callable[..., Array]:
    """Initial weights `[rows, columns]`: orthonormal along the longer side, times the scale.

    Those of `jax.nn.initializers.orthogonal` to rounding, by Gram and Schmidt's way and not by LAPACK's QR: that hangs
    in a batch of members on two cores (jaxlib 0.10.2), and crashes in a program that was compiled by another process.
    """

    def values(key: Key, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        rows, columns = shape
        drawn = jax.random.normal(key, (max(shape), min(shape)), dtype)

        def add(index: Array, basis: Array) -> Array:
            column = drawn[:, index]
            for _ in range(2):  # once leaves rounding errors of nearly parallel columns, twice does not
                column = column - basis @ (basis.T @ column)
            return basis.at[:, index].set(column / jnp.linalg.norm(column))

        basis = jax.lax.fori_loop(0, min(shape), add, jnp.zeros_like(drawn))
        return scale * (basis if rows >= columns else basis.T)

    return values


@dataclass(frozen=True)
class FlaxWeights:
    """As each layer has it: kernels of variance 1 / inputs, biases 0."""

    def begin(self, key: Key, params: Params) -> Params:
        """The weights to begin with, from those that the layers drew."""
        return params


@dataclass(frozen=True)
class TorchWeights:
    """Kernels and biases of plain layers uniform within 1 / sqrt(inputs), as PyTorch has them; noisy layers stay."""

    def begin(self, key: Key, params: Params) -> Params:
        layers = [0]  # a key for each layer, in their order

        def redraw(tree: Any) -> Any:
            if not isinstance(tree, dict):
                return tree
            if set(tree) != {"kernel", "bias"}:
                return {name: redraw(branch) for name, branch in tree.items()}
            layers[0] += 1
            kernel_key, bias_key = jax.random.split(jax.random.fold_in(key, layers[0]))
            reach = 1 / math.sqrt(math.prod(tree["kernel"].shape[:-1]))

            def drawn(key: Key, like: Array) -> Array:
                return jax.random.uniform(key, like.shape, like.dtype, -reach, reach)

            return {"kernel": drawn(kernel_key, tree["kernel"]), "bias": drawn(bias_key, tree["bias"])}

        return redraw(params)
