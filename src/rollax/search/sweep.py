"""Sweeps of many settings in one compiled program: random search, successive halving, population-based training."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rollax.errors import ConfigError
from rollax.experiment.experiment import MOST_MEMBERS, Experiment, Member, with_values
from rollax.experiment.tree import leaves, to_json
from rollax.runs.files import write_text
from rollax.runs.folder import RunFolder
from rollax.runs.trust import remember
from rollax.search.arena import Arena, with_rungs
from rollax.search.space import Space

Method = Literal["random", "halving", "pbt"]
KEPT = 2  # halving goes on with one in so many
QUARTER = 4  # of a population, the last of so many take over from the first of as many


class Row(NamedTuple):
    """What became of a setting by one rung."""

    step: int
    setting: int
    numbers: dict[str, Any]
    score: float  # mean over its seeds; not a number where one of them failed
    status: str


class Sweep(NamedTuple):
    """What a sweep found."""

    rows: list[Row]
    best: dict[str, Any]  # the settings of the best, by name
    score: float
    compile_seconds: float


def sweep(
    experiment: Experiment,
    space: Space,
    method: Method,
    settings: int,
    rungs: int,
    folder: Path,
    say: Callable[[str], None],
) -> Sweep:
    """Trains a population of settings x seeds, with an evaluation at each of `rungs` rungs.

    Leaves `trials.csv`, and `best.json` for `rollax train --config`.  Nothing is compiled after the first rung.
    """
    check(experiment, space, method, settings)
    experiment = with_rungs(experiment, rungs)
    random = np.random.default_rng(experiment.seed)
    numbers = space.draw(random, settings)
    members = members_of(experiment, numbers)
    arena = Arena(experiment, members, block_size(len(members), method, rungs))
    where = RunFolder(folder)
    where.make()
    say(
        f"{settings} settings x {experiment.seeds} seeds of {experiment.agent} on {experiment.env}, "
        f"{experiment.steps:,} steps each, {rungs} rungs; compiled in {arena.running.compile_seconds:.1f} s"
    )
    running, rows = list(range(settings)), []
    while not arena.done:
        arena.advance()
        scores = by_setting(arena, experiment.seeds)
        step = arena.iteration * experiment.steps_per_iteration
        order = sorted(range(len(running)), key=lambda place: -np.nan_to_num(scores[place], nan=-np.inf))
        stays = order if arena.done or method != "halving" else order[: max(1, math.ceil(len(order) / KEPT))]
        for place, setting in enumerate(running):
            failed = math.isnan(scores[place])
            status = "failed" if failed else "running" if place in stays and not arena.done else "dropped"
            status = "finished" if arena.done and not failed else status
            rows.append(Row(step, setting, dict(numbers[place]), float(scores[place]), status))
        write_text(folder / "trials.csv", as_csv(space, rows))
        best = order[0]
        say(f"step {step:,}: {len(running)} settings, best {scores[best]:.1f} with {settings_text(numbers[best])}")
        if arena.done:
            break
        if method == "halving" and len(stays) < len(running):
            kept = sorted(stays)
            arena.keep([place * experiment.seeds + seed for place in kept for seed in range(experiment.seeds)])
            running, numbers = [running[place] for place in kept], [numbers[place] for place in kept]
        if method == "pbt":
            numbers = take_over(arena, space, numbers, order, random)
    write_best(experiment, numbers[best], folder)
    return Sweep(rows, numbers[best], float(scores[best]), arena.running.compile_seconds)


def check(experiment: Experiment, space: Space, method: Method, settings: int) -> None:
    problems = [
        f"search: {dimension.name} changes the program; a sweep takes hyper-parameters, `rollax tune` takes all"
        for dimension in space.fixed
    ]
    problems += [
        f"{leaf.name} has several values already; give it one, and search it"
        for leaf in leaves(experiment)
        if leaf.traced and isinstance(leaf.value, tuple)
    ]
    if method == "pbt" and experiment.seeds > 1:
        problems.append("seeds: a population trains every setting once; leave --seeds out")
    if settings < 2:
        problems.append(f"settings={settings} must be at least 2")
    if settings * experiment.seeds > MOST_MEMBERS:
        problems.append(
            f"settings={settings:,} x seeds={experiment.seeds:,} are too many members; the most is {MOST_MEMBERS:,}"
        )
    if problems:
        raise ConfigError(problems)


def members_of(experiment: Experiment, numbers: list[dict[str, Any]]) -> list[Member]:
    """Each setting with every seed."""
    usual = {leaf.name: leaf.value for leaf in leaves(experiment) if leaf.traced}
    seeds = range(experiment.seed, experiment.seed + experiment.seeds)
    return [Member(seed, usual | own) for own in numbers for seed in seeds]


def block_size(members: int, method: Method, rungs: int) -> int:
    """Members that are trained at once: all, or as many as the last of a halving are."""
    return max(1, math.ceil(members / KEPT ** (rungs - 1))) if method == "halving" else members


def by_setting(arena: Arena, seeds: int) -> np.ndarray:
    """The mean score of each setting."""
    found = arena.evaluate()
    return np.where(found.failed, np.nan, found.mean).reshape(-1, seeds).mean(axis=1)


def take_over(
    arena: Arena, space: Space, numbers: list[dict[str, Any]], order: list[int], random: np.random.Generator
) -> list[dict[str, Any]]:
    """The last quarter goes on from the first with its numbers perturbed; the settings from here on."""
    quarter = max(1, len(order) // QUARTER)
    sources, changed = list(range(len(order))), [dict(own) for own in numbers]
    for loser in order[-quarter:]:
        winner = order[int(random.integers(quarter))]
        sources[loser] = winner
        changed[loser] = {
            dimension.name: dimension.perturbed(numbers[winner][dimension.name], random)
            for dimension in space.dimensions
        }
    arena.adopt(sources, changed)
    return changed


def as_csv(space: Space, rows: list[Row]) -> str:
    names = [dimension.name for dimension in space.dimensions]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "setting", *names, "score", "status"])
    for row in rows:
        writer.writerow([row.step, row.setting, *(row.numbers[name] for name in names), row.score, row.status])
    return text.getvalue()


def settings_text(numbers: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in numbers.items()
    )


def write_best(experiment: Experiment, numbers: dict[str, Any], folder: Path) -> Path:
    """A configuration with the best settings, which `rollax train --config` takes."""
    path = folder / "best.json"
    config = to_json(with_values(experiment, numbers))
    remember(config)
    write_text(path, json.dumps(config, indent=1) + "\n")
    return path
