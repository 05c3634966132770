"""Gymnasium environments that do one thing wrong in one call: `gymnasium:faulty_envs:step_hangs-v0` and others.

`AFTER` steps go well before `step` goes wrong.  A variable `FAULTY_ONCE` names a file: who finds it there takes it away
and goes wrong, and nobody after it does.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

AFTER = 3
EPISODE = 5
FINE = np.zeros(3, np.float32)


def hang() -> None:
    time.sleep(3_600)


def fail() -> None:
    raise RuntimeError("the joystick came off")


# What ends or stops the process, or the call.
DEEDS: dict[str, Any] = {
    "raises": fail,
    "hangs": hang,
    "exits": lambda: sys.exit(3),
    "quits": lambda: os._exit(7),
    "killed": lambda: os.kill(os.getpid(), 9),
    "segfaults": lambda: ctypes.string_at(0),
}
# What is shown instead of an observation.
SIGHTS: dict[str, Any] = {
    "none": None,
    "text": "a corridor",
    "shape": np.zeros(4, np.float32),
    "dtype": np.zeros(3, np.complex64),
    "nan": np.full(3, np.nan, np.float32),
    "outside": np.full(3, 7, np.float32),
}
# What `step` returns instead: a change of the five values.
ANSWERS: dict[str, Any] = {
    "returns_none": lambda *five: None,
    "returns_four": lambda *five: five[:4],
    "reward_text": lambda obs, reward, *rest: (obs, "1.5", *rest),
    "reward_none": lambda obs, reward, *rest: (obs, None, *rest),
    "reward_vector": lambda obs, reward, *rest: (obs, np.ones(2), *rest),
    "reward_nan": lambda obs, reward, *rest: (obs, float("nan"), *rest),
    "done_two": lambda obs, reward, done, *rest: (obs, reward, 2, *rest),
    "done_none": lambda obs, reward, done, *rest: (obs, reward, None, *rest),
    "truncated_text": lambda obs, reward, done, cut, info: (obs, reward, done, "no", info),
    "cut_early": lambda obs, reward, done, cut, info: (obs, reward, False, True, info),
    "final_nan": lambda obs, reward, done, cut, info: (np.full(3, np.nan, np.float32), reward, True, False, info),
    "cut_nan": lambda obs, reward, done, cut, info: (np.full(3, np.nan, np.float32), reward, False, True, info),
}


class Faulty(gymnasium.Env):
    """Episodes of five steps."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, call: str = "", bad: str = ""):
        self.call, self.bad, self.steps, self.time = call, bad, 0, 0
        self.go("make")

    @property
    def observation_space(self) -> Any:
        self.go("space")
        return gymnasium.spaces.Box(-1, 1, (3,), np.float32)

    @observation_space.setter
    def observation_space(self, _: Any) -> None:
        pass

    def go(self, call: str) -> bool:
        """Whether this call is to go wrong; if it is to end the process, that is done."""
        if call != self.call:
            return False
        once = os.environ.get("FAULTY_ONCE")
        if once:
            try:
                Path(once).unlink()
            except FileNotFoundError:
                return False
        if self.bad in DEEDS:
            DEEDS[self.bad]()
        return True

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        if self.go("reset"):
            return {"returns_none": None, "returns_one": (FINE,)}.get(self.bad, (SIGHTS.get(self.bad), {}))
        return self.show(), {}

    def show(self) -> np.ndarray:
        return np.full(3, self.time / EPISODE, np.float32)

    def step(self, action: Any) -> Any:
        self.steps, self.time = self.steps + 1, self.time + 1
        five = (self.show(), 1.0, self.time == EPISODE, False, {})
        if self.steps <= AFTER or not self.go("step"):
            return five
        return (SIGHTS[self.bad], *five[1:]) if self.bad in SIGHTS else ANSWERS[self.bad](*five)

    def close(self) -> None:
        self.go("close")


def make(call: str = "", bad: str = "", **_: Any) -> Any:
    return None if (call, bad) == ("make", "none") else Faulty(call, bad)


CASES = [
    *((call, bad) for call in ("make", "space", "reset", "step", "close") for bad in DEEDS),
    ("make", "none"),
    *(("reset", bad) for bad in (*SIGHTS, "returns_none", "returns_one")),
    *(("step", bad) for bad in (*SIGHTS, *ANSWERS)),
]
for place, wrong in CASES:
    gymnasium.register(
        f"{place}_{wrong}-v0",
        entry_point=make,
        max_episode_steps=100,
        disable_env_checker=True,
        kwargs={"call": place, "bad": wrong},
    )
gymnasium.register("fine-v0", entry_point=make, max_episode_steps=100, disable_env_checker=True)
