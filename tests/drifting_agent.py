"""A DQN that learns something else in every process: `drifting_agent:recipe`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from rollax.agents.base import Recipe
from rollax.agents.dqn import DQN, DQNConfig, DQNHParams
from rollax.types import EnvSpec


def own_number() -> np.float32:
    """Asked when it runs, so that the programs are the same."""
    return np.float32(jax.process_index())


class Drifting(DQN):
    def descend(self, learner: Any, grads: Any, env_steps: Any = None) -> Any:
        step = super().descend(learner, grads, env_steps)
        own = jax.pure_callback(own_number, jax.ShapeDtypeStruct((), np.float32), vmap_method="broadcast_all")
        return step._replace(params=jax.tree.map(lambda leaf: leaf + 0.001 * own, step.params))


@dataclass(frozen=True)
class DriftingConfig(DQNConfig):
    def build(self, spec: EnvSpec) -> DQN:
        return Drifting(self, spec)


recipe = Recipe(DriftingConfig(), DQNHParams())
