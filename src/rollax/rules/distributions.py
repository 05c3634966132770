"""Distributions over actions: how a policy draws, what it likes best, and how sure it is."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rollax.rules.policies import mask_illegal
from rollax.types import Array, Key

INSIDE = 1.0 - 2.0**-20  # the outermost of a squashed action whose logarithm of density can be told
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # of means over a standard normal number


class Distribution(Protocol):
    """Over actions `[...]` or `[..., size]`, as an agent speaks of them."""

    def draw(self, key: Key) -> Array:
        """An action by chance."""
        ...

    def mode(self) -> Array:
        """The action to take where nothing is to be explored."""
        ...

    def log_prob(self, action: Array) -> Array:
        """The logarithm of the chance, or of the density, of each action, `[...]`."""
        ...

    def entropy(self) -> Array:
        """How undecided it is, `[...]`; of densities it may be negative."""
        ...


class Placed(Distribution, Protocol):
    """One over numbers, which standard normal noise stands for."""

    def place(self, noise: Array) -> Array:
        """The actions that noise `[..., size]` stands for."""
        ...


class MaskedCategorical(NamedTuple):
    """One of several actions, of which some may be illegal: those have no probability."""

    log_probs: Array  # [..., A]; of illegal actions the lowest finite number

    def draw(self, key: Key) -> Array:
        """An action `[...]` by chance."""
        return jax.random.categorical(key, self.log_probs).astype(jnp.int32)

    def mode(self) -> Array:
        """The likeliest action `[...]`; the first of several equal ones."""
        return jnp.argmax(self.log_probs, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        """The logarithm of the chance of each action `[...]`."""
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> Array:
        """How undecided it is, `[...]`: 0 where one action is certain."""
        # An illegal action has no chance, and its lowest finite score makes 0 * score a true 0.
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)


def masked_categorical(scores: Array, legal: Array | None) -> MaskedCategorical:
    """The softmax of scores `[..., A]` over the legal actions; None means that all are."""
    log_probs = jax.nn.log_softmax(mask_illegal(scores, legal))
    return MaskedCategorical(mask_illegal(log_probs, legal))


class Normal(NamedTuple):
    """Independent normal numbers, unbounded: what lies beyond -1 or 1 the environment cuts off."""

    mean: Array  # [..., size]
    log_deviation: Array  # likewise

    def draw(self, key: Key) -> Array:
        return self.place(jax.random.normal(key, self.mean.shape))

    def place(self, noise: Array) -> Array:
        """The action that this standard normal noise `[..., size]` stands for."""
        return self.mean + jnp.exp(self.log_deviation) * noise

    def mode(self) -> Array:
        return self.mean

    def log_prob(self, action: Array) -> Array:
        noise = (action - self.mean) * jnp.exp(-self.log_deviation)
        return -jnp.sum(0.5 * noise**2 + self.log_deviation + 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        return jnp.sum(self.log_deviation + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


class SquashedNormal(NamedTuple):
    """Independent normal numbers brought between -1 and 1 by the hyperbolic tangent."""

    mean: Array  # [..., size], before it is squashed
    log_deviation: Array  # likewise

    @property
    def before(self) -> Normal:
        """What is squashed."""
        return Normal(self.mean, self.log_deviation)

    def draw(self, key: Key) -> Array:
        return jnp.tanh(self.before.draw(key))

    def place(self, noise: Array) -> Array:
        """The action that this standard normal noise `[..., size]` stands for."""
        return jnp.tanh(self.before.place(noise))

    def place_with_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """The action of this noise, and the logarithm of its density, also where the action has rounded to a bound."""
        before = self.before.place(noise)
        density = self.log_deviation + 0.5 * math.log(2 * math.pi) + 0.5 * noise**2 + log_slope(before)
        return jnp.tanh(before), -jnp.sum(density, axis=-1)

    def mode(self) -> Array:
        """The squashed mean: half of the draws lie on either side of each number."""
        return jnp.tanh(self.mean)

    def log_prob(self, action: Array) -> Array:
        before = jnp.arctanh(jnp.clip(action, -INSIDE, INSIDE))
        return self.before.log_prob(before) - jnp.sum(log_slope(before), axis=-1)

    def entropy(self) -> Array:
        """By Gauss and Hermite's rule: nothing is drawn, and nobody has it in a closed form."""
        points = self.mean[..., None] + jnp.exp(self.log_deviation)[..., None] * NODES.astype(np.float32)
        shrunk = jnp.sum(log_slope(points) * (WEIGHTS / WEIGHTS.sum()).astype(np.float32), axis=(-1, -2))
        return self.before.entropy() + shrunk


def log_slope(x: Array) -> Array:
    """The logarithm of the slope of tanh, exact where tanh has rounded to 1."""
    return 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))


class Choices(NamedTuple):
    """Several independent choices, said as one vector of whole numbers in floating point."""

    each: tuple[MaskedCategorical, ...]

    def draw(self, key: Key) -> Array:
        keys = jax.random.split(key, len(self.each))
        return self.together([choice.draw(own) for choice, own in zip(self.each, keys, strict=True)])

    def mode(self) -> Array:
        return self.together([choice.mode() for choice in self.each])

    def together(self, chosen: list[Array]) -> Array:
        return jnp.stack(chosen, axis=-1).astype(jnp.float32)

    def log_prob(self, action: Array) -> Array:
        numbers = jnp.moveaxis(action.astype(jnp.int32), -1, 0)
        return sum_of([choice.log_prob(number) for choice, number in zip(self.each, numbers, strict=True)])

    def entropy(self) -> Array:
        return sum_of([choice.entropy() for choice in self.each])


class Product(NamedTuple):
    """Several independent distributions over vectors, said as one vector: each has so many of its numbers."""

    each: tuple[Distribution, ...]
    sizes: tuple[int, ...]

    def draw(self, key: Key) -> Array:
        keys = jax.random.split(key, len(self.each))
        return jnp.concatenate([part.draw(own) for part, own in zip(self.each, keys, strict=True)], axis=-1)

    def mode(self) -> Array:
        return jnp.concatenate([part.mode() for part in self.each], axis=-1)

    def log_prob(self, action: Array) -> Array:
        pieces = jnp.split(action, np.cumsum(self.sizes)[:-1], axis=-1)
        return sum_of([part.log_prob(piece) for part, piece in zip(self.each, pieces, strict=True)])

    def entropy(self) -> Array:
        return sum_of([part.entropy() for part in self.each])


def sum_of(terms: list[Array]) -> Array:
    """The sum of several arrays of one shape."""
    return jnp.sum(jnp.stack(terms), axis=0)
