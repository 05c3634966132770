"""Noise by which agents explore whose actions are numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.settings import SHARE, setting
from rollax.types import Array, Box, Carry, EnvSpec, Key, size_of


@dataclass(frozen=True)
class NoiseConfig:
    """How such agents explore."""

    noise_correlation: float = setting(
        0.0,
        "Correlation of the noise of continuous actions from one step to the next; near 1 the agent keeps to one "
        "direction for long.",
        limit=SHARE,
        group="continuous actions",
    )

    def build(self, spec: EnvSpec) -> Noise:
        return Noise(size_of(spec.action), self.noise_correlation)

    def problems(self, spec: EnvSpec) -> list[str]:
        if isinstance(spec.action, Box) or not self.noise_correlation:
            return []
        return ["noise_correlation is for actions that are numbers alone; leave it out"]


class Noise(NamedTuple):
    """Standard normal numbers at every step, of which each may resemble the one before it in its episode.

    Correlated noise moves a body further than noise whose steps cancel each other out.  At every single step it is as
    normal as any, so densities stay those of the policy.
    """

    size: int
    correlation: float  # from one step to the next; at 0 nothing is remembered

    def initial(self, num: int) -> Carry:
        """What is remembered of it before the first step of so many environments."""
        return jnp.zeros((num, self.size)) if self.correlation else ()

    def draw(self, carry: Carry, fresh: Array, key: Key) -> tuple[Array, Carry]:
        """The noise of this step, `[B, size]`, and what to remember; where an episode begins it is drawn anew."""
        drawn = jax.random.normal(key, (fresh.shape[0], self.size))
        if not self.correlation:
            return drawn, carry
        rest = math.sqrt(1.0 - self.correlation**2)
        noise = jnp.where(fresh[:, None], drawn, self.correlation * carry + rest * drawn)
        return noise, noise
