"""Brax, bodies that move: `brax:ant`."""

from __future__ import annotations

from typing import Any, NamedTuple

import brax.envs
import jax.numpy as jnp

from rollax.envs.actions import box
from rollax.envs.suites.game import Game, Move
from rollax.types import Array, Box, Key

TIME_LIMIT = 1_000  # steps of an episode, as in its own training


def names() -> list[str]:
    """What it can make."""
    return sorted(brax.envs._envs)


def make(name: str, backend: str) -> BraxGame:
    return BraxGame(brax.envs.get_environment(name, backend=backend), name)


def adapted(env: Any, params: Any) -> BraxGame:
    return BraxGame(env, type(env).__name__)


class Moment(NamedTuple):
    """A state of Brax's, and how many steps led to it."""

    state: Any
    steps: Array


class BraxGame(Game):
    """A body whose time runs out after 1,000 steps, unless it falls before."""

    truncation_interval = TIME_LIMIT

    def __init__(self, env: Any, name: str):
        self.env = env
        self.box = box(name, -1.0, 1.0, (env.action_size,))

    def action_space(self, params: Any) -> Box:
        return self.box

    def begin(self, key: Key) -> tuple[Any, Any]:
        state = self.env.reset(key)
        return state.obs, Moment(state, jnp.int32(0))

    def move(self, key: Key, state: Moment, action: Array) -> Move:
        del key  # nothing in it is by chance but how it begins
        after, steps = self.env.step(state.state, action), state.steps + 1
        over = after.done > 0
        return Move(after.obs, Moment(after, steps), after.reward, over, (steps >= TIME_LIMIT) & ~over)
