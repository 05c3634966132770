"""A Bayesian search of CartPole's Double DQN, in batches and one trial after the other.

Runs `rollax tune` twice in fresh processes with empty compilation caches, with the same trials, steps, seeds, rungs and
pruning; then trains the winner of the batches on ten seeds that the search has not seen.

    python benchmarks/tuning.py [--trials 20] [--batch 10] [--steps 100000] [--seeds 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPACE = {
    "learning_rate": "log:1e-4:1e-2",
    "discount": "uniform:0.95:0.999",
    "epsilon_end": "log:0.005:0.1",
    "replay_limit": "int:1000:10000",
    "target_step": "log:0.002:0.5",
}


def rollax(*arguments: str, cache: Path) -> tuple[float, str]:
    """Seconds of a command, and what it printed."""
    began = time.perf_counter()
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-m", "rollax", *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - began, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "space.json").write_text(json.dumps(SPACE))
        seconds = {}
        for batch in (options.batch, 1):
            flags = ["--trials", options.trials, "--steps", options.steps, "--seeds", options.seeds, "--batch", batch]
            own = ["--space", folder / "space.json", "--out", folder / f"study_{batch}"]
            seconds[batch], told = rollax(
                "tune", "double", "--env", "CartPole-v1", *map(str, [*flags, *own]), cache=folder / f"cache_{batch}"
            )
            print(f"batches of {batch}: {seconds[batch]:.1f} s\n{told}", flush=True)
        best = folder / f"study_{options.batch}" / "best.json"
        fresh = ["--config", best, "--seed", 1_000, "--seeds", 10, "--run-dir", folder / "winner"]
        rollax("train", *map(str, fresh), cache=folder / f"cache_{options.batch}")
        members = json.loads((folder / "winner" / "summary.json").read_text())["members"]
        returns = [member["eval_return_mean"] for member in members]
        print(f"the winner on ten fresh seeds: {', '.join(f'{value:.0f}' for value in returns)}")
        solved = sum(value >= 475 for value in returns)
        print(f"batches are {seconds[1] / seconds[options.batch]:.2f} times as fast; {solved} of 10 seeds solved")


if __name__ == "__main__":
    main()
