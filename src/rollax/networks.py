"""From features to returns: torsos, streams, heads, and the Q-network that joins them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from rollax.limits import COUNT, POSITIVE, Limit
from rollax.returns import ReturnDistribution, Scalar
from rollax.types import Array, Observation


def flatten_features(features: Any) -> Array:
    """Every leaf `[B, ...]` as float32, flattened and joined to one vector for each row."""
    leaves = jax.tree.leaves(features)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves], axis=-1)


class MLP(nn.Module):
    """Dense layers with ReLU over the flattened features."""

    hidden: tuple[int, ...] = (128, 128)  # Units of each hidden layer.
    input_scale: tuple[float, ...] = ()  # A factor for each number of the observation; empty for none.
    limits: ClassVar[dict[str, Limit]] = {"hidden": COUNT, "input_scale": POSITIVE}

    def problems(self, observation: Observation) -> list[str]:
        size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(observation.features))
        if len(self.input_scale) in (0, size):
            return []
        return [f"input_scale has {len(self.input_scale)} numbers, but the observation has {size}"]

    @nn.compact
    def __call__(self, features: Any) -> Array:
        x = flatten_features(features)
        if self.input_scale:
            x = x * jnp.array(self.input_scale, jnp.float32)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width)(x))
        return x


class Streams(nn.Module):
    """Features `[B, D]` to `[B, num_actions, width]`; dueling adds a state's value to centred advantages."""

    num_actions: int
    width: int
    dueling: bool
    hidden: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        def stream(name: str, outputs: int) -> Array:
            inner = nn.relu(nn.Dense(self.hidden, name=f"{name}_hidden")(x)) if self.hidden else x
            return nn.Dense(outputs * self.width, name=name)(inner).reshape(-1, outputs, self.width)

        advantage = stream("advantage", self.num_actions)
        if not self.dueling:
            return advantage
        return stream("value", 1) + advantage - jnp.mean(advantage, axis=1, keepdims=True)


class ScalarHead(nn.Module):
    """One number for each action: its expected return."""

    width = 1

    def __call__(self, x: Array, streams: Streams) -> ReturnDistribution:
        return Scalar(streams(x)[..., 0])


class QNetwork(nn.Module):
    """A torso, then a head that says what the return of each action is made of."""

    num_actions: int
    torso: nn.Module
    head: nn.Module
    dueling: bool = False
    stream_hidden: int = 0

    @nn.compact
    def __call__(self, features: Any) -> ReturnDistribution:
        streams = Streams(self.num_actions, self.head.width, self.dueling, self.stream_hidden)
        return self.head(self.torso(features), streams)
