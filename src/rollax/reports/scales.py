"""What a score means: random play, a good score, and where an environment counts as solved."""

from __future__ import annotations

from typing import NamedTuple


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


def scale_of(env: str) -> Scale | None:
    """The scale of an environment by its name; None where none was measured."""
    return SCALES.get(env.removeprefix("gymnasium:"))
