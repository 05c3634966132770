"""What CartPole's agent depends on: the target network, the learning rate, the batch size, the depth.

Each setting is a run of ten seeds; all of them are one report and one table.

    python benchmarks/ablation.py [--seeds 10] [--out runs/ablation]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import rollax
from rollax.programs.machine import use_all_cores
from rollax.reports.page import write_report
from rollax.rules.aggregates import bootstrap
from rollax.runs.console import table

# Without a target network: its weights are those of the learner after every gradient step.
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no target network": {"target_period": 1, "target_step": 1.0},
    "learning rate / 10": {"learning_rate": 5e-4},
    "learning rate x 10": {"learning_rate": 5e-2},
    "batch 16": {"batch_size": 16},
    "batch 512": {"batch_size": 512},
    "one layer": {"hidden": (64,)},
    "three layers": {"hidden": (64, 64, 64)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0, help="of each seed; 0 for the preset's")
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"))
    options = parser.parse_args()
    use_all_cores()
    folders, rows = [], []
    for name, values in SETTINGS.items():
        budget = {"steps": options.steps} if options.steps else {}
        experiment = rollax.make_experiment("dqn", seeds=options.seeds, **values, **budget)
        result = rollax.train(experiment, options.out / name.replace(" ", "_").replace("/", "by"), quiet=True)
        folders.append(result.run_dir)
        scores = np.array([member["eval_return_mean"] or 0.0 for member in result.summary["members"]])
        held = np.mean(result.evaluations["return_mean"][:, -5:] >= 475)
        iqm = bootstrap(scores)
        rows.append(
            [name, f"{scores.mean():.0f}", f"{iqm.value:.0f}", f"{iqm.low:.0f} to {iqm.high:.0f}",
             f"{np.sum(scores >= 475)} of {len(scores)}", f"{held:.0%}"]
        )  # fmt: skip
        print(
            table(["setting", "mean", "IQM", "95 % interval", "solved", "of the last five evaluations"], rows),
            flush=True,
        )
    print(write_report(folders, options.out / "report.html", film=False))


if __name__ == "__main__":
    main()
