"""Distributions over actions: how a policy draws, what it likes best, and how sure it is."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.rules.policies import mask_illegal
from rollax.types import Array, Key


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
