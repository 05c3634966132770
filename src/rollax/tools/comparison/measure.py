"""Runs all modes of the comparison side by side and writes down what they take and what they learn."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.experiment.tree import to_json
from rollax.programs.plan import make_plan
from rollax.rules.aggregates import spread
from rollax.runs.console import table
from rollax.runs.tables import machine
from rollax.tools.comparison.settings import TYPICAL_EPSILON, settings_of
from rollax.tools.processes import Child

Mode = Literal["pytorch", "jax_sequential", "jax_parallel"]
SUFFIX = {"pytorch": "PYTORCH_SEQUENTIAL", "jax_sequential": "JAX_SEQUENTIAL", "jax_parallel": "JAX_PARALLEL"}
EPSILONS = (TYPICAL_EPSILON, 1.0)
WARM_UP = 30  # epochs before anything is timed: all have begun to learn by then
GREEDY_EPOCHS = 100


@dataclass(frozen=True)
class Protocol:
    """How long everything runs."""

    epochs: int = 1_000  # Of the run from the beginning, whose returns are shown.
    timed_epochs: int = 200  # Of each timing at a fixed epsilon ...
    repeats: int = 3  # ... and how often it is repeated.
    seeds: int = 1  # Runs from the beginning, in each mode.

    def problems(self) -> list[str]:
        return [
            f"{name}={value} must be at least {least}"
            for name, value, least in (
                ("epochs", self.epochs, 1),
                ("timed_epochs", self.timed_epochs, 0),
                ("repeats", self.repeats, 1),
                ("seeds", self.seeds, 1),
            )
            if value < least
        ]


class Worker(Child):
    """A mode in its own process."""

    def __init__(self, mode: Mode, experiment: Experiment, device: str) -> None:
        self.mode: Mode = mode
        super().__init__("rollax.tools.comparison.worker", f"the mode {mode}")
        self.tell({"mode": mode, "experiment": to_json(experiment), "device": device})

    def ask(self, call: str, **options: Any) -> Any:
        return self.tell({"call": call, **options})


@dataclass
class Measured:
    """What was seen of one mode."""

    mode: Mode
    run_name: str
    epoch_seconds: dict[float, list[float]] = field(default_factory=lambda: {epsilon: [] for epsilon in EPSILONS})
    loads: list[float] = field(default_factory=list)  # of the machine, after each timing
    total_seconds: list[float] = field(default_factory=list)  # of each run from the beginning
    returns: list[list[float]] = field(default_factory=list)
    greedy: list[list[float]] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """As plain data; the middle of repeats, and their spread."""
        timed = {str(epsilon): spread(spent) for epsilon, spent in self.epoch_seconds.items() if spent}
        return {
            "mode": self.mode,
            "run_name": self.run_name,
            "total_seconds": float(np.mean(self.total_seconds)),
            "epoch_seconds": timed,
            "part_seconds": self.parts,
            "return_last_100": float(np.mean([run[-100:] for run in self.returns])),
            "return_last_100_of_seeds": [float(np.mean(run[-100:])) for run in self.returns],
            "greedy_return": float(np.mean(self.greedy)),
            "greedy_return_of_seeds": [float(np.mean(run)) for run in self.greedy],
            "load": max(self.loads, default=None),
            **self.facts,
        }


def compare(
    experiment: Experiment,
    folder: Path,
    protocol: Protocol,
    modes: Sequence[Mode],
    torch_device: str = "cpu",
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """All modes of one experiment: what comes back is also in `bench.json`, and drawn in `bench.png`."""
    problems = protocol.problems()
    if not modes:
        problems.append(f"modes is empty; there are {', '.join(SUFFIX)}")
    if problems:
        raise ConfigError(problems)
    settings_of(experiment)
    experiment = make_plan(experiment).experiment
    folder.mkdir(parents=True, exist_ok=True)
    workers: list[Worker] = []
    try:
        for mode in modes:
            say(f"{mode}: building, and {WARM_UP} epochs to warm up")
            workers.append(Worker(mode, experiment, torch_device))
            workers[-1].ask("run", epochs=WARM_UP, epsilon=TYPICAL_EPSILON)
        found = [Measured(mode, run_name(experiment, mode)) for mode in modes]
        time_epochs(workers, found, protocol, say)
        learn(workers, found, protocol, experiment.seed, folder, say)
        for worker, its in zip(workers, found, strict=True):
            its.facts = worker.ask("facts")
    finally:
        for worker in workers:
            worker.stop()
    result = {
        "experiment": to_json(experiment),
        "protocol": vars(protocol),
        "machine": machine(),
        "modes": [its.summary() for its in found],
    }
    result["speed_ups"] = speed_ups(result["modes"])
    (folder / "bench.json").write_text(json.dumps(result, indent=2) + "\n")
    draw(result, folder / "bench.png")
    say(show(result))
    for its in result["modes"]:
        say(json.dumps(its))
    say(f"Written: {folder / 'bench.json'}, {folder / 'bench.png'}")
    return result


def run_name(experiment: Experiment, mode: Mode) -> str:
    world = experiment.world
    return f"treasurehunt_{world.agents}agents_{world.height}x{world.width}_{world.obs_timing}_{SUFFIX[mode]}"


def time_epochs(workers: list[Worker], found: list[Measured], protocol: Protocol, say: Callable[[str], None]) -> None:
    """Every repeat times all modes one after the other, so that a machine's moods meet all of them."""
    if not protocol.timed_epochs:
        return
    for repeat in range(protocol.repeats):
        for epsilon in EPSILONS:
            for worker, its in zip(workers, found, strict=True):
                timed = worker.ask("run", epochs=protocol.timed_epochs, epsilon=epsilon)
                its.epoch_seconds[epsilon].append(timed["seconds"] / protocol.timed_epochs)
                its.loads.append(timed["load"])
                last = 1e3 * its.epoch_seconds[epsilon][-1]
                say(f"{its.mode}: {last:.1f} ms an epoch at epsilon {epsilon} (repeat {repeat + 1})")
    for worker, its in zip(workers, found, strict=True):
        its.parts = worker.ask("parts")


