"""`sac` on gymnasium:HalfCheetah-v5 beside Stable-Baselines3's SAC: steps/s and greedy returns, seed by seed in turns.

    python benchmarks/half_cheetah.py [--steps 100_000] [--seeds 0 1 2] [--sides rollax sb3]

Both sides have the same networks, batch, learning rate, discount, target rate and replay, one environment, and a
gradient step after every step of it.  Steps/s are those of training after the first thousand steps, which are random
and in which both compile or warm up; returns are means of ten greedy episodes after the last step.  Ends with exit
code 1 where rollax is less than 1.3 times as fast.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

import rollax

ENV, EPISODES, RANDOM_STEPS, CAPACITY = "HalfCheetah-v5", 10, 1_000, 100_000


class Work(NamedTuple):
    """What both sides do."""

    steps: int
    hidden: list[int]
    batch: int


class Clock(BaseCallback):
    """Notes when the random steps were over."""

    began = 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps == RANDOM_STEPS:
            self.began = time.perf_counter()
        return True


def theirs(work: Work, seed: int) -> tuple[float, float]:
    """Steps/s, and the mean greedy return."""
    settings: dict[str, Any] = {"buffer_size": CAPACITY, "batch_size": work.batch, "learning_starts": RANDOM_STEPS}
    policy = {"net_arch": work.hidden}
    model = SAC("MlpPolicy", gymnasium.make(ENV), policy_kwargs=policy, seed=seed, device="cpu", **settings)
    clock = Clock()
    model.learn(work.steps, callback=clock)
    speed = (work.steps - RANDOM_STEPS) / (time.perf_counter() - clock.began)
    score, _ = evaluate_policy(model, gymnasium.make(ENV), n_eval_episodes=EPISODES, warn=False)
    return speed, float(np.mean(score))


def ours(work: Work, seed: int, folder: Path) -> tuple[float, float]:
    experiment = rollax.make_experiment(
        "sac",
        env=f"gymnasium:{ENV}",
        preset="none",
        seed=seed,
        steps=work.steps,
        hidden=work.hidden,
        batch_size=work.batch,
        capacity=CAPACITY,
        warm_up_steps=RANDOM_STEPS,
        eval_steps=work.steps,
        eval_episodes=EPISODES,
    )
    result = rollax.train(experiment, folder, quiet=True)
    return result.summary["steps_per_second"], float(result.evaluations["return_mean"][0, -1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--sides", nargs="+", choices=("rollax", "sb3"), default=["rollax", "sb3"])
    options = parser.parse_args()
    work = Work(options.steps, options.hidden, options.batch)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; {ENV}, {work.steps:,} steps, {work.hidden}")
    speeds: dict[str, list[float]] = {side: [] for side in options.sides}
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            for side in options.sides:
                speed, score = ours(work, seed, Path(folder) / str(seed)) if side == "rollax" else theirs(work, seed)
                speeds[side].append(speed)
                print(f"seed {seed}: {side} {speed:,.0f} steps/s, return {score:,.0f}", flush=True)
    if len(speeds) < 2:
        return 0
    ratios = [our / other for our, other in zip(speeds["rollax"], speeds["sb3"], strict=True)]
    print(f"{statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})")
    return int(statistics.median(ratios) < 1.3)


if __name__ == "__main__":
    sys.exit(main())
