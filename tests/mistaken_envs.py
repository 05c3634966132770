"""Environments with one mistake each, for the debug modes: `mistaken_envs:outside` and others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from probes import Probe


class Logs(Probe):
    def reward(self, state, action):
        return jnp.log(2.5 - state["time"])  # NaN in the fourth step


class Outside(Probe):
    def reward(self, state, action):
        return jnp.arange(3.0)[state["time"]]  # the fourth step is out of bounds


class Divides(Probe):
    def reward(self, state, action):
        return 1.0 / state["flag"]


class Reuses(Probe):
    def step(self, key, state, action, params):
        coin = jax.random.uniform(key)
        obs, state, reward, *rest = super().step(key, state, action, params)
        return obs, state, reward + coin, *rest


class Leaks(Probe):
    def reward(self, state, action):
        object.__setattr__(self, "last", 2 * state["flag"])
        return state["flag"]


def logs():
    return Logs(episode_length=5)


def outside():
    return Outside(episode_length=5)


def divides():
    return Divides(episode_length=5)


def reuses():
    return Reuses(episode_length=5)


def leaks():
    return Leaks(episode_length=5)


def line_of(cls, text):
    """The number of the line of this file that has the text, in that class."""
    lines = __import__("pathlib").Path(__file__).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"class {cls}("))
    return next(number for number, line in enumerate(lines, 1) if number > start and text in line)
