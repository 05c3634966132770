"""Kills runs with SIGKILL at random moments, half of them during a save, resumes them, and compares.

    python benchmarks/kill_resume.py [--kills 200] [--cases double rainbow ...] [--seed 0] [--workers 2]

A run is killed and resumed several times until it ends.  Then the weights of every member, and every row of metrics.csv
and evaluations.csv less the clock, must be those of a run that nobody disturbed.  Two kinds of run cannot be: with
environments outside JAX the state that is restored must be the one that was saved, to the bit, before new episodes
begin; with actors the weights must be finite, and the learner must go on from where it was saved.

A kill is during a save if it leaves a checkpoint that is not finished.  One that comes after the end is made again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from safetensors.numpy import load_file

from rollax.errors import RollaxError
from rollax.programs.plan import make_plan
from rollax.runs import checkpoint
from rollax.runs.folder import RunFolder
from rollax.runs.resuming import saved_shapes

COMMON = (
    *("--preset", "none", "--num-envs", "8", "--hidden", "8", "--eval-episodes", "2", "--quiet"),
    *("--checkpoint-seconds", "0", "--chunk-seconds", "0.05"),
)
REPLAY = ("--capacity", "768", "--batch-size", "8", "--warm-up-steps", "160")
HUNT = ("--env", "TreasureHunt-v0", "--agents", "3", "--height", "6", "--width", "6", "--max-turns", "8")
Promise = Literal["same", "restored", "finite"]
CASES: dict[str, tuple[list[str], Promise]] = {
    **{agent: ([agent, *REPLAY], "same") for agent in ("double", "prioritized", "rainbow", "iqn", "noisy")},
    "pqn": (["pqn", "--rollout-length", "8"], "same"),
    "ppo": (["ppo", "--rollout-length", "8"], "same"),
    "four seeds": (["double", *REPLAY, "--seeds", "4"], "same"),
    "players": (["double", *REPLAY, *HUNT, "--rollout-length", "8"], "same"),
    "host environments": (["double", *REPLAY, "--env", "gymnasium:CartPole-v1"], "restored"),
    "actors": (["apex", *REPLAY, "--actors", "2", "--rollout-length", "4"], "finite"),
}
CHAIN = 5  # kills of one run
LASTS = 2.5  # seconds of training of a run
FIRST_STEPS = 2_000  # of the run that shows how many steps that is
HANGS = 600.0
SHOWN = re.compile(r"\.\d+\.\d+")  # a checkpoint that is being written, or dropped


@dataclass
class Tally:
    """What became of a case's kills."""

    kills: int = 0
    saving: int = 0
    equal: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Calm:
    """The run that nobody disturbs."""

    steps: int
    seconds: float  # from its start to its end
    outcome: Any


