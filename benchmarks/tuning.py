"""A Bayesian search of CartPole's Double DQN over five numbers, in batches, and one trial after the other.

Three times the same number of trials, steps, seeds and rungs, each in a fresh process with an empty compilation cache:
`rollax tune` in batches; `rollax tune --batch 1`, which trains one trial after the other with one program; and the
trials of that search again as runs of `rollax.train` of their own, each as long as it was before it was pruned.  Then
the winner of the batches is trained on ten seeds that the search has not seen.

    python benchmarks/tuning.py [--trials 20] [--batch 10] [--steps 413696] [--seeds 3]

With `--study FOLDER` it does another thing: 20 trials over the space of the original study of this project's
forerunner, whose journal, figures and best setting stay in the folder.

    python benchmarks/tuning.py --study benchmarks/studies/double-cartpole --steps 413696 --seeds 1
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
    "replay_limit": "log:2000:100000",
    "target_period": "log:5:200",
}
# The original's: rate, discount, last epsilon, replay and batch.
ORIGINAL = {
    "learning_rate": "log:1e-4:1e-2",
    "discount": "uniform:0.95:0.999",
    "epsilon_end": "uniform:0.01:0.3",
    "replay_limit": "int:5000:50000",
    "batch_size": "choice:16,32,64,128",
}
RUNGS = 4


def timed(*command: object, cache: Path) -> tuple[float, str]:
    """Seconds of a command of Python's, and what it printed."""
    began = time.perf_counter()
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    words = [sys.executable, *map(str, command)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return time.perf_counter() - began, done.stdout


def train_each(folder: Path, steps: int, seeds: int) -> None:
    """The trials of a study as runs of their own."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    import rollax

    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    trials = optuna.load_study(study_name="double on CartPole-v1", storage=storage).get_trials()
    for trial in trials:
        reached = steps * max(trial.intermediate_values, default=RUNGS) // RUNGS
        experiment = rollax.make_experiment(
            "double", env="CartPole-v1", steps=reached, seeds=seeds, eval_steps=steps // RUNGS, **trial.params
        )
        rollax.train(experiment, folder / f"trial_{trial.number}", quiet=True)


def study(folder: Path, trials: int, batch: int, steps: int, seeds: int) -> None:
    """A search of the original's space, which stays in the folder, and its winner on ten seeds that it has not seen."""
    folder.mkdir(parents=True, exist_ok=True)
    space = folder / "space.json"
    space.write_text(json.dumps(ORIGINAL, indent=1) + "\n")
    with tempfile.TemporaryDirectory() as temporary:
        cache, size = Path(temporary), ["--steps", steps, "--seeds", seeds]
        words = ["-m", "rollax", "tune", "double", "--env", "CartPole-v1", "--space", space, "--trials", trials]
        seconds, told = timed(*words, *size, "--batch", batch, "--rungs", RUNGS, "--out", folder, cache=cache)
        print(told, f"{seconds:.1f} s", sep="\n", flush=True)
        best = ["--config", folder / "best.json", "--seed", 1_000, "--seeds", 10, "--run-dir", cache / "winner"]
        timed("-m", "rollax", "train", *best, "--quiet", cache=cache)
        members = json.loads((cache / "winner" / "summary.json").read_text())["members"]
        returns = [member["eval_return_mean"] for member in members]
        print(f"the winner on ten fresh seeds: {', '.join(f'{value:.0f}' for value in returns)}")
        last = last_episodes(cache / "winner")
        print(f"mean of the last 50 training episodes: {', '.join(f'{value:.0f}' for value in last)}")


def last_episodes(run_dir: Path) -> list[float]:
    """Of each member the mean of its last 50 episodes, random actions included."""
    import rollax
    from rollax.rules.aggregates import moving_average

    curves = rollax.Result(run_dir).curves
    return [float(row[-1]) for row in moving_average(curves["episode_return_mean"], curves["episodes"], 50)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--steps", type=int, default=413_696)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--each", type=Path, help="used by itself")
    parser.add_argument("--study", type=Path, help="the folder of a study over the original's space")
    options = parser.parse_args()
    if options.study:
        study(options.study, options.trials, options.batch, options.steps, options.seeds)
        return
    if options.each:
        train_each(options.each, options.steps, options.seeds)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        space = folder / "space.json"
        space.write_text(json.dumps(SPACE))
        size = ["--steps", options.steps, "--seeds", options.seeds]
        tune = ["-m", "rollax", "tune", "double", "--env", "CartPole-v1", "--space", space, "--trials", options.trials]

        def search(batch: int) -> float:
            own = ["--batch", batch, "--rungs", RUNGS, "--out", folder / f"study_{batch}"]
            seconds, told = timed(*tune, *size, *own, cache=folder / f"cache_{batch}")
            print(
                f"rollax tune --batch {batch}: {seconds:.1f} s\n  " + "\n  ".join(told.splitlines()[-4:-1]), flush=True
            )
            return seconds

        together, in_turn = search(options.batch), search(1)
        alone, _ = timed(__file__, "--each", folder / "study_1", *size, cache=folder / "cache_each")
        print(f"a run of rollax.train for each: {alone:.1f} s", flush=True)
        best = folder / f"study_{options.batch}" / "best.json"
        fresh = ["--config", best, "--seed", 1_000, "--seeds", 10, "--run-dir", folder / "winner"]
        timed("-m", "rollax", "train", *fresh, cache=folder / f"cache_{options.batch}")
        members = json.loads((folder / "winner" / "summary.json").read_text())["members"]
        returns = [member["eval_return_mean"] for member in members]
        print(f"the winner on ten fresh seeds: {', '.join(f'{value:.0f}' for value in returns)}")
        print(f"solved on {sum(value >= 475 for value in returns)} of 10 (475)")
        print(f"in batches {in_turn / together:.2f} times as fast as in turn, {alone / together:.2f} times as alone")


if __name__ == "__main__":
    main()
