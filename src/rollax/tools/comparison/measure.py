"""Runs all modes of the comparison side by side and writes down what they take and what they learn."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rollax.experiment.experiment import Experiment
from rollax.experiment.tree import to_json
from rollax.programs.machine import machine
from rollax.programs.plan import make_plan
from rollax.rules.aggregates import spread
from rollax.settings import COUNT, COUNT_OR_NONE, setting
from rollax.tools import sides
from rollax.tools.comparison.mode import PARTS
from rollax.tools.comparison.settings import TYPICAL_EPSILON, settings_of
from rollax.tools.processes import Remote
from rollax.tools.sides import Column, Panel, Say, Summary, ratio, with_range

Mode = Literal["pytorch", "jax_sequential", "jax_parallel"]
KINDS = {
    "pytorch": "rollax.tools.comparison.torch_mode:TorchMode",
    "jax_sequential": "rollax.tools.comparison.jax_sequential:JaxSequential",
    "jax_parallel": "rollax.tools.comparison.jax_parallel:JaxParallel",
}
SUFFIX = {"pytorch": "PYTORCH_SEQUENTIAL", "jax_sequential": "JAX_SEQUENTIAL", "jax_parallel": "JAX_PARALLEL"}
EPSILONS = (TYPICAL_EPSILON, 1.0)
WARM_UP = 30  # epochs before anything is timed: all have begun to learn by then
GREEDY_EPOCHS = 100


@dataclass(frozen=True)
class Protocol:
    """How long everything runs."""

    epochs: int = setting(1_000, "Epochs of the run from the beginning, whose returns are shown.", limit=COUNT)
    timed_epochs: int = setting(200, "Epochs of each timing at a fixed epsilon; 0 for no timing.", limit=COUNT_OR_NONE)
    repeats: int = setting(3, "How often each timing is repeated.", limit=COUNT)
    seeds: int = setting(1, "Runs from the beginning, in each mode.", limit=COUNT)


class Worker(Remote):
    """A mode in its own process."""

    def __init__(self, mode: str, experiment: Experiment, torch_device: str = "cpu") -> None:
        self.mode, self.run_name = mode, run_name(experiment, mode)
        options = {"device": torch_device} if mode == "pytorch" else {}
        maker, data = "rollax.tools.comparison.mode:make_mode", to_json(experiment)
        super().__init__(f"the mode {mode}", maker, kind=KINDS[mode], experiment=data, **options)


def run_name(experiment: Experiment, mode: str) -> str:
    world = experiment.world
    return f"treasurehunt_{world.agents}agents_{world.height}x{world.width}_{world.obs_timing}_{SUFFIX[mode]}"


def compare(
    experiment: Experiment,
    folder: Path,
    protocol: Protocol,
    modes: Sequence[Mode],
    torch_device: str = "cpu",
    say: Say = print,
) -> dict[str, Any]:
    """All modes of one experiment: what comes back is also in `bench.json`, and drawn in `bench.png`."""
    sides.check(protocol, *([] if modes else [f"modes is empty; there are {', '.join(SUFFIX)}"]))
    settings_of(experiment)
    experiment = make_plan(experiment).experiment
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        workers = []
        for mode in modes:
            say(f"{mode}: building, and {WARM_UP} epochs to warm up")
            workers.append(stack.enter_context(Worker(mode, experiment, torch_device)))
            workers[-1].ask("run", epochs=WARM_UP, epsilon=TYPICAL_EPSILON)
        timings = time_epochs(workers, protocol, say)
        parts = [worker.ask("parts") if protocol.timed_epochs else {} for worker in workers]
        runs = learn(workers, protocol, experiment.seed, say)
        facts = [worker.ask("facts") for worker in workers]
    for worker, its in zip(workers, runs, strict=True):
        write_returns(folder / f"{worker.run_name}.csv", its)
    summaries = [summary(*its) for its in zip(workers, timings, parts, runs, facts, strict=True)]
    result = {
        "experiment": to_json(experiment),
        "protocol": vars(protocol),
        "machine": machine(),
        "modes": summaries,
        "speed_ups": speed_ups(summaries),
    }
    (folder / "bench.json").write_text(json.dumps(result, indent=2) + "\n")
    draw(result, folder / "bench.png")
    for line in (show(result), *map(json.dumps, summaries)):
        say(line)
    say(f"Written: {folder / 'bench.json'}, {folder / 'bench.png'}")
    return result


def time_epochs(workers: list[Worker], protocol: Protocol, say: Say) -> list[list[dict[str, Any]]]:
    """Epochs at each fixed epsilon, repeated."""

    def measure(worker: Worker, turn: tuple[int, float]) -> dict[str, Any]:
        repeat, epsilon = turn
        timing = worker.ask("run", epochs=protocol.timed_epochs, epsilon=epsilon)
        seconds = timing["seconds"] / protocol.timed_epochs
        say(f"{worker.mode}: {1e3 * seconds:.1f} ms an epoch at epsilon {epsilon} (repeat {repeat + 1})")
        return {"epsilon": epsilon, "epoch_seconds": seconds, "load": timing["load"]}

    repeats = range(protocol.repeats if protocol.timed_epochs else 0)
    return sides.in_turns(workers, itertools.product(repeats, EPSILONS), measure)


def learn(workers: list[Worker], protocol: Protocol, first_seed: int, say: Say) -> list[list[dict[str, Any]]]:
    """Whole runs from the beginning, and what their agents then do without random actions."""

    def measure(worker: Worker, number: int) -> dict[str, Any]:
        seed = first_seed + number
        worker.ask("reset", seed=seed)
        run = worker.ask("run", epochs=protocol.epochs, epsilon=None)
        greedy = worker.ask("greedy_returns", count=GREEDY_EPOCHS, seed=10_000 + number)
        say(
            f"{worker.mode}, seed {seed}: {protocol.epochs} epochs in {run['seconds']:.1f} s, return of the "
            f"last 100 {np.mean(run['returns'][-100:]):.1f}, greedy {np.mean(greedy):.1f}"
        )
        return {"seed": seed, "greedy": greedy, **run}

    return sides.in_turns(workers, range(protocol.seeds), measure)


def write_returns(path: Path, runs: list[dict[str, Any]]) -> None:
    """A table of the returns of all epochs, a column for each seed."""
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["epoch", *(f"return_seed_{run['seed']}" for run in runs)])
        columns = zip(*(run["returns"] for run in runs), strict=True)
        rows.writerows([epoch, *returns] for epoch, returns in enumerate(columns))


def summary(
    worker: Worker,
    timings: list[dict[str, Any]],
    parts: dict[str, float],
    runs: list[dict[str, Any]],
    facts: dict[str, Any],
) -> Summary:
    """What was seen of one mode."""
    seconds = {str(e): [row["epoch_seconds"] for row in timings if row["epsilon"] == e] for e in EPSILONS}
    last, greedy = ([float(np.mean(returns)) for returns in of_seeds] for of_seeds in (
        (run["returns"][-100:] for run in runs), (run["greedy"] for run in runs)
    ))  # fmt: skip
    return {
        "mode": worker.mode,
        "run_name": worker.run_name,
        "total_seconds": float(np.mean([run["seconds"] for run in runs])),
        "epoch_seconds": {epsilon: spread(values) for epsilon, values in seconds.items() if values},
        "part_seconds": parts,
        "return_last_100": float(np.mean(last)),
        "return_last_100_of_seeds": last,
        "greedy_return": float(np.mean(greedy)),
        "greedy_return_of_seeds": greedy,
        "load": max((row["load"] for row in timings), default=None),
        **facts,
    }


def speed_ups(modes: list[Summary]) -> dict[str, dict[str, float | None]]:
    """How many times as fast as PyTorch each mode is: in whole runs, and an epoch at each fixed epsilon."""
    base = next((its for its in modes if its["mode"] == "pytorch"), None)
    if base is None:
        return {}
    return {
        its["mode"]: {
            "total": base["total_seconds"] / its["total_seconds"],
            **{
                f"epsilon {epsilon}": ratio(base["epoch_seconds"][epsilon], seconds)
                for epsilon, seconds in its["epoch_seconds"].items()
            },
        }
        for its in modes
    }


def show(result: dict[str, Any]) -> str:
    """The figures as a table."""

    def epoch(epsilon: float) -> Column:
        def cell(its: Summary) -> str:
            seconds = its["epoch_seconds"].get(str(epsilon))
            return with_range(seconds, 1, unit=1e-3, between="-") if seconds else "-"

        return Column(f"ms/epoch {epsilon}", cell)

    def part(name: str) -> Column:
        return Column(name, lambda its: f"{1e3 * its['part_seconds'][name]:.1f}" if its["part_seconds"] else "-")

    def times_pytorch(its: Summary) -> str:
        ups = result["speed_ups"].get(its["mode"], {})
        return f"{ups.get(f'epsilon {TYPICAL_EPSILON}', ups.get('total', float('nan'))):.2f}"

    columns = (
        Column("mode", lambda its: its["mode"]),
        Column("total s", lambda its: f"{its['total_seconds']:.1f}"),
        *map(epoch, EPSILONS),
        *map(part, PARTS),
        Column("compile s", lambda its: f"{its['compile_seconds']:.1f}"),
        Column("peak MiB", lambda its: f"{its['peak_bytes']['host'] / 2**20:.0f}"),
        Column("return", lambda its: f"{its['return_last_100']:.1f}"),
        Column("greedy", lambda its: f"{its['greedy_return']:.1f}"),
        Column("times PyTorch", times_pytorch),
    )
    return sides.side_table(columns, result["modes"])


def draw(result: dict[str, Any], target: Path) -> None:
    """Bars: what an epoch takes, by its parts, and what whole runs take."""
    modes = result["modes"]

    def label(its: Summary) -> str:
        ups = result["speed_ups"].get(its["mode"], {})
        times = f"\n{ups['total']:.1f} x" if ups and its["mode"] != "pytorch" else ""
        return f"{its['total_seconds']:.0f} s{times}"

    layers = {
        part: [1e3 * max(0.0, its["part_seconds"].get(part, 0.0)) for its in modes]
        for part in ("training", "acting", "sampling", "world")
    }
    totals = {"": [its["total_seconds"] for its in modes]}
    panels = (
        Panel(f"parts of an epoch, epsilon {TYPICAL_EPSILON}", layers, "milliseconds of an epoch"),
        Panel(f"{result['protocol']['epochs']} epochs", totals, "seconds", [*map(label, modes)], {"color": "0.4"}),
    )
    devices = ", ".join(sorted({its["device"] for its in modes}))
    title = f"Treasure hunt on {devices}, {os.cpu_count()} cores"
    sides.draw(target, title, [its["mode"] for its in modes], panels, (9, 3.6))
