"""Every agent by its name."""

from __future__ import annotations

from rollax import settings as named
from rollax.agents.base import AgentConfig, Recipe
from rollax.agents.dqn import FAMILY
from rollax.agents.ppo import PPO_RECIPE
from rollax.agents.pqn import PQN_RECIPE
from rollax.agents.r2d2 import R2D2_RECIPE
from rollax.agents.sac import SAC_RECIPE
from rollax.errors import ConfigError, did_you_mean

AGENTS: dict[str, Recipe] = {**FAMILY, "r2d2": R2D2_RECIPE, "pqn": PQN_RECIPE, "ppo": PPO_RECIPE, "sac": SAC_RECIPE}

JAXIQN = "irainbow"  # IQN with double, dueling, noisy and n-step learning, under the name that some documents use


def recipe_of(name: str) -> Recipe:
    """What stands behind an agent's name; `package.module:RECIPE` is one of the user's own."""
    if name in AGENTS:
        return AGENTS[name]
    if not named.is_own(name):
        raise ConfigError(f"agent={name!r} is not known; {did_you_mean(name, AGENTS)}")
    recipe = named.find("agent", name)
    if not isinstance(recipe, Recipe):
        raise ConfigError(f"agent={name!r} is a {type(recipe).__name__}; it must be a rollax.agents.base.Recipe")
    if not isinstance(recipe.choices, AgentConfig):
        kind = type(recipe.choices).__name__
        raise ConfigError(f"agent={name!r}: {kind} must be a subclass of rollax.agents.base.AgentConfig")
    return recipe
