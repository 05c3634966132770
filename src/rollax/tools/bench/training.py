"""One training of one side, from the start of a process to its end."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from rollax.tools.bench.settings import Course, Settings, Side

PACKAGES = {
    "rollax": ("jax",),
    "torch": ("torch", "gymnasium"),
    "sb3": ("stable-baselines3", "torch", "gymnasium"),
    "sbx": ("sbx-rl", "jax", "stable-baselines3", "gymnasium"),
}


@dataclass(frozen=True)
class Training:
    """Who trains, and what; each framework is imported when it runs."""

    side: Side
    settings: dict[str, Any]  # as JSON has them
    seed: int
    seeds: int
    threads: int  # PyTorch's
    device: str  # PyTorch's
    weights: Literal["torch", "flax"]  # how the library's weights are initialised
    began: float  # when the process was started, by the clock that all processes can read

    def run(self) -> dict[str, Any]:
        """The course of the training, and what it ran with; evaluations are no part of any of its seconds but all."""
        course = self.train(Settings.from_json(self.settings))
        row = {
            "ready_seconds": course.opened - self.began,
            "points": course.points,
            "load": os.getloadavg()[0],
            "versions": {name: version(name) for name in PACKAGES[self.side]},
            "seconds_in_all": time.time() - self.began,
        }
        if self.side == "rollax":
            from rollax.programs.machine import machine

            row["machine"] = machine()
        return row

    def train(self, settings: Settings) -> Course:
        if self.side == "rollax":
            from rollax.programs.machine import use_all_cores

            use_all_cores()  # as the command does
            from rollax.tools.bench import jax_dqn

            experiment = settings.experiment(seed=self.seed, seeds=self.seeds, weights=self.weights)
            return jax_dqn.train(settings, experiment)
        import torch

        torch.set_num_threads(self.threads)
        if self.side == "torch":
            from rollax.tools.bench import torch_dqn

            return torch_dqn.train(settings, self.seed, self.device)
        from rollax.tools.bench import sb3_dqn

        return sb3_dqn.train(settings, self.side, self.seed, self.device)
