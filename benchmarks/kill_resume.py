"""Kills a run with SIGKILL at random moments and resumes it, again and again; compares with an undisturbed run.

Each trial starts a fresh run, kills it once at a random moment (while it compiles, trains, evaluates or
saves), resumes it, and compares `params_sha256` of every member and every row of metrics.csv, less the
clock, with the run that nobody disturbed.

    python benchmarks/kill_resume.py [--trials 20] [--seed 0]
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHAPE = (
    *("--seeds", "3", "--steps", "4000000", "--num-envs", "32", "--hidden", "32", "--preset", "none"),
    *("--capacity", "9600", "--batch-size", "32", "--checkpoint-seconds", "0.5", "--chunk-seconds", "0.2"),
)


def rollax(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "rollax", *map(str, arguments), "--quiet"]


def outcome(folder: Path) -> tuple[list[str], list[dict[str, str]]]:
    """What must be equal: the weights' fingerprints, and the rows without the clock."""
    members = json.loads((folder / "summary.json").read_text())["members"]
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        del row["wall_seconds"], row["steps_per_second"]
    return [member["params_sha256"] for member in members], rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        subprocess.run(rollax("train", "double", *SHAPE, "--run-dir", base / "calm"), check=True)
        began = time.perf_counter()
        subprocess.run(rollax("train", "double", *SHAPE, "--run-dir", base / "again"), check=True)
        whole = time.perf_counter() - began
        calm = outcome(base / "calm")
        print(f"undisturbed: {whole:.1f} s; twice the same: {outcome(base / 'again') == calm}")
        same = 0
        for trial in range(options.trials):
            folder = base / f"trial{trial}"
            process = subprocess.Popen(rollax("train", "double", *SHAPE, "--run-dir", folder))
            moment = draw.uniform(0.25, 0.95) * whole
            time.sleep(moment)
            alive = process.poll() is None
            process.kill()
            process.wait()
            saved = sorted(int(entry.name) for entry in folder.glob("checkpoints/[0-9]*"))
            resumed = subprocess.run(rollax("resume", folder), check=False)
            equal = resumed.returncode == 0 and outcome(folder) == calm
            same += equal
            verdict = "same" if equal else "DIFFERENT"
            late = "" if alive else " (it had ended already)"
            print(f"kill {trial + 1:3d} after {moment:5.2f} s{late}, checkpoints {saved}: {verdict}")
        print(f"{same} of {options.trials} resumes end as the undisturbed run")
    return 0 if same == options.trials else 1


if __name__ == "__main__":
    sys.exit(main())
