"""Environments of other libraries as a user would hand them over, for tests."""

from __future__ import annotations


def board():
    """A game of Pgx's."""
    import pgx

    return pgx.make("2048")


def maze():
    """A maze of Jumanji's, in which time is short."""
    from jumanji.environments import Maze

    return Maze(time_limit=5)


def grid():
    """A room of XLand-MiniGrid's with its parameters."""
    import xminigrid

    return xminigrid.make("MiniGrid-Empty-5x5", max_steps=4)
