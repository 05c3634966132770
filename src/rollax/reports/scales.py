"""What a score means: random play, a good score, and where an environment counts as solved."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Scale(NamedTuple):
    """On a scaled score random play is 0 and `good` is 1."""

    random: float
    good: float
    solved: float | None = None  # the return from which an evaluation counts as a success


# Random play: `rollax check-env NAME --steps 4000`; of Atari the figures of Mnih et al. 2015, a human tester's as good.
# A good score is the largest possible, or the mean of our own ten seeds (benchmarks/RESULTS.md).  Solved is what
# Gymnasium registers as the threshold of the task.
SCALES = {
    "CartPole-v1": Scale(22.0, 500.0, 475.0),
    "Acrobot-v1": Scale(-500.0, -78.5, -100.0),
    "MountainCar-v0": Scale(-200.0, -100.9, -110.0),
    "Breakout-MinAtar": Scale(0.4, 84.4),
    "Asterix-MinAtar": Scale(0.5, 69.7),
    "Freeway-MinAtar": Scale(0.6, 66.9),
    "SpaceInvaders-MinAtar": Scale(4.1, 161.3),
    "TreasureHunt-v0": Scale(262.0, 545.0),
    "ALE/Breakout-v5": Scale(1.7, 31.8),
    "ALE/Pong-v5": Scale(-20.7, 9.3),
}


class Bounds(NamedTuple):
    """Beyond which nothing can be; None where there is no bound, or none is known."""

    lowest: float | None = None
    highest: float | None = None

    def cut(self, values: np.ndarray) -> np.ndarray:
        """The values, those beyond a bound brought to it."""
        least = -np.inf if self.lowest is None else self.lowest
        return np.clip(values, least, np.inf if self.highest is None else self.highest)


UNBOUNDED, SHARE = Bounds(), Bounds(0.0, 1.0)
# What the rules of an environment allow as its settings are by default: returns, and steps of an episode.
RETURNS = {
    "CartPole-v1": Bounds(0.0, 500.0),
    "PositionOnlyCartPole-v0": Bounds(0.0, 500.0),
    "Acrobot-v1": Bounds(-500.0, 0.0),
    "MountainCar-v0": Bounds(-200.0, 0.0),
    "MountainCarContinuous-v0": Bounds(None, 100.0),
    "Pendulum-v1": Bounds(None, 0.0),
    "Catch-bsuite": Bounds(-1.0, 1.0),
    "MemoryChain-bsuite": Bounds(-1.0, 1.0),
    "RepeatFirst-v0": Bounds(0.0, 1.0),
    **{f"{game}-MinAtar": Bounds(0.0) for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")},
    "TraillessBreakout-v0": Bounds(0.0),
    "ALE/Pong-v5": Bounds(-21.0, 21.0),
}
LONGEST = {
    "CartPole-v1": 500,
    "PositionOnlyCartPole-v0": 500,
    "Acrobot-v1": 500,
    "MountainCar-v0": 200,
    "Freeway-MinAtar": 2_500,
    **{f"{game}-MinAtar": 1_000 for game in ("Asterix", "Breakout", "Seaquest", "SpaceInvaders")},
    "TraillessBreakout-v0": 1_000,
}


def bounds_of(env: str) -> Bounds:
    """Between which returns of an environment lie."""
    return RETURNS.get(env.removeprefix("gymnasium:"), Bounds())


def lengths_of(env: str) -> Bounds:
    """Between which lengths of its episodes lie."""
    return Bounds(0.0, LONGEST.get(env.removeprefix("gymnasium:")))


def scale_of(env: str) -> Scale | None:
    """The scale of an environment by its name; None where none was measured."""
    return SCALES.get(env.removeprefix("gymnasium:"))
