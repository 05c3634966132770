"""Can `ppo` learn in environments of other libraries?  One task of each, named beforehand, beside random legal play.

    python benchmarks/suites.py [--suites jumanji pgx ...] [--seeds 3] [--out FOLDER]

Trains with the settings below, evaluates every seed over 100 greedy episodes, plays 100 episodes at random, and
prints both means with their 95 % intervals, steps/s in training, and seconds of the whole command.  Ends with exit code
1 where the interval of a seed does not lie above that of random play.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import rollax
from rollax.envs import registry
from rollax.envs.protocol import play_envs, reset_envs
from rollax.envs.random_play import RandomPlay

EPISODES = 100
COMMON: dict[str, Any] = {
    "preset": "none",
    "num-envs": 32,
    "rollout-length": 64,
    "minibatches": 8,
    "learning-rate": 1e-3,
    "learning-rate-end": 0,
}


class Task(NamedTuple):
    """An environment, steps of each seed, and what it asks for beside or in place of what is common."""

    env: str
    steps: int
    own: dict[str, Any]

    @property
    def words(self) -> list[str]:
        """Of the command that trains in it."""
        settings = COMMON | self.own | {"steps": self.steps, "learning-rate-steps": self.steps}
        return [self.env, *(word for name, value in settings.items() for word in (f"--{name}", *str(value).split()))]


BOARD = {"rewards": "normalized", "hidden": 128}
# Convolutions over small boards of many flags take a CPU four times as long as dense layers do.
FLAGS = {"torso": "mlp", "shared": ""}
# Octax, Craftax and Brax are for a GPU, which steps many environments in the time of one.
TASKS = {
    "jumanji": Task("jumanji:Game2048-v1", 1_001_472, BOARD),
    "pgx": Task("pgx:2048", 1_001_472, BOARD | FLAGS),
    "xminigrid": Task("xminigrid:MiniGrid-Empty-8x8", 501_760, FLAGS),
    "navix": Task("navix:Navix-DoorKey-5x5-v0", 501_760, FLAGS),
    "octax": Task("octax:brix", 1_048_576, {"num-envs": 256, "hidden": 128}),
    "craftax": Task(
        "craftax:Craftax-Symbolic-v1",
        655_360,
        {"num-envs": 512, "hidden": 512, "learning-rate": 5e-4, "max-episode-steps": 3_000},
    ),
    "brax": Task(
        "brax:ant",
        2_007_040,
        {"num-envs": 1_024, "rollout-length": 20, "observations": "normalized", "hidden": "128 128"},
    ),
}


def random_returns(env: str, seed: int = 0) -> np.ndarray:
    """Returns of the first episode of each of so many environments, in random legal play."""
    task = registry.make_inside(env)

    def step(carry: tuple, key: Any) -> tuple[tuple, None]:
        envs, returns, running = carry
        envs, transition, _ = play_envs(task, envs, RandomPlay(task), jax.random.split(key))
        returns = returns + transition.reward * running
        return (envs, returns, running & ~(transition.terminated | transition.truncated)), None

    begin_key, key = jax.random.split(jax.random.key(seed))
    envs = jax.jit(lambda key: reset_envs(task, key, EPISODES))(begin_key)
    advance = jax.jit(lambda carry, key: jax.lax.scan(step, carry, jax.random.split(key, 100))[0])
    carry = (envs, np.zeros(EPISODES, np.float32), np.ones(EPISODES, bool))
    for number in range(100):
        carry = advance(carry, jax.random.fold_in(key, number))
        if not np.any(carry[2]):
            break
    return np.asarray(carry[1])


def interval(mean: float, deviation: float) -> tuple[float, float]:
    """The 95 % interval of the mean of so many episodes."""
    half = 1.96 * deviation / EPISODES**0.5
    return mean - half, mean + half


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    out, short = Path(options.out or tempfile.mkdtemp()), []
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    for suite in options.suites:
        task = TASKS[suite]
        env, steps = task.env, task.steps
        began, folder = time.perf_counter(), out / suite
        words = ["train", "ppo", "--env", *task.words]
        more = ["--seeds", str(options.seeds), "--eval-steps", str(steps), "--quiet", "--run-dir", str(folder)]
        subprocess.run([sys.executable, "-m", "rollax", *words, *more], check=True)
        seconds, result = time.perf_counter() - began, rollax.Result(folder)
        chance = random_returns(env)
        low, high = interval(float(chance.mean()), float(chance.std()))
        means, deviations = (result.evaluations[name][:, -1] for name in ("return_mean", "return_std"))
        trained = [interval(*both) for both in zip(means, deviations, strict=True)]
        rate = result.summary["steps_per_second"]
        shown = ", ".join(f"{mean:.4g} ({a:.4g} to {b:.4g})" for mean, (a, b) in zip(means, trained, strict=True))
        print(
            f"{env}: {shown}; "
            f"at random {chance.mean():.4g} ({low:.4g} to {high:.4g}); {steps:,} steps of each seed, "
            f"{rate:,.0f} steps/s, {seconds:.0f} s",
            flush=True,
        )
        if min(a for a, _ in trained) <= high:
            short.append(suite)
    if short:
        print(f"short: {', '.join(short)}")
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
