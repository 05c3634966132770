"""How the values are asked for that an action is chosen by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from rollax.networks.heads import midpoints
from rollax.rules.returns import ReturnDistribution
from rollax.settings import COUNT, setting
from rollax.types import Array, Key

# Of a key for noise and levels, or None for the mean network, and of levels [B, N] of one's own.
Ask = Callable[[Key | None, Array | None], ReturnDistribution]


@dataclass(frozen=True)
class NoisyActing:
    """With noise, where the network has any, as long as it explores; then with the mean network."""

    def draw(self, key: Key, rows: int) -> tuple[Array, Key]:
        """What decisions for so many rows draw: coins `[2, rows]` for `epsilon_greedy`, and what `values` takes."""
        noise_key, coin_key = jax.random.split(key)
        return jax.random.uniform(coin_key, (2, rows)), noise_key

    def values(self, ask: Ask, drawn: Key, *, explore: bool) -> Array:
        """Values of all actions `[rows, A]`."""
        return ask(drawn if explore else None, None).mean()


@dataclass(frozen=True)
class QuietActing:
    """With the mean weights always, and levels of its own for implicit quantiles."""

    act_levels: int = setting(
        32,
        "Number of quantile levels that an implicit quantile network acts by.",
        limit=COUNT,
        group="exploration",
        rare=True,
    )
    act_level_choice: Literal["random", "midpoint"] = setting(
        "random",
        "Whether the quantile levels to act by are drawn for each decision or evenly spread.",
        group="exploration",
        rare=True,
    )

    def draw(self, key: Key, rows: int) -> tuple[Array, Array]:
        """All in one: where a single decision is one row, each draw of its own would take as long as the network."""
        drawn = jax.random.uniform(key, (2 + self.act_levels, rows))
        return drawn[:2], drawn[2:].T

    def values(self, ask: Ask, drawn: Array, *, explore: bool) -> Array:
        even = self.act_level_choice == "midpoint"
        return ask(None, jnp.broadcast_to(midpoints(self.act_levels), drawn.shape) if even else drawn).mean()
