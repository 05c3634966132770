"""What a Q-network's output means, and how far it is from its Bellman target."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp

from rollax.types import Array


class ReturnDistribution(Protocol):
    """The return of every action, as a network describes it.  A pytree."""

    def mean(self) -> Array:
        """Q-values `[B, A]`."""
        ...

    def at(self, action: Array) -> Self:
        """The return of one action for each row: without the axis of actions."""
        ...

    def bellman_loss(self, reward: Array, discount: Array, successor: Self, kappa: Array | float) -> Array:
        """One loss `[B]` for each row, against `reward + discount * successor`, which gets no gradient."""
        ...


def huber(error: Array, kappa: Array | float) -> Array:
    """`error**2 / 2` up to `kappa`, linear beyond; an infinite `kappa` makes it the squared loss."""
    size = jnp.abs(error)
    quadratic = jnp.minimum(size, kappa)
    return quadratic * (size - 0.5 * quadratic)  # a product of finite numbers, also where kappa is infinite


class Scalar(NamedTuple):
    """The expected return alone."""

    values: Array  # [B, A], or [B] after `at`

    def mean(self) -> Array:
        return self.values

    def at(self, action: Array) -> Scalar:
        # A masked sum rather than a gather, whose gradient would be a slow scatter.
        chosen = jnp.arange(self.values.shape[-1]) == action[..., None]
        return Scalar(jnp.sum(jnp.where(chosen, self.values, 0.0), axis=-1))

    def bellman_loss(self, reward: Array, discount: Array, successor: Scalar, kappa: Array | float) -> Array:
        target = jax.lax.stop_gradient(reward + discount * successor.values)
        return huber(self.values - target, kappa)
