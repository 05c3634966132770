"""Trains the policies of the zoo, packs them, and writes the table of `docs/zoo.md` anew.

A run that is there already is not trained again.  Weights are stored in half precision where the score stays within one
standard error of it.  A score is the mean return of 100 episodes that no training has seen.

    nice -n 19 python benchmarks/zoo.py --out runs/zoo --machine "two cores of an AMD EPYC" [--only ppo-CartPole ...]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from rollax.experiment.tree import to_json
from rollax.programs.machine import use_compile_cache, versions
from rollax.programs.plan import make_plan
from rollax.runs import zoo
from rollax.runs.checkpoint import flatten
from rollax.runs.folder import RunFolder
from rollax.runs.reader import FORMAT, sha256_of
from rollax.runs.result import evaluate_source
from rollax.runs.sources import Source, source_of

PAGE = Path(__file__).parent.parent / "docs" / "zoo.md"
MARKS = re.compile(r"(<!-- table of the zoo -->).*?(<!-- end of the table -->)", flags=re.DOTALL)
EPISODES, SEED = 100, 1  # no run evaluates itself with this seed
MINATAR = "pqn --env {game}-MinAtar --steps {steps} --learning-rate-steps {steps} --epsilon-steps {epsilon}"
COMMANDS = {
    "ppo-CartPole": "ppo --env CartPole-v1",
    "double-Acrobot": "double --env Acrobot-v1",
    "double-MountainCar": "double --env MountainCar-v0",
    "ppo-MemoryChain": "ppo --env MemoryChain-bsuite",
    "ppo-RepeatFirst": "ppo --env RepeatFirst-v0",
    "ppo-PositionOnlyCartPole": "ppo --env PositionOnlyCartPole-v0",
    "ppo-Pendulum": "ppo --env Pendulum-v1",
    "ppo-MountainCarContinuous": "ppo --env MountainCarContinuous-v0",
    "ppo-Catch": "ppo --env Catch-bsuite --preset none --steps 200000",
    "ppo-TreasureHunt": (
        "ppo --env TreasureHunt-v0 --preset none --learners shared --steps 600000 --num-envs 16 --rollout-length 50 "
        "--minibatches 8 --epochs 4 --learning-rate 0.001 --learning-rate-end 0 --learning-rate-steps 600000 "
        "--discount 0.8 --trace-lambda 0.9 --hidden 128 128 --reward-scale 0.1"
    ),
    "pqn-Breakout": MINATAR.format(game="Breakout", steps=1_500_000, epsilon=200_000),
    "pqn-SpaceInvaders": MINATAR.format(game="SpaceInvaders", steps=1_500_000, epsilon=200_000),
    "pqn-Asterix": MINATAR.format(game="Asterix", steps=2_000_000, epsilon=250_000),
    "pqn-Freeway": MINATAR.format(game="Freeway", steps=2_000_000, epsilon=250_000),
    "pqn-Seaquest": MINATAR.format(game="Seaquest", steps=2_000_000, epsilon=250_000),
}


def train(name: str, folder: Path) -> None:
    """A run of the command of a user, unless it is there."""
    if not folder.exists():
        command = [
            sys.executable,
            "-m",
            "rollax",
            "train",
            *COMMANDS[name].split(),
            "--run-dir",
            str(folder),
            "--quiet",
        ]
        subprocess.run(command, check=True)


def halved(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {path: array.astype(np.float16) if array.dtype == np.float32 else array for path, array in arrays.items()}


def pack(run_dir: Path, target: Path, commit: str, machine: str) -> dict[str, Any]:
    """Writes an entry of the zoo from a run of one member; returns its card."""
    source, summary = source_of(run_dir), RunFolder(run_dir).read_summary()
    params = source.weights(make_plan(source.experiment).shapes()[0].learner.params, best=True)
    rounded = jax.tree.map(lambda leaf: leaf.astype(np.float16).astype(leaf.dtype), params)
    (whole,), (half,) = (
        evaluate_source(
            Source(source.experiment, source.steps, lambda like, *, best, own=own: own), EPISODES, seed=SEED
        )
        for own in (params, rounded)
    )
    keeps = abs(whole["return_mean"] - half["return_mean"]) <= whole["return_std"] / EPISODES**0.5
    arrays = flatten(jax.tree.map(lambda leaf: leaf[0], params))
    row = half if keeps else whole
    target.mkdir(parents=True, exist_ok=True)
    save_file(halved(arrays) if keeps else arrays, target / zoo.WEIGHTS, {"format": "rollax"})
    (target / zoo.CONFIG).write_text(json.dumps(to_json(source.experiment), indent=1) + "\n")
    card = {
        "format": FORMAT,
        "agent": source.experiment.agent,
        "env": source.experiment.env,
        "score": round(row["return_mean"], 4),
        "deviation": round(row["return_std"], 4),
        "in_single_precision": round(whole["return_mean"], 4),
        "episodes": EPISODES,
        "seed": SEED,
        "steps": source.steps,  # fewer than the command says where the run was stopped
        "seconds": summary["wall_seconds"],
        "machine": machine,
        "commit": commit,
        "command": f"rollax train {COMMANDS[target.name]}",
        "versions": {name: version for name, version in versions().items() if name in ("python", "rollax", "jax")},
        "files": {name: sha256_of(target / name) for name in (zoo.CONFIG, zoo.WEIGHTS)},
    }
    (target / zoo.CARD).write_text(json.dumps(card, indent=1) + "\n")
    return card


def table(entries: Iterable[zoo.Entry]) -> str:
    """The list of the zoo as it stands in its page."""
    header = ("policy", "environment", "score", "deviation", "steps", "machine", "commit")
    lines = [f"| {' | '.join(header)} |", "|" + " --- |" * len(header)]
    for row in zoo.listed(entries):
        cells = (
            f"`{row['name']}`",
            f"{row['env']}",
            f"{row['score']:.2f}",
            f"{row['deviation']:.2f}",
            f"{row['steps']:,}",
            row["machine"],
            f"`{row['commit'][:7]}`",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--zoo", type=Path, default=Path("src/rollax/zoo"))
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--machine", required=True)
    parser.add_argument("--commit", default="", help="of the code that trained; by default what is checked out")
    options = parser.parse_args()
    use_compile_cache()
    asked = ["git", "rev-parse", "HEAD"]
    commit = options.commit or subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    for name in options.only:
        train(name, options.out / name)
        card = pack(options.out / name, options.zoo / name, commit, options.machine)
        size = sum(path.stat().st_size for path in (options.zoo / name).iterdir())
        told = f"{card['score']:.2f} ({card['in_single_precision']:.2f} in single precision)"
        print(f"{name}: {told}, {size:,} bytes", flush=True)
    entries = (zoo.Entry(path.parent) for path in sorted(options.zoo.glob(f"*/{zoo.CARD}")))
    PAGE.write_text(MARKS.sub(lambda marks: f"{marks[1]}\n{table(entries)}\n{marks[2]}", PAGE.read_text()))


if __name__ == "__main__":
    main()
