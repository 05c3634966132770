"""Does every agent solve CartPole-v1 with its preset?  Five seeds, 475 over 100 greedy episodes each.

Prints the greedy return of each seed after the last step, seconds, and ends with exit code 1 if any falls short.

    python benchmarks/cartpole.py [--agents dqn rainbow ...] [--seeds 5] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import jax

import rollax
from rollax.agents.names import AGENTS

SOLVED = 475.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", nargs="*", default=[name for name in AGENTS if name != "sac"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    out = Path(options.out or tempfile.mkdtemp())
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    short = []
    for agent in options.agents:
        began = time.perf_counter()
        result = rollax.train(rollax.make_experiment(agent, seeds=options.seeds), out / agent, quiet=True)
        scores = result.evaluations["return_mean"][:, -1]
        shown = ", ".join(f"{score:.1f}" for score in scores)
        solved = int((scores >= SOLVED).sum())
        seconds = time.perf_counter() - began
        print(f"{agent:>12} {solved} of {options.seeds} at {SOLVED:.0f}: {shown}; {seconds:.0f} s", flush=True)
        if solved < options.seeds:
            short.append(agent)
    if short:
        raise SystemExit(f"short of {SOLVED:.0f}: {', '.join(short)}")


if __name__ == "__main__":
    main()
