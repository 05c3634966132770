"""A mode of the comparison: one experiment, as the process that holds it is asked about it."""

from __future__ import annotations

import os
import resource
import time
from abc import ABC, abstractmethod
from typing import Any

from rollax.experiment.experiment import from_json
from rollax.settings import find

PARTS = ("acting", "training", "sampling", "world")  # of an epoch


class Mode(ABC):
    """An experiment that has begun, with agents that play and learn epoch by epoch."""

    compile_seconds = 0.0

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Begins a new experiment."""

    @abstractmethod
    def epochs(self, count: int, epsilon: float | None = None) -> list[float]:
        """Plays and learns, with a fixed share of random actions or the schedule's.

        The returns of the epochs come back when all is done.
        """

    @abstractmethod
    def greedy_returns(self, count: int, seed: int) -> list[float]:
        """Returns of epochs without random actions, from which nothing is learnt."""

    @abstractmethod
    def parts(self) -> dict[str, float]:
        """Seconds of an epoch by the parts that they go into."""

    @abstractmethod
    def device_name(self) -> str: ...

    @abstractmethod
    def device_bytes(self) -> int | None:
        """The most memory that was used on an accelerator; None without one."""

    def run(self, epochs: int, epsilon: float | None) -> dict[str, Any]:
        """The epochs' returns, their seconds, and the machine's load after them."""
        began = time.perf_counter()
        returns = self.epochs(epochs, epsilon)
        return {"seconds": time.perf_counter() - began, "returns": returns, "load": os.getloadavg()[0]}

    def facts(self) -> dict[str, Any]:
        """What the process took so far, and where it computes."""
        peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "device": self.device_bytes()}
        return {
            "compile_seconds": self.compile_seconds,
            "peak_bytes": {place: count for place, count in peak.items() if count is not None},
            "device": self.device_name(),
        }


def make_mode(kind: str, experiment: dict[str, Any], **options: Any) -> Mode:
    """The mode whose class is `kind`, a `package.module:Class`, of an experiment as plain data."""
    return find("kind", kind)(from_json(experiment), **options)
