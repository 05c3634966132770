"""Craftax: `craftax:Craftax-Symbolic-v1`.  On a CPU its programs are compiled for minutes."""

from __future__ import annotations

from typing import Any

import jax
from craftax.craftax_env import make_craftax_env_from_name

from rollax.envs.suites.game import Game, Move
from rollax.errors import warn
from rollax.types import Array, Key

NAMES = ("Craftax-Symbolic-v1", "Craftax-Pixels-v1", "Craftax-Classic-Symbolic-v1", "Craftax-Classic-Pixels-v1")


def names() -> list[str]:
    """What it can make."""
    return list(NAMES)


def make(name: str) -> CraftaxGame:
    if jax.default_backend() == "cpu":
        warn(f"craftax:{name} takes minutes to compile on a CPU; a GPU suits it better")
    env = make_craftax_env_from_name(name, auto_reset=False)
    return CraftaxGame(env, env.default_params)


def adapted(env: Any, params: Any) -> CraftaxGame:
    return CraftaxGame(env, env.default_params if params is None else params)


class CraftaxGame(Game):
    """A life in Craftax.  Where it ends for want of time alone, that is a truncation."""

    def __init__(self, env: Any, params: Any):
        self.env, self.params = env, params
        self.num_actions = env.num_actions
        self.truncation_interval = int(params.max_timesteps)

    def begin(self, key: Key) -> tuple[Any, Any]:
        return self.env.reset_env(key, self.params)

    def move(self, key: Key, state: Any, action: Array) -> Move:
        obs, state, reward, done, _ = self.env.step_env(key, state, action, self.params)
        early = self.env.is_terminal(state, self.params.replace(max_timesteps=2**31 - 1))
        return Move(obs, state, reward, early, done & ~early)
