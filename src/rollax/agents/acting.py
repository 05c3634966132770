"""How an agent that knows the value of every action comes to choose one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax

from rollax.rules.policies import epsilon_greedy
from rollax.rules.returns import ReturnDistribution
from rollax.types import Array, Key, Observation

# Returns of all actions, of a key for noise and levels, or None for the mean network, and of given levels [B, N].
Ask = Callable[[Key | None, Array | None], ReturnDistribution]


@dataclass(frozen=True)
class NoisyActing:
    """With noise, where the network has any, as long as it explores; then with the mean network."""

    def choose(
        self, ask: Ask, obs: Observation, epsilon: Array | float, key: Key, *, explore: bool
    ) -> tuple[Array, Array]:
        """Actions `[B]`, of which the share `epsilon` is random, and the values `[B, A]` that they were chosen by."""
        noise_key, coin_key = jax.random.split(key)
        coins = jax.random.uniform(coin_key, (2, batch_size(obs)))
        q_values = ask(noise_key if explore else None, None).mean()
        return epsilon_greedy(coins, q_values, obs.legal, epsilon), q_values


def batch_size(obs: Observation) -> int:
    """Observations in a batch `[B, ...]`."""
    return jax.tree.leaves(obs.features)[0].shape[0]
