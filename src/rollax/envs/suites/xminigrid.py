"""XLand-MiniGrid: `xminigrid:MiniGrid-Empty-8x8`."""

from __future__ import annotations

from typing import Any

import numpy as np
import xminigrid
from xminigrid.core.constants import NUM_COLORS, NUM_TILES

from rollax.envs.suites.game import Game, Move, as_flags
from rollax.types import Array, Key

COUNTS = (NUM_TILES, NUM_COLORS)


def names() -> list[str]:
    """What it can make."""
    return list(xminigrid.registered_environments())


def make(name: str) -> GridGame:
    return GridGame(*xminigrid.make(name))


def adapted(env: Any, params: Any) -> GridGame:
    return GridGame(env, env.default_params() if params is None else params)


class GridGame(Game):
    """A world of tiles, which are seen as flags for their kinds and colours."""

    def __init__(self, env: Any, params: Any):
        self.env, self.params = env, params
        self.num_actions = env.num_actions(params)
        self.truncation_interval = int(params.max_steps)

    def begin(self, key: Key) -> tuple[Any, Any]:
        step = self.env.reset(self.params, key)
        return self.shown(step.observation), step

    def move(self, key: Key, state: Any, action: Array) -> Move:
        del key  # its states have keys of their own
        step = self.env.step(self.params, state, action)
        over = step.discount == 0
        return Move(self.shown(step.observation), step, step.reward, over, step.last() & ~over)

    def shown(self, observation: Any) -> Any:
        if isinstance(observation, dict):  # of a wrapper that shows more
            return {**observation, "img": as_flags(observation["img"], COUNTS)} if "img" in observation else observation
        return as_flags(observation, COUNTS)

    def picture(self, state: Any) -> np.ndarray:
        return np.asarray(self.env.render(self.params.replace(render_mode="rgb_array"), state))
