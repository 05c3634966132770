"""Octax, games of the CHIP-8: `octax:brix`."""

from __future__ import annotations

import pkgutil
from typing import Any

import jax.numpy as jnp
import numpy as np
import octax.environments
from octax.environments import create_environment

from rollax.envs.suites.game import Game, Move
from rollax.types import Array, Key


def names() -> list[str]:
    """What it can make; some have levels, as in `filter2`."""
    return [module.name for module in pkgutil.iter_modules(octax.environments.__path__)]


def make(name: str) -> OctaxGame:
    return OctaxGame(create_environment(name, render_mode="rgb_array")[0])


def adapted(env: Any, params: Any) -> OctaxGame:
    return OctaxGame(env)


class OctaxGame(Game):
    """A game whose last frames are seen as the channels of one picture."""

    def __init__(self, env: Any):
        self.env, self.num_actions = env, env.num_actions
        self.truncation_interval = int(env.max_num_steps_per_episodes)

    def begin(self, key: Key) -> tuple[Any, Any]:
        state, frames, _ = self.env.reset(key)
        return self.shown(frames), self.settled(state)

    def move(self, key: Key, state: Any, action: Array) -> Move:
        del key  # its states have keys of their own
        state, frames, reward, over, late, _ = self.env.step(state, action)
        over = jnp.asarray(over, bool)
        return Move(self.shown(frames), self.settled(state), reward, over, late & ~over)

    def settled(self, state: Any) -> Any:
        """Its first state holds numbers of Python's."""
        return state.replace(
            time=jnp.int32(state.time),
            previous_score=jnp.float32(state.previous_score),
            current_score=jnp.float32(state.current_score),
        )

    def shown(self, frames: Array) -> Array:
        return jnp.moveaxis(frames, 0, -1)

    def picture(self, state: Any) -> np.ndarray:
        return np.asarray(self.env.render(state))