def learn(
    workers: list[Worker],
    found: list[Measured],
    protocol: Protocol,
    seed: int,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Whole runs from the beginning; the returns of their epochs are written to a table for each mode."""
    for number in range(protocol.seeds):
        for worker, its in zip(workers, found, strict=True):
            worker.ask("reset", seed=seed + number)
            run = worker.ask("run", epochs=protocol.epochs, epsilon=None)
            its.total_seconds.append(run["seconds"])
            its.returns.append(run["returns"])
            its.greedy.append(worker.ask("greedy", epochs=GREEDY_EPOCHS, seed=10_000 + number))
            say(
                f"{its.mode}, seed {seed + number}: {protocol.epochs} epochs in {run['seconds']:.1f} s, return of the "
                f"last 100 {np.mean(run['returns'][-100:]):.1f}, greedy {np.mean(its.greedy[-1]):.1f}"
            )
    for its in found:
        with open(folder / f"{its.run_name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["epoch", *(f"return_seed_{seed + number}" for number in range(protocol.seeds))])
            rows.writerows([epoch, *returns] for epoch, returns in enumerate(zip(*its.returns, strict=True)))


def speed_ups(modes: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times as fast as PyTorch each mode is: in whole runs, and an epoch at each fixed epsilon."""
    base = next((its for its in modes if its["mode"] == "pytorch"), None)
    if base is None:
        return {}
    return {
        its["mode"]: {
            "total": base["total_seconds"] / its["total_seconds"],
            **{
                f"epsilon {epsilon}": base["epoch_seconds"][epsilon]["median"] / timed["median"]
                for epsilon, timed in its["epoch_seconds"].items()
            },
        }
        for its in modes
    }


def show(result: dict[str, Any]) -> str:
    """The figures as a table."""
    header = ["mode", "total s", "ms/epoch 0.37", "ms/epoch 1.0", "acting", "training", "sampling", "world"]
    header += ["compile s", "peak MiB", "return", "greedy", "times PyTorch"]
    rows = []
    for its in result["modes"]:
        timed = [its["epoch_seconds"].get(str(epsilon), {}) for epsilon in EPSILONS]
        ups = result["speed_ups"].get(its["mode"], {})
        rows.append(
            [
                its["mode"],
                f"{its['total_seconds']:.1f}",
                *(milliseconds(values) for values in timed),
                *(f"{1e3 * its['part_seconds'][part]:.1f}" if its["part_seconds"] else "-" for part in header[4:8]),
                f"{its['compile_seconds']:.1f}",
                f"{its['peak_bytes']['host'] / 2**20:.0f}",
                f"{its['return_last_100']:.1f}",
                f"{its['greedy_return']:.1f}",
                f"{ups.get(f'epsilon {TYPICAL_EPSILON}', ups.get('total', float('nan'))):.2f}",
            ]
        )
    return table(header, rows)


def milliseconds(values: dict[str, float]) -> str:
    if not values:
        return "-"
    median, least, most = (1e3 * values[name] for name in ("median", "min", "max"))
    return f"{median:.1f} ({least:.1f}-{most:.1f})"


def draw(result: dict[str, Any], target: Path) -> None:
    """Bars: what an epoch takes, by its parts, and what whole runs take."""
    from matplotlib.figure import Figure

    modes = result["modes"]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    names, floor = [its["mode"] for its in modes], np.zeros(len(modes))
    for part in ("training", "acting", "sampling", "world"):
        heights = np.array([1e3 * max(0.0, its["part_seconds"].get(part, 0.0)) for its in modes])
        left.bar(names, heights, bottom=floor, label=part, width=0.6)
        floor += heights
    left.set_ylabel("milliseconds of an epoch")
    left.set_title(f"parts of an epoch, epsilon {TYPICAL_EPSILON}", fontsize=10)
    left.legend(frameon=False, fontsize=8)
    seconds = [its["total_seconds"] for its in modes]
    bars = right.bar(names, seconds, width=0.6, color="0.4")
    labels = [f"{value:.0f} s" + told(result, name) for value, name in zip(seconds, names, strict=True)]
    right.bar_label(bars, labels, fontsize=8)
    right.set_ylabel("seconds")
    right.set_title(f"{result['protocol']['epochs']} epochs", fontsize=10)
    right.margins(y=0.15)
    devices = sorted({f"{its['device']}" for its in modes})
    figure.suptitle(f"Treasure hunt on {', '.join(devices)}, {os.cpu_count()} cores", fontsize=10)
    figure.savefig(target, dpi=140)


def told(result: dict[str, Any], mode: str) -> str:
    ups = result["speed_ups"].get(mode, {})
    return f"\n{ups['total']:.1f} x" if ups and mode != "pytorch" else ""
