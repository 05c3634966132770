"""Navix, MiniGrid in JAX: `navix:Navix-DoorKey-5x5-v0`."""

from __future__ import annotations

from typing import Any

import navix  # ty: ignore[import-not-found]
import numpy as np
from navix import observations  # ty: ignore[import-not-found]

from rollax.envs.suites.game import Game, Move, as_flags
from rollax.types import Array, Key

COUNTS = (11, 6, 4)  # kinds, colours and states of MiniGrid's tiles
SYMBOLIC = (observations.symbolic, observations.symbolic_first_person)


def names() -> list[str]:
    """What it can make."""
    return list(navix.registry())


def make(name: str) -> NavixGame:
    return NavixGame(navix.make(name))


def adapted(env: Any, params: Any) -> NavixGame:
    return NavixGame(env)


class NavixGame(Game):
    """A room of tiles, which are seen as flags for their kinds, colours and states."""

    def __init__(self, env: Any):
        self.env, self.num_actions = env, len(env.action_set)
        self.truncation_interval = int(env.max_steps)

    def begin(self, key: Key) -> tuple[Any, Any]:
        step = self.env.reset(key)
        return self.shown(step.observation), step

    def move(self, key: Key, state: Any, action: Array) -> Move:
        del key  # its states have keys of their own
        step = self.env.step(state, action)
        return Move(self.shown(step.observation), step, step.reward, step.is_termination(), step.is_truncation())

    def shown(self, observation: Array) -> Array:
        return as_flags(observation, COUNTS) if self.env.observation_fn in SYMBOLIC else observation

    def picture(self, state: Any) -> np.ndarray:
        return np.asarray(observations.rgb(state.state))
