"""What the sides outside JAX share: Gymnasium's environments, and greedy episodes in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rollax.tools.bench.settings import Settings

EVALUATION_SEED = 1_000_000  # away from those of the training


def vector_envs(settings: Settings, count: int) -> Any:
    """So many environments stepped as one: Gymnasium's own in NumPy.  After an episode's end a step only resets."""
    return gymnasium.make_vec(settings.env, num_envs=count, vectorization_mode="vector_entry_point")


def greedy_score(settings: Settings, act: Callable[[np.ndarray], np.ndarray], seed: int) -> float:
    """The mean return of greedy episodes, each environment counted once."""
    envs = vector_envs(settings, settings.eval_episodes)
    obs, _ = envs.reset(seed=EVALUATION_SEED + seed)
    total, running = np.zeros(settings.eval_episodes), np.ones(settings.eval_episodes, bool)
    while running.any():
        obs, reward, terminated, truncated, _ = envs.step(act(obs))
        total += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
    return float(total.mean())
