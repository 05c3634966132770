"""Do presets solve what needs a memory, and where actions are numbers?  Ten seeds of each, by the command of a user.

Prints the greedy return of each seed over 100 episodes after the last step, and seconds of the whole command; ends with
exit code 1 if a seed falls short.

    python benchmarks/solved.py [--cases 'pqn chain 64' ...] [--seeds 10] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import rollax


class Case(NamedTuple):
    """A command, and the return that solves its task."""

    words: str
    solved: float


CASES = {
    "pqn chain 64": Case("pqn --env MemoryChain-bsuite", 0.95),
    "ppo chain 64": Case("ppo --env MemoryChain-bsuite", 0.95),
    "r2d2 chain 64": Case("r2d2 --env MemoryChain-bsuite", 0.95),
    "pqn chain 100": Case("pqn --env MemoryChain-bsuite --memory-length 100", 0.95),
    "ppo chain 100": Case("ppo --env MemoryChain-bsuite --memory-length 100", 0.95),
    "pqn positions": Case("pqn --env PositionOnlyCartPole-v0", 475.0),
    "ppo positions": Case("ppo --env PositionOnlyCartPole-v0", 475.0),
    "pqn symbols": Case("pqn --env RepeatFirst-v0", 0.99),
    "ppo symbols": Case("ppo --env RepeatFirst-v0", 0.99),
    "r2d2 symbols": Case("r2d2 --env RepeatFirst-v0", 0.99),
    "sac pendulum": Case("sac --env Pendulum-v1", -160.0),
    "ppo pendulum": Case("ppo --env Pendulum-v1", -180.0),
    "sac car": Case("sac --env MountainCarContinuous-v0", 90.0),
    "ppo car": Case("ppo --env MountainCarContinuous-v0", 90.0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", default="")
    options, more = parser.parse_known_args()  # further flags go to the command
    out, short = Path(options.out or tempfile.mkdtemp()), []
    for name in options.cases:
        words, solved = CASES[name]
        folder, began = out / name.replace(" ", "-"), time.perf_counter()
        command = ["train", *words.split(), "--seeds", str(options.seeds), "--quiet", "--run-dir", str(folder), *more]
        subprocess.run([sys.executable, "-m", "rollax", *command], check=True)
        scores = rollax.Result(folder).evaluations["return_mean"][:, -1]
        good, seconds = int((scores >= solved).sum()), time.perf_counter() - began
        shown = ", ".join(f"{score:.3g}" for score in scores)
        print(f"{name:>15} {good} of {options.seeds} at {solved:g}: {shown}; {seconds:.0f} s", flush=True)
        if good < options.seeds:
            short.append(name)
    if short:
        print(f"short: {', '.join(short)}")
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
