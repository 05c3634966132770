"""The treasure hunt: several players on one board, who see what is near and take what they step on."""

from rollax.envs.treasurehunt.environment import TreasureHunt

__all__ = ["TreasureHunt"]
