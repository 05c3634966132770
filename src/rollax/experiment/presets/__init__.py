"""Settings that were measured to work: the preset of an agent in an environment applies by itself."""

from __future__ import annotations

from rollax.errors import ConfigError, did_you_mean
from rollax.experiment.presets import atari, brax, classic_control, hackmatrix, memory, minatar, treasurehunt
from rollax.experiment.presets.preset import Preset, Values
from rollax.settings import check_text

FAMILIES = (classic_control, memory, minatar, hackmatrix, treasurehunt, atari, brax)
# By `agent/environment`, or by the agent alone for wherever it has no other.
PRESETS: dict[str, Preset] = {name: preset for family in FAMILIES for name, preset in family.PRESETS.items()}
# What an environment asks of every agent that has the field: pictures, and the range of its discounted returns.  The
# names are qualified, since these apply beside parts of the user's own.
ENVIRONMENTS: dict[str, Values] = {name: asked for family in FAMILIES for name, asked in family.ENVIRONMENTS.items()}


def known_as(env: str) -> str:
    """The name under which settings for an environment are kept: all games of ALE share theirs."""
    return "ALE" if env.startswith("ALE/") else env.removeprefix("gymnasium:")


def preset_for(agent: str, env: str, preset: str = "auto") -> Values:
    """The values that a preset sets: of its name, of the agent in that environment or anywhere (`auto`), or `none`."""
    if preset == "none":
        return {}
    if preset == "auto":
        names = (f"{agent}/{env}", f"{agent}/{known_as(env)}", agent)
        return next((PRESETS[name].values for name in names if name in PRESETS), {})
    check_text("preset", preset)
    if preset not in PRESETS:
        raise ConfigError(f"preset={preset!r} is not known; {did_you_mean(preset, PRESETS)}")
    return PRESETS[preset].values
