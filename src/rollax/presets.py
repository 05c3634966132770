"""Settings that were measured to work: the preset of an agent in an environment applies by itself."""

from __future__ import annotations

from typing import Any

from rollax.agents.dqn import FAMILY
from rollax.errors import ConfigError

CARTPOLE: dict[str, Any] = {}
PRESETS: dict[str, dict[str, Any]] = {f"{agent}/CartPole-v1": CARTPOLE for agent in FAMILY}


def preset_for(agent: str, env: str, preset: str = "auto") -> dict[str, Any]:
    """The leaves that a preset sets: of its name, of the agent in that environment (`auto`), or nothing (`none`)."""
    from rollax.experiment import did_you_mean

    if preset == "none":
        return {}
    if preset == "auto":
        return PRESETS.get(f"{agent}/{env}", {})
    if preset not in PRESETS:
        raise ConfigError(f"preset={preset!r} is not known; {did_you_mean(preset, PRESETS)}")
    return PRESETS[preset]
