"""The layers between a torso and a head: noisy or plain, in one stream or in two.

A pass draws what is random in it anew: the noise of noisy layers from the key `noise`, the levels of implicit
quantiles from the key `levels`.  Without keys it is the mean network, the same every time.  Both can also be given:
a pass is then a pure function of weights, features, noise and levels.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from rollax.settings import COUNT_OR_NONE, NOT_NEGATIVE, setting
from rollax.types import Array


class NoisyDense(nn.Module):
    """A dense layer whose weights are spread by noise around means that are learnt (Fortunato et al. 2018).

    `factorised` noise is an outer product of noise for inputs and for outputs, `independent` noise has a number for
    each weight.  Means and spreads start as in the paper.
    """

    features: int
    noise: str
    noise_scale: float

    def noise_size(self, inputs: int) -> int:
        """How many standard normal numbers one pass takes."""
        return inputs + self.features if self.noise == "factorised" else (inputs + 1) * self.features

    @nn.compact
    def __call__(self, x: Array, normals: Array | None) -> Array:
        """Without `normals`, as many as `noise_size` says, the layer of the means."""
        inputs, outputs = x.shape[-1], self.features
        factorised = self.noise == "factorised"
        reach = math.sqrt((1 if factorised else 3) / inputs)
        # The paper's spread of independent noise, 0.017, at its scale of 0.5.
        spread = self.noise_scale / math.sqrt(inputs) if factorised else 0.034 * self.noise_scale

        def mean(key: Any, shape: tuple[int, ...]) -> Array:
            return jax.random.uniform(key, shape, minval=-reach, maxval=reach)

        kernel, bias = self.param("kernel", mean, (inputs, outputs)), self.param("bias", mean, (outputs,))
        constant = nn.initializers.constant(spread)
        kernel_spread = self.param("kernel_spread", constant, (inputs, outputs))
        bias_spread = self.param("bias_spread", constant, (outputs,))
        if normals is None:
            return x @ kernel + bias
        of_weights, of_outputs = normals[:-outputs], normals[-outputs:]
        if factorised:
            of_weights, of_outputs = signed_root(of_weights)[:, None], signed_root(of_outputs)
            of_weights = of_weights * of_outputs
        return x @ (kernel + kernel_spread * of_weights.reshape(inputs, outputs)) + bias + bias_spread * of_outputs


def signed_root(x: Array) -> Array:
    """The root of the size, with the sign."""
    return jnp.sign(x) * jnp.sqrt(jnp.abs(x))


class Streams(nn.Module):
    """From features to numbers for each action; dueling adds a state's value to centred advantages."""

    dueling: bool = setting(False, "Use a dueling network: a state value and the advantages of its actions.")
    shared_hidden: int = setting(
        0,
        "Number of units of a hidden layer before a dueling network's streams part; 0 leaves it out.",
        limit=COUNT_OR_NONE,
        rare=True,
    )
    stream_hidden: int = setting(
        0,
        "Number of units of the hidden layer in each stream of the network's last layers; 0 leaves it out.",
        limit=COUNT_OR_NONE,
        rare=True,
    )
    noise: Literal["none", "factorised", "independent"] = setting(
        "none",
        "The kind of noisy linear layers that explore in place of random actions.",
        group="exploration",
        rare=True,
    )
    noise_scale: float = setting(
        0.5,
        "Initial standard deviation of noisy linear layers, before it is divided by the root of their inputs.",
        limit=NOT_NEGATIVE,
        group="exploration",
        rare=True,
    )

    @nn.compact
    def __call__(self, x: Array, num_actions: int, width: int, normals: Array | None = None) -> Array:
        """Features `[B, D]` to `[B, num_actions, width]`; `normals` are the noise of all layers, in turn."""
        outputs = {"advantage": num_actions} | ({"value": 1} if self.dueling else {})
        inputs = self.shared_hidden or x.shape[-1]
        sizes = {"shared": (x.shape[-1], self.shared_hidden)} if self.shared_hidden else {}  # inputs and units
        for name, count in outputs.items():
            if self.stream_hidden:
                sizes[f"{name}_hidden"] = inputs, self.stream_hidden
            sizes[name] = self.stream_hidden or inputs, count * width
        layers = self.noisy_layers(sizes, normals) if self.noise != "none" else self.plain_layers(sizes)
        x = nn.relu(layers["shared"](x)) if self.shared_hidden else x

        def stream(name: str) -> Array:
            inner = nn.relu(layers[f"{name}_hidden"](x)) if self.stream_hidden else x
            return layers[name](inner).reshape(-1, outputs[name], width)

        advantage = stream("advantage")
        if not self.dueling:
            return advantage
        return stream("value") + advantage - jnp.mean(advantage, axis=1, keepdims=True)

    def plain_layers(self, sizes: dict[str, tuple[int, int]]) -> dict[str, Callable[[Array], Array]]:
        return {name: nn.Dense(units, name=name) for name, (_, units) in sizes.items()}

    def noisy_layers(
        self, sizes: dict[str, tuple[int, int]], normals: Array | None
    ) -> dict[str, Callable[[Array], Array]]:
        made = {name: NoisyDense(units, self.noise, self.noise_scale, name=name) for name, (_, units) in sizes.items()}
        parts: list[Array | None] = [None] * len(made)
        counts = [made[name].noise_size(inputs) for name, (inputs, _) in sizes.items()]
        if normals is None and self.has_rng("noise"):
            # One draw for all layers: each draw of its own would be a hundred lines more to compile.  It is of whole
            # vectors: XLA draws an odd number of numbers one by one on a CPU, which takes five times as long.
            normals = jax.random.normal(self.make_rng("noise"), (-(-sum(counts) // 64) * 64,))
        if normals is not None:
            parts = [*jnp.split(normals[: sum(counts)], list(itertools.accumulate(counts))[:-1])]
        return {
            name: functools.partial(layer, normals=part)
            for (name, layer), part in zip(made.items(), parts, strict=True)
        }
