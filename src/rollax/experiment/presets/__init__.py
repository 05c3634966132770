"""Settings that were measured to work: the preset of an agent in an environment applies by itself."""

from __future__ import annotations

from rollax.agents.dqn import FAMILY
from rollax.errors import ConfigError, did_you_mean
from rollax.experiment.presets import (
    atari,
    brax,
    classic_control,
    controlled,
    hackmatrix,
    memory,
    minatar,
    treasurehunt,
)
from rollax.experiment.presets.preset import Preset, Values
from rollax.settings import check_text

FAMILIES = (classic_control, memory, minatar, hackmatrix, treasurehunt, atari, brax)
# By `agent/environment`, or by the agent alone for wherever it has no other.
PRESETS: dict[str, Preset] = {name: preset for family in FAMILIES for name, preset in family.PRESETS.items()}
NAMES = (*PRESETS, controlled.NAME)  # all that `--preset` takes by name
# What an environment asks of every agent that has the field: pictures, and the range of its discounted returns.  The
# names are qualified, since these apply beside parts of the user's own.
ENVIRONMENTS: dict[str, Values] = {name: asked for family in FAMILIES for name, asked in family.ENVIRONMENTS.items()}


def known_as(env: str) -> str:
    """The name under which settings for an environment are kept: all games of ALE share theirs."""
    return "ALE" if env.startswith("ALE/") else env.removeprefix("gymnasium:")


def preset_for(agent: str, env: str, preset: str = "auto") -> Values:
    """The values that a preset sets: of its name, of the agent in that environment or anywhere (`auto`), or `none`.

    `controlled` is the same for every agent of the DQN family, in every environment.
    """
    if preset == "none":
        return {}
    if preset == controlled.NAME:
        values = controlled.values_for(agent)
        if values is None:
            raise ConfigError(f"preset={preset!r} is for agents of the DQN family, not {agent!r}: {', '.join(FAMILY)}")
        return values
    if preset == "auto":
        names = (f"{agent}/{env}", f"{agent}/{known_as(env)}", agent)
        return next((PRESETS[name].values for name in names if name in PRESETS), {})
    check_text("preset", preset)
    if preset not in PRESETS:
        raise ConfigError(f"preset={preset!r} is not known; {did_you_mean(preset, NAMES)}")
    return PRESETS[preset].values
