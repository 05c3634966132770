"""What `rollax train` takes beside its training, and how soon a command answers.

A round starts each command once, in turn; every figure is the median of the rounds, with the least and the most.  A
cold start has an empty cache; a warm one has the cache of a run that ended just before.  "Beside training" is the life
of the process less the seconds in which its training program ran (`train_seconds` of summary.json).

    python benchmarks/start.py [--rounds 5] [--no-cold]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ANSWERS = {
    "rollax list": ["list"],
    "rollax train double --help": ["train", "double", "--help"],
    "a typo in an environment's name": ["train", "--env", "CartPool-v1"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    seen: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        trained(warm, Path(folder) / "first")
        for arguments in ANSWERS.values():
            answered(warm, arguments)
        for number in range(options.rounds):
            for name, arguments in ANSWERS.items():
                seen.setdefault(name, []).append(answered(warm, arguments))
            for kind in ("warm", "cold") if options.cold else ("warm",):
                cache = warm if kind == "warm" else Path(folder) / f"cold{number}"
                for what, value in trained(cache, Path(folder) / f"{kind}{number}").items():
                    seen.setdefault(f"{kind}: {what}", []).append(value)
    for name, values in seen.items():
        print(f"{name:50} {statistics.median(values):6.2f} s  ({min(values):.2f} to {max(values):.2f})")


def command(cache: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """`rollax` with these arguments, which keeps what it keeps there."""
    return subprocess.Popen(
        [sys.executable, "-m", "rollax", *arguments],
        env=os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def answered(cache: Path, arguments: list[str]) -> float:
    """Seconds until a command has answered and ended."""
    began = time.perf_counter()
    command(cache, arguments).communicate()
    return time.perf_counter() - began


def trained(cache: Path, run_dir: Path) -> dict[str, float]:
    """Seconds of the default run, ten seeds of Double DQN on CartPole-v1: to its first line, and beside training."""
    began = time.perf_counter()
    process = command(cache, ["train", "--run-dir", str(run_dir)])
    assert process.stdout is not None
    process.stdout.readline()
    first = time.perf_counter() - began
    rest = process.stdout.read()
    assert process.wait() == 0, rest
    took = time.perf_counter() - began
    training = json.loads((run_dir / "summary.json").read_text())["train_seconds"]
    return {"first line": first, "training": training, "beside training": took - training}


if __name__ == "__main__":
    main()
