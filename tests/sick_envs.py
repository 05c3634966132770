"""A Gymnasium environment whose numbers stop being finite: `gymnasium:sick_envs:SickReward-v0` and others."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Sick(gymnasium.Env):
    """Episodes of ten steps; after `after` steps in all, its reward or its observation is not finite."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what: str, value: float, after: int):
        self.what, self.value, self.after, self.steps = what, value, after, 0

    def number(self, what: str) -> float:
        return self.value if what == self.what and self.steps > self.after else 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(3, self.number("observation"), np.float32), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps % 10 == 0  # with a last observation that is finite, which is looked at apart
        shown = np.full(3, 1.0 if ended else self.number("observation"), np.float32)
        return shown, self.number("reward"), ended, False, {}


def make(what: str = "reward", value: float = float("nan"), after: int = 30, **_: Any) -> gymnasium.Env:
    return Sick(what, value, after)


gymnasium.register("SickReward-v0", entry_point=make, kwargs={"what": "reward"})
gymnasium.register("SickObservation-v0", entry_point=make, kwargs={"what": "observation", "value": float("inf")})
