"""Every agent by its name."""

from __future__ import annotations

from rollax.agents.base import Recipe
from rollax.agents.dqn import FAMILY
from rollax.agents.ppo import PPO_RECIPE
from rollax.agents.pqn import PQN_RECIPE

AGENTS: dict[str, Recipe] = {**FAMILY, "pqn": PQN_RECIPE, "ppo": PPO_RECIPE}
