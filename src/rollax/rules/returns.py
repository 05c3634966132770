"""What a Q-network's output means, and how far it is from its Bellman target."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp

from rollax.types import Array


class BellmanError(NamedTuple):
    """How wrong each prediction was."""

    loss: Array  # [B], what learning makes smaller
    priority: Array  # [B], never negative and without a gradient: how much a prioritised replay wants to see it again


class ReturnDistribution(Protocol):
    """The return of every action, as a network describes it.  A pytree."""

    def mean(self) -> Array:
        """Q-values `[B, A]`."""
        ...

    def under(self, policy: Array) -> Self:
        """The return of an action drawn from a policy `[B, A]`: without the axis of actions."""
        ...

    def bellman_error(self, reward: Array, discount: Array, successor: Self, kappa: Array | float) -> BellmanError:
        """Against `reward + discount * successor`, which gets no gradient.  Both are without the axis of actions."""
        ...


def huber(error: Array, kappa: Array | float) -> Array:
    """`error**2 / 2` up to `kappa`, linear beyond; an infinite `kappa` makes it the squared loss."""
    size = jnp.abs(error)
    quadratic = jnp.minimum(size, kappa)
    return quadratic * (size - 0.5 * quadratic)  # a product of finite numbers, also where kappa is infinite


class Scalar(NamedTuple):
    """The expected return alone.  Its priority is the absolute error."""

    values: Array  # [B, A], or [B] of one action

    def mean(self) -> Array:
        return self.values

    def under(self, policy: Array) -> Scalar:
        # A weighted sum rather than a gather, whose gradient would be a slow scatter.
        return Scalar(jnp.sum(policy * self.values, axis=-1))

    def bellman_error(self, reward: Array, discount: Array, successor: Scalar, kappa: Array | float) -> BellmanError:
        error = self.values - jax.lax.stop_gradient(reward + discount * successor.values)
        return BellmanError(huber(error, kappa), jax.lax.stop_gradient(jnp.abs(error)))


class Rescaled(NamedTuple):
    """The expected return on a scale that grows like its root (Pohlen et al. 2018); its priority is the error there."""

    squashed: Array  # [B, A], or [B] of one action

    def mean(self) -> Array:
        return unsquash(self.squashed)

    def under(self, policy: Array) -> Rescaled:
        pure = jnp.max(policy, axis=-1) == 1.0
        chosen = jnp.sum(policy * self.squashed, axis=-1)
        mixed = squash(jnp.sum(policy * unsquash(self.squashed), axis=-1))
        return Rescaled(jnp.where(pure, chosen, mixed))

    def bellman_error(self, reward: Array, discount: Array, successor: Rescaled, kappa: Array | float) -> BellmanError:
        target = squash(reward + discount * unsquash(successor.squashed))
        error = self.squashed - jax.lax.stop_gradient(target)
        return BellmanError(huber(error, kappa), jax.lax.stop_gradient(jnp.abs(error)))


SLOPE = 1e-3  # of `squash` far from 0, where its root has none left


def squash(x: Array) -> Array:
    """A number on a scale that grows like its root: `sign(x) * (sqrt(abs(x) + 1) - 1) + SLOPE * x`."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1) - 1) + SLOPE * x


def unsquash(x: Array) -> Array:
    """The number that `squash` made this of; without the difference of large numbers of the usual formula."""
    size = jnp.abs(x) + 1 + SLOPE
    root = 2 * size / (jnp.sqrt(1 + 4 * SLOPE * size) + 1)  # sqrt(number + 1)
    return jnp.sign(x) * (root - 1) * (root + 1)


class Categorical(NamedTuple):
    """Probabilities of returns on a fixed, evenly spaced support (C51).  Its priority is its loss."""

    logits: Array  # [B, A, atoms], or [B, atoms] of one action; log-probabilities up to a constant
    support: Array  # [atoms], rising

    def mean(self) -> Array:
        return jnp.sum(jax.nn.softmax(self.logits) * self.support, axis=-1)

    def under(self, policy: Array) -> Categorical:
        """The mixture of the actions' distributions."""
        mixed = jnp.sum(policy[..., None] * jax.nn.softmax(self.logits), axis=-2)
        # Of a policy with one action the logits themselves, which keep what probabilities would round to 0.
        chosen = jnp.sum(policy[..., None] * self.logits, axis=-2)
        pure = jnp.max(policy, axis=-1, keepdims=True) == 1.0
        return Categorical(jnp.where(pure, chosen, jnp.log(jnp.where(pure, 1.0, mixed))), self.support)

    def bellman_error(
        self, reward: Array, discount: Array, successor: Categorical, kappa: Array | float
    ) -> BellmanError:
        """The Kullback-Leibler divergence from the projected target: 0 where the prediction is right."""
        del kappa  # probabilities have no outliers
        atoms = reward[:, None] + discount[:, None] * successor.support
        target = jax.lax.stop_gradient(project(atoms, jax.nn.softmax(successor.logits), self.support))
        loss = jnp.sum(jax.scipy.special.xlogy(target, target) - target * jax.nn.log_softmax(self.logits), axis=-1)
        return BellmanError(loss, jax.lax.stop_gradient(jnp.maximum(loss, 0.0)))


class Quantiles(NamedTuple):
    """Returns at levels `taus` of their distribution (QR-DQN, IQN).  Its priority is its loss."""

    values: Array  # [B, A, N], or [B, N] of one action
    taus: Array  # [B, N] in (0, 1): the level of each value

    def mean(self) -> Array:
        return jnp.mean(self.values, axis=-1)

    def under(self, policy: Array) -> Quantiles:
        """The quantiles averaged over the actions."""
        return Quantiles(jnp.sum(policy[..., None] * self.values, axis=-2), self.taus)

    def bellman_error(self, reward: Array, discount: Array, successor: Quantiles, kappa: Array | float) -> BellmanError:
        """Over all pairs of a predicted and a target quantile: summed over predictions, averaged over targets."""
        targets = jax.lax.stop_gradient(reward[:, None] + discount[:, None] * successor.values)
        error = targets[:, None, :] - self.values[:, :, None]  # [B, predicted, target]
        weight = jnp.abs(self.taus[:, :, None] - (error < 0))
        loss = jnp.sum(jnp.mean(weight * huber(error, kappa), axis=2), axis=1)
        return BellmanError(loss, jax.lax.stop_gradient(loss))


def project(atoms: Array, probabilities: Array, support: Array) -> Array:
    """Moves probabilities `[B, M]` of values `atoms` `[B, M]` onto an evenly spaced `support` `[N]`.

    Each value's probability is shared by its two neighbours on the support so that the mean is kept;
    values beyond the ends count as the ends.  Comes back as `[B, N]` and sums to what was given.
    """
    step = support[1] - support[0]
    inside = jnp.clip(atoms, support[0], support[-1])
    # A neighbour's share falls from 1 to 0 over one step of distance.
    share = jnp.clip(1.0 - jnp.abs(inside[:, :, None] - support) / step, 0.0, 1.0)  # [B, M, N]
    return jnp.sum(share * probabilities[:, :, None], axis=1)
