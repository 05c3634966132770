"""The MinAtar table: agents by games, ten seeds in one program each, 10 M steps.

Prints mean, interquartile mean with a stratified 95 % bootstrap interval (over seeds) of the final greedy return, and
seconds.  gymnax's variant: no sticky actions, difficulty ramping on, minimal actions, 1,000 steps (Freeway 2,500).

    python benchmarks/minatar.py [--agents pqn qr] [--games Breakout ...] [--seeds 10] [--steps 10000000] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import jax

import rollax
from rollax.experiment.presets.minatar import GAMES
from rollax.rules.aggregates import bootstrap


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", nargs="*", default=["pqn", "qr"])
    parser.add_argument("--games", nargs="*", default=list(GAMES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    out = Path(options.out or tempfile.mkdtemp())
    changes = {"steps": options.steps} if options.steps else {}
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {options.seeds} seeds", flush=True)
    print(
        f"{'agent':>8} {'game':>14} {'mean':>7} {'IQM':>7} {'95 % interval':>16} {'training s':>11} {'whole s':>8}",
        flush=True,
    )
    rows = []
    for agent in options.agents:
        for game in options.games:
            began = time.perf_counter()
            experiment = rollax.make_experiment(agent, env=f"{game}-MinAtar", seeds=options.seeds, **changes)
            result = rollax.train(experiment, out / f"{agent}-{game}", quiet=True)
            whole = time.perf_counter() - began
            if result.summary["status"] != "finished":
                raise SystemExit(f"{agent} on {game}: {result.summary['status']}")
            scores = result.evaluations["return_mean"][:, -1]
            iqm = bootstrap(scores)
            summary = result.summary
            rows.append({"agent": agent, "game": game, "scores": scores.tolist(), "whole": whole, **summary})
            (out / "minatar.json").write_text(json.dumps(rows, default=str))
            interval = f"{iqm.low:.1f} to {iqm.high:.1f}"
            seconds = summary["train_seconds"]
            numbers = f"{scores.mean():7.1f} {iqm.value:7.1f} {interval:>16} {seconds:11.1f} {whole:8.1f}"
            print(f"{agent:>8} {game:>14} {numbers}", flush=True)


if __name__ == "__main__":
    main()
