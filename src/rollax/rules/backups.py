"""The policy that a Bellman target assumes in the next state, and the bonus that it adds to the reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.rules.policies import greedy, mask_illegal
from rollax.settings import NOT_NEGATIVE, POSITIVE, Limit, setting
from rollax.types import Array, Observation


class Successor(NamedTuple):
    """How a target goes on from the next state."""

    policy: Array  # [B, A], never on an illegal action
    bonus: Array | float  # [B], added to the value of the next state


@dataclass(frozen=True)
class GreedyBackup:
    """The best legal action follows (Q-learning)."""

    def follow(self, q_values: Array, obs: Observation) -> Successor:
        """What is done in `obs`, whose actions have these values `[B, A]`."""
        return Successor(jax.nn.one_hot(greedy(q_values, obs.legal), q_values.shape[-1]), 0.0)

    def reward_bonus(self, q_values: Callable[[], Array], obs: Observation, action: Array) -> Array | float:
        """What is added to the reward for taking `action` in `obs`, whose values are asked for if they are needed."""
        return 0.0


@dataclass(frozen=True)
class MunchausenBackup(GreedyBackup):
    """A soft policy follows, and the log-probability of the action taken joins the reward (Vieillard et al. 2020).

    The policy is `softmax(q / temperature)` of the target weights over the legal actions.
    """

    temperature: float = setting(0.03, "Temperature of the soft policy that Munchausen targets follow.", limit=POSITIVE)
    log_policy_weight: float = setting(
        0.9, "Share of the scaled log-probability that Munchausen targets add to the reward.", limit=NOT_NEGATIVE
    )
    log_policy_floor: float = setting(
        -1.0,
        "Lowest scaled log-probability that Munchausen targets add to the reward.",
        limit=Limit(-1e6, 0.0),
        rare=True,
    )

    def log_policy(self, q_values: Array, legal: Array | None) -> Array:
        """`temperature * log(policy)` `[B, A]`; very low, but finite, on illegal actions."""
        scores = mask_illegal(q_values, legal)
        best = jnp.max(scores, axis=-1, keepdims=True)
        # Before the division, so that what is masked does not overflow.
        shifted = jnp.maximum(scores - best, jnp.finfo(scores.dtype).min * min(self.temperature, 1.0))
        return self.temperature * jax.nn.log_softmax(shifted / self.temperature)

    def follow(self, q_values: Array, obs: Observation) -> Successor:
        scaled = self.log_policy(q_values, obs.legal)
        policy = jnp.exp(scaled / self.temperature)
        return Successor(policy, -jnp.sum(jnp.where(policy > 0, policy * scaled, 0.0), axis=-1))

    def reward_bonus(self, q_values: Callable[[], Array], obs: Observation, action: Array) -> Array | float:
        scaled = self.log_policy(q_values(), obs.legal)
        taken = jnp.sum(jnp.where(jax.nn.one_hot(action, scaled.shape[-1], dtype=bool), scaled, 0.0), axis=-1)
        return self.log_policy_weight * jnp.clip(taken, self.log_policy_floor, 0.0)
