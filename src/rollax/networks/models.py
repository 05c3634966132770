"""Whole networks: action values, and a policy with a value."""

from __future__ import annotations

from typing import Any

from flax import linen as nn

from rollax.networks.heads import Head
from rollax.networks.streams import Streams
from rollax.networks.torsos import Torso
from rollax.rules.returns import ReturnDistribution
from rollax.types import Array


class QNetwork(nn.Module):
    """A torso, streams over its features, and a head that says what the return of each action is made of."""

    num_actions: int
    torso: Torso
    streams: Streams
    head: Head

    def __call__(self, features: Any, noise: Array | None = None, levels: Array | None = None) -> ReturnDistribution:
        return self.head(self.torso(features), self.streams, self.num_actions, noise, levels)


class ActorCritic(nn.Module):
    """A torso with a policy and a value on top of it, or one torso for each."""

    num_actions: int
    torso: Torso
    shared: bool

    @nn.compact
    def __call__(self, features: Any) -> tuple[Array, Array]:
        """Scores of all actions `[B, A]`, of which the policy is the softmax, and values `[B]`."""
        actor = self.torso.clone(parent=self, name="actor")(features)
        critic = actor if self.shared else self.torso.clone(parent=self, name="critic")(features)
        # A policy that begins near uniform has nothing to unlearn.
        scores = nn.Dense(self.num_actions, kernel_init=nn.initializers.orthogonal(0.01), name="policy")(actor)
        value = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0), name="value")(critic)
        return scores, value[..., 0]
