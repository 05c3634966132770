"""What changes as a run goes on: numbers between two ends, epsilon, and how target weights follow."""

from __future__ import annotations

from abc import ABC, abstractmethod

import jax.numpy as jnp
from flax import struct

from rollax.settings import COUNT, POSITIVE, SHARE, setting
from rollax.types import Array, EnvSpec


def linear(start: Array | float, end: Array | float, fraction: Array | float) -> Array:
    """From `start` at 0 to `end` at 1, and constant beyond.  All three may be traced."""
    return start + (end - start) * jnp.clip(fraction, 0.0, 1.0)


@struct.dataclass
class Exploration(ABC):
    """How often an action is random: a part whose fields are traced numbers."""

    epsilon_start: float = setting(1.0, "Share of random actions at the start.", limit=SHARE)
    epsilon_end: float = setting(0.05, "Share of random actions in the end.", limit=SHARE, at_most="epsilon_start")

    @abstractmethod
    def epsilon(self, env_steps: Array | float, spec: EnvSpec) -> Array:
        """The share of random actions after so many environment steps of learning."""


@struct.dataclass
class LinearEpsilon(Exploration):
    """The share of random actions falls linearly."""

    epsilon_steps: float = setting(
        25_000.0,
        "Number of environment steps after the warm-up over which the share of random actions falls.",
        limit=POSITIVE,
    )

    def epsilon(self, env_steps: Array | float, spec: EnvSpec) -> Array:
        return linear(self.epsilon_start, self.epsilon_end, env_steps / self.epsilon_steps)


@struct.dataclass
class PeriodicTarget:
    """Target weights move towards the learnt ones from time to time: softly, or by copies."""

    target_period: int = setting(1, "Number of gradient steps between updates of the target network.", limit=COUNT)
    target_step: float = setting(
        0.01,
        "Share of the distance to the online network that the target network moves in an update; 1 copies it.",
        limit=SHARE,
    )

    def step_size(self, gradient_steps: Array, updates: int) -> Array:
        """How far the target weights move after so many gradient steps, of which an iteration has `updates`."""
        return jnp.where(gradient_steps % self.target_period == 0, self.target_step, 0.0)
