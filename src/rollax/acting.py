"""How the values are asked for that an action is chosen by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from rollax.limits import COUNT, Limit
from rollax.networks import midpoints
from rollax.returns import ReturnDistribution
from rollax.types import Array, Key

# Of a key for noise and levels, or None for the mean network, and of levels [B, N] of one's own.
Ask = Callable[[Key | None, Array | None], ReturnDistribution]


@dataclass(frozen=True)
class NoisyActing:
    """With noise, where the network has any, as long as it explores; then with the mean network."""

    def values(self, ask: Ask, key: Key, rows: int, *, explore: bool) -> Array:
        """Values of all actions `[rows, A]`."""
        return ask(key if explore else None, None).mean()


@dataclass(frozen=True)
class QuietActing:
    """With the mean weights always, and levels of its own for implicit quantiles."""

    act_levels: int = 32  # Levels of an implicit quantile network when it acts ...
    act_level_choice: Literal["random", "midpoint"] = "random"  # ... drawn for each decision, or evenly spread.
    limits: ClassVar[dict[str, Limit]] = {"act_levels": COUNT}

    def values(self, ask: Ask, key: Key, rows: int, *, explore: bool) -> Array:
        shape = (rows, self.act_levels)
        if self.act_level_choice == "random":
            return ask(None, jax.random.uniform(key, shape)).mean()
        return ask(None, jnp.broadcast_to(midpoints(self.act_levels), shape)).mean()
