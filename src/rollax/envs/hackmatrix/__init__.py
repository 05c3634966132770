"""HackMatrix: the whole game as a pure-JAX environment."""

from rollax.envs.hackmatrix.environment import HackMatrix

__all__ = ["HackMatrix"]