class Bench:
    def __init__(self, base: Path, seed: int):
        self.base, self.seed = base, seed
        self.lock = threading.Lock()
        flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        own = {"XDG_CACHE_HOME": str(base / "cache"), "JAX_PLATFORMS": "cpu"}
        self.surroundings = {"XLA_FLAGS": flags} | os.environ | own

    def begin(self, *words: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rollax", *map(str, words)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self.surroundings)

    def finish(self, *words: object) -> float:
        """Runs a command to its end; the seconds that it took."""
        began = time.monotonic()
        process = self.begin(*words)
        _, error = process.communicate(timeout=HANGS)
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode} of {' '.join(map(str, words))}: {error.decode()}")
        return time.monotonic() - began

    def train(self, case: str, folder: Path, steps: int) -> list[object]:
        return ["train", *CASES[case][0], *COMMON, "--steps", steps, "--run-dir", folder]

    def calm(self, case: str) -> Calm:
        """An undisturbed run that is long enough to be killed, after one that shows how long that is."""
        name = case.replace(" ", "_")
        first = self.finish(*self.train(case, self.base / f"{name}_first", FIRST_STEPS))
        rate = json.loads((self.base / f"{name}_first" / "summary.json").read_text())["steps_per_second"]
        steps = max(FIRST_STEPS, round(LASTS * (rate or 0) / 1_000) * 1_000)
        if CASES[case][1] != "same":  # nothing is compared with it
            return Calm(steps, first, ())
        seconds = self.finish(*self.train(case, self.base / f"{name}_calm", steps))
        return Calm(steps, seconds, outcome(self.base / f"{name}_calm"))

    def test(self, case: str, kills: int) -> Tally:
        """So many kills of a case, in runs one after the other; half of them during a save."""
        tally, draw = Tally(), random.Random(f"{self.seed} {case}")
        try:
            calm = self.calm(case)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            tally.failures.append(f"{case}, undisturbed: {error}")
            return tally
        for number in range(5 * kills):  # more runs than any machine needs
            self.chain(case, self.base / f"{case.replace(' ', '_')}_{number}", calm, draw, kills, tally)
            self.say(f"{case}: {tally.kills} of {kills} kills, {tally.saving} during a save, {tally.equal} equal")
            if tally.kills >= kills:
                break
        return tally

    def chain(self, case: str, folder: Path, calm: Calm, draw: random.Random, kills: int, tally: Tally) -> None:
        """One run, killed several times, or until it ends by itself."""
        words, counted, difference = self.train(case, folder, calm.steps), 0, ""
        try:
            for target in sorted(draw.uniform(0.0, 0.9) * calm.steps for _ in range(CHAIN)):
                left, saves_left = kills - tally.kills, kills - kills // 2 - tally.saving
                if not left:
                    break
                in_a_save = draw.random() * left < saves_left
                if not self.kill(words, folder, calm, draw, target, in_a_save):
                    break
                if (folder / "config.json").exists():
                    words = ["resume", folder, "--quiet"]
                if in_a_save and not unfinished(folder):
                    continue  # just before or after it: made again
                counted += 1
                tally.kills += 1
                tally.saving += unfinished(folder)
                if CASES[case][1] != "same":
                    check_restored(folder)
            reached = newest(folder)
            self.finish(*words)
            difference = unequal(case, folder, calm, reached)
        except (RuntimeError, RollaxError, AssertionError, subprocess.TimeoutExpired) as error:
            difference = str(error)
        if difference:
            tally.failures.append(f"{folder.name}: {difference}")
        else:
            tally.equal += counted

    def kill(
        self, words: Sequence[object], folder: Path, calm: Calm, draw: random.Random, target: float, in_a_save: bool
    ) -> bool:
        """Kills the process of a command once the run is that far, and whether it came in time."""
        process, began = self.begin(*words), time.monotonic()
        early = not in_a_save and draw.random() < 0.25  # while it starts and compiles
        moment = draw.uniform(0.02, 0.7) * calm.seconds
        delay = draw.uniform(0.0, 0.01 if in_a_save else 0.15)
        while process.poll() is None:
            waited = time.monotonic() - began
            far = waited >= moment if early else newest(folder) >= target
            if far and (not in_a_save or saving_now(folder, process.pid)):
                time.sleep(delay)
                break
            if waited > HANGS:
                process.kill()
                raise RuntimeError(f"it hangs: {' '.join(map(str, words))}")
            time.sleep(0.0005 if far else 0.002)
        below = descendants(process)
        process.kill()
        _, error = process.communicate()
        end(below)
        if process.returncode > 0:
            raise RuntimeError(f"exit code {process.returncode}: {error.decode()}")
        return process.returncode != 0

    def say(self, line: str) -> None:
        with self.lock:
            print(line, file=sys.stderr, flush=True)


def entries(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return os.listdir(folder / "checkpoints")
    return []


def newest(folder: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(name) for name in entries(folder) if name.isdigit()), default=0)


def saving_now(folder: Path, process: int) -> bool:
    return any(name.endswith(f".{process}") for name in entries(folder))


