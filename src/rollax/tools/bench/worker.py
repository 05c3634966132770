"""One training of one side, from the start of a process to its end."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

from rollax.tools.bench.settings import Course, Settings
from rollax.tools.processes import answers


def train(side: str, settings: Settings, seed: int, seeds: int, threads: int, device: str, weights: Any) -> Course:
    if side == "rollax":
        from rollax.programs.machine import use_all_cores

        use_all_cores()  # as the command does
        from rollax.tools.bench import jax_dqn

        return jax_dqn.train(settings, settings.experiment(seed=seed, seeds=seeds, weights=weights))
    import torch

    torch.set_num_threads(threads)
    if side == "torch":
        from rollax.tools.bench import torch_dqn

        return torch_dqn.train(settings, seed, device)
    from rollax.tools.bench import sb3_dqn

    return sb3_dqn.train(settings, side, seed, device)


PACKAGES = {"rollax": ("jax",), "torch": ("torch", "gymnasium"), "sb3": ("stable-baselines3", "torch", "gymnasium")}
PACKAGES["sbx"] = ("sbx-rl", "jax", "stable-baselines3", "gymnasium")


def main() -> None:
    out = answers()
    job = json.loads(sys.stdin.readline())
    side, settings = job["side"], Settings.from_json(job["settings"])
    course = train(side, settings, job["seed"], job["seeds"], job["threads"], job["device"], job["weights"])
    # The clock that both processes can read; evaluations are no part of either figure.
    began = job["began"]
    found = {
        "ready_seconds": course.opened - began,
        "points": course.points,
        "load": os.getloadavg()[0],
        "versions": {name: version(name) for name in PACKAGES[side]},
        "seconds_in_all": time.time() - began,
    }
    if side == "rollax":
        from rollax.programs.machine import machine

        found["machine"] = machine()
    print(json.dumps(found), file=out)


if __name__ == "__main__":
    main()
