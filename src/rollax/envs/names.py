"""The names of environments: known without JAX, so that a typo is answered before it is imported."""

from __future__ import annotations

import difflib

from rollax.envs import gymnax
from rollax.errors import ConfigError, installed
from rollax.settings import is_own

OWN = ("HackMatrix-v0", "TreasureHunt-v0", "RepeatFirst-v0", "PositionOnlyCartPole-v0", "TraillessBreakout-v0")
ATARI, GYMNASIUM = "ALE/", "gymnasium:"  # how the names of those outside JAX begin
# These games have no mode for one player.
_TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}


def names() -> list[str]:
    """All environments that can be named without a module."""
    return [*inside_names(), *atari_names()]


def inside_names() -> list[str]:
    """Those of them that are in JAX."""
    return [*OWN, *gymnax.names()]


def atari_names() -> list[str]:
    """Those of ALE; none where it is not installed."""
    return [f"{ATARI}{game}-v5" for game in atari_games()] if installed("ale_py") else []


def atari_games() -> dict[str, str]:
    """Files of all of ALE's games for one player, by their names."""
    from ale_py import roms

    return {rom.title().replace("_", ""): rom for rom in sorted(roms.get_all_rom_ids()) if rom not in _TWO_PLAYERS}


def check_known(name: str) -> None:
    """Raises ConfigError for a name that is neither of a kind that is looked up elsewhere, nor known."""
    elsewhere = is_own(name) or name.startswith((ATARI, GYMNASIUM))
    if elsewhere or name in OWN or gymnax.knows(name):
        return
    folded = {known.lower(): known for known in names()}
    guess = folded.get(name.lower()) or difflib.get_close_matches(name, names(), n=1, cutoff=0.0)[0]
    raise ConfigError(f"env={name!r} is not known; did you mean {guess}? `rollax list` shows all")