def unfinished(folder: Path) -> bool:
    """Whether a kill has left a checkpoint that was being written or dropped."""
    return any(SHOWN.fullmatch(name) for name in entries(folder))


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def end(processes: list[psutil.Process]) -> None:
    """Waits until those that a killed process has left are gone, and helps if they stay."""
    _, alive = psutil.wait_procs(processes, timeout=5.0)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5.0)


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    with path.open() as file:
        for row in csv.DictReader(file):
            yield {name: cell for name, cell in row.items() if name not in ("wall_seconds", "steps_per_second")}


def outcome(folder: Path) -> Any:
    """What must be equal: the weights' fingerprints, and the rows without the clock."""
    members = json.loads((folder / "summary.json").read_text())["members"]
    tables = [list(rows_of(folder / name)) for name in ("metrics.csv", "evaluations.csv")]
    return [member["params_sha256"] for member in members], *tables


def newest_arrays(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "checkpoints" / str(newest(folder)) / checkpoint.ARRAYS)


def check_restored(folder: Path) -> None:
    """What `resume` would go on from is, array by array, what the newest good checkpoint holds."""
    if not newest(folder):
        return
    run = RunFolder(folder)
    path, _ = run.newest_good_checkpoint()
    assert path is not None, f"{folder} has no good checkpoint"
    plan = make_plan(run.read_experiment(trust=False))
    with plan.program.restoring():
        restored = checkpoint.restore(path, saved_shapes(plan))
    state, best = plan.program.placed(restored["train"], restored["best"])
    found, saved = checkpoint.flatten({"train": state, "best": best}), load_file(path / checkpoint.ARRAYS)
    assert set(found) == set(saved), f"{path}: {sorted(set(found) ^ set(saved))}"
    for name, array in found.items():
        same = array.dtype == saved[name].dtype and array.tobytes() == saved[name].tobytes()
        assert same, f"{path}: {name} is not restored as it was saved"


def unequal(case: str, folder: Path, calm: Calm, reached: int) -> str:
    """What is wrong with a run that was killed; nothing where it is as promised."""
    summary = json.loads((folder / "summary.json").read_text())
    if summary["status"] != "finished" or summary["total_steps"] < calm.steps:
        return f"{summary['status']} at step {summary['total_steps']}"
    if CASES[case][1] == "same":
        found = zip(("weights", "metrics.csv", "evaluations.csv"), outcome(folder), calm.outcome, strict=True)
        return ", ".join(f"other {name}" for name, own, right in found if own != right)
    strange = [
        name for name, array in newest_arrays(folder).items() if "params" in name and not np.isfinite(array).all()
    ]
    steps = [int(row["step"]) for row in rows_of(folder / "metrics.csv")]
    if strange:
        return f"{strange[0]} is not finite"
    return "" if steps == sorted(steps) and newest(folder) >= reached else "the learner was lost"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    shares = [options.kills * (index + 1) // len(options.cases) for index in range(len(options.cases))]
    counts = [share - before for share, before in zip(shares, [0, *shares], strict=False)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.workers) as pool:
        bench = Bench(Path(name), options.seed)
        order = sorted(
            zip(options.cases, counts, strict=True), key=lambda pair: pair[0] != "actors"
        )  # the slowest first
        found = dict(zip([case for case, _ in order], pool.map(lambda pair: bench.test(*pair), order), strict=True))
    print(f"{'case':<20}{'kills':>7}{'during a save':>15}{'equal':>7}  what is equal")
    meaning = {
        "same": "weights and rows",
        "restored": "the restored state",
        "finite": "finite, and the learner goes on",
    }
    for case in options.cases:
        one = found[case]
        print(f"{case:<20}{one.kills:>7}{one.saving:>15}{one.equal:>7}  {meaning[CASES[case][1]]}")
    total = [sum(getattr(one, name) for one in found.values()) for name in ("kills", "saving", "equal")]
    print(f"{'all':<20}{total[0]:>7}{total[1]:>15}{total[2]:>7}  in {(time.monotonic() - began) / 60:.0f} minutes")
    for one in found.values():
        print(*one.failures, sep="\n", end="\n" if one.failures else "")
    return 0 if total[2] == total[0] == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
