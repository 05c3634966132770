"""Gymnasium environments that break after a while, `gymnasium:broken_envs:Raises-v0` and `Hangs-v0`, and an odd one."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np


class Breaks(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str, after: int = 400):
        self.how, self.after, self.steps = how, after, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > self.after:
            if self.how == "raise":
                raise RuntimeError("the joystick came off")
            time.sleep(3_600)
        return np.zeros(3, np.float32), 1.0, self.steps % 20 == 0, False, {}


def make_odd(**_: Any) -> gymnasium.Env:
    return Odd()


def make_breaking(how: str = "raise", **_: Any) -> gymnasium.Env:
    return Breaks(how)


class Odd(gymnasium.Env):
    """Shows several arrays; its actions are 1 and 2, and so are its rewards."""

    flag: Any = bool  # Gymnasium takes it, and its types do not say so
    observation_space = gymnasium.spaces.Dict(
        {"flags": gymnasium.spaces.Box(0, 1, (2,), flag), "place": gymnasium.spaces.Box(-9, 9, (3,), np.float64)}
    )
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def observe(self):
        return {"flags": np.array([True, False]), "place": np.full(3, float(self.time))}

    def step(self, action):
        self.time += 1
        return self.observe(), float(action), False, False, {}


gymnasium.register("Odd-v0", entry_point=make_odd, max_episode_steps=4)
gymnasium.register("Raises-v0", entry_point=make_breaking, max_episode_steps=100, kwargs={"how": "raise"})
gymnasium.register("Hangs-v0", entry_point=make_breaking, max_episode_steps=100, kwargs={"how": "hang"})
