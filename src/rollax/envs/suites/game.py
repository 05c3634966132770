"""What the environments of other libraries have in common: they end, and somebody else begins them anew."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.types import Array, Key


class Move(NamedTuple):
    """What a step of a game led to, whether it ended or not."""

    obs: Any
    state: Any
    reward: Array
    terminated: Array
    truncated: Array


class Game(ABC):
    """An environment of another library, in the protocol of `rollax.envs.protocol.Environment`.

    Subclasses say how an episode begins and moves; nothing of the other library's own way to begin anew is used, so the
    last observation of an episode is its own.  They have `num_actions` or `action_space`, `truncation_interval` where
    time runs out at the same step always, and `picture(state)` where the library can draw.
    """

    @abstractmethod
    def begin(self, key: Key) -> tuple[Any, Any]:
        """The first observation of an episode, and its state."""

    @abstractmethod
    def move(self, key: Key, state: Any, action: Any) -> Move:
        """One step, of an episode that has not ended."""

    def reset(self, key: Key, params: Any) -> tuple[Any, Any]:
        del params  # a game knows its own
        return self.begin(key)

    def step(self, key: Key, state: Any, action: Any, params: Any) -> tuple[Any, Any, Array, Array, Array, dict]:
        move_key, begin_key = jax.random.split(key)
        move = self.move(move_key, state, action)
        over = move.terminated | move.truncated
        obs, state = jax.tree.map(
            lambda new, last: jnp.where(over, new, last), self.begin(begin_key), (move.obs, move.state)
        )
        return obs, state, move.reward, move.terminated, move.truncated, {"final_observation": move.obs}


def as_flags(tiles: Array, counts: tuple[int, ...]) -> Array:
    """Flags `[H, W, sum(counts)]` of tiles `[H, W, len(counts)]` of numbers below so many; of others there is none."""
    parts = (jax.nn.one_hot(tiles[..., part], count, dtype=bool) for part, count in enumerate(counts))
    return jnp.concatenate(tuple(parts), axis=-1)
