"""Gymnax's environments: the one place that imports it, and no more of it than is needed.

Importing gymnax imports every library that any of its games draws with, which takes longer than JAX itself.  They are
put off here until somebody draws; names are known without any of it.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

# As gymnax has registered them itself; `test_names_of_gymnax_are_its_own` compares.
NAMES = (
    *("CartPole-v1", "Acrobot-v1", "MountainCar-v0"),
    *("Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar"),
    *("Catch-bsuite", "DeepSea-bsuite", "MemoryChain-bsuite", "UmbrellaChain-bsuite", "DiscountingChain-bsuite"),
    *("MNISTBandit-bsuite", "SimpleBandit-bsuite", "FourRooms-misc", "MetaMaze-misc", "BernoulliBandit-misc"),
    *("GaussianBandit-misc", "Pong-misc", "FrozenLake-misc"),
    # Their actions are numbers.
    *("Pendulum-v1", "MountainCarContinuous-v0", "PointRobot-misc", "Reacher-misc", "Swimmer-misc"),
)
# What its games draw with.
DRAWING = ("seaborn", "matplotlib.pyplot")


def names() -> list[str]:
    """Its environments, those that somebody has registered included."""
    registered = sys.modules["gymnax"].registered_envs if "gymnax" in sys.modules else ()
    return [*NAMES, *(name for name in registered if name not in NAMES)]


def knows(name: str) -> bool:
    """Whether `make` can make it."""
    return name in names()


def make(name: str) -> tuple[Any, Any]:
    """The environment of that name, and its parameters."""
    with without_drawing():
        import gymnax

    return gymnax.make(name)


class PutOff(types.ModuleType):
    """What stands for a module that is imported as soon as one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python asks of every module
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def without_drawing() -> Generator[None]:
    """Who imports a library to draw with in here gets it when it is used; all others, at once as always."""
    absent = [name for name in DRAWING if name not in sys.modules]
    sys.modules.update({name: PutOff(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
