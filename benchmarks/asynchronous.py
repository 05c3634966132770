"""One algorithm both ways on the same cores: a synchronous program, and actors that do not wait.

    python benchmarks/asynchronous.py [--steps 200000] [--actors 2]

Prints, for the same environments, network, batch and replay: environment steps and updates per second once running, the
replay ratio (transitions learnt from for each step), how many updates old the weights are that act, and the return.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE = [
    "--num-envs",
    "32",
    "--rollout-length",
    "8",
    "--capacity",
    "51200",
    "--batch-size",
    "64",
    "--gradient-steps",
    "8",
]


def run(folder: Path, steps: int, actors: int) -> tuple[dict, list[dict[str, str]]]:
    """The summary and the rows of a run."""
    flags = [
        "--env",
        "CartPole-v1",
        "--steps",
        str(steps),
        "--actors",
        str(actors),
        "--run-dir",
        str(folder),
        "--quiet",
    ]
    command = [sys.executable, "-m", "rollax", "train", "apex", *flags, *SIZE]
    subprocess.run(command, check=True, env=os.environ)
    summary = json.loads((folder / "summary.json").read_text())
    with (folder / "metrics.csv").open() as file:
        return summary, list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--actors", type=int, default=2)
    options = parser.parse_args()
    print(f"{'':>14} {'steps/s':>9} {'updates/s':>10} {'replay ratio':>13} {'lag':>5} {'return':>7} {'seconds':>8}")
    for name, actors in (("synchronous", 0), ("asynchronous", options.actors)):
        with tempfile.TemporaryDirectory() as temporary:
            summary, rows = run(Path(temporary) / "run", options.steps, actors)
        (member,) = summary["members"]
        if actors:
            late = rows[len(rows) // 4 :]  # once all processes are there and have compiled

            def mean(column: str, rows: list[dict[str, str]] = late) -> float:
                return sum(float(row[column]) for row in rows) / len(rows)

            rates = mean("steps_per_second"), mean("updates_per_second"), mean("replay_ratio"), mean("policy_lag")
        else:
            rate = summary["steps_per_second"]
            rates = rate, rate / (32 * 8) * 8, 8 * 64 / (32 * 8), 0
        steps, updates, ratio, lag = rates
        shown = f"{steps:9,.0f} {updates:10,.0f} {ratio:13.2f} {lag:5.0f} {member['eval_return_mean']:7.1f}"
        print(f"{name:>14} {shown} {summary['wall_seconds']:8.0f}", flush=True)


if __name__ == "__main__":
    main()
