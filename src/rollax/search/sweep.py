"""Sweeps of many settings in one compiled program: random search, successive halving, population-based training."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rollax.errors import ConfigError, NumericError
from rollax.experiment.experiment import MOST_MEMBERS, Experiment, Member, with_values
from rollax.experiment.tree import leaves, to_json
from rollax.runs.files import write_text
from rollax.runs.lock import Lock
from rollax.runs.trust import remember
from rollax.search.arena import Arena, searchable_plan, with_rungs
from rollax.search.origin import origin_of
from rollax.search.space import Space
from rollax.search.stopping import stoppable
from rollax.search.sweep_folder import Progress, Row, SweepFolder, progress_of

Method = Literal["random", "halving", "pbt"]
KEPT = 2  # halving goes on with one in so many
QUARTER = 4  # of a population, the last of so many take over from the first of as many


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

    Leaves `trials.csv`, and `best.json` for `rollax train --config`.  Nothing is compiled after the first rung.  In the
    folder of the same sweep it goes on from the last rung, to the same results; the folder of another is refused.
    """
    check(experiment, space, method, settings)
    experiment = with_rungs(experiment, rungs)
    searchable_plan(experiment)  # what is wrong is said before there is a folder
    origin = origin_of(experiment, space, method=method, settings=settings, rungs=rungs)
    where = SweepFolder(folder)
    where.run.make()
    with Lock(where.run), stoppable(folder) as ear:
        if found := where.begin(origin, experiment):
            say(f"The sweep in {folder} has finished.")
            return concluded(experiment, found, folder, 0.0)
        path, meta = where.last_rung(origin, experiment)
        random = np.random.default_rng(experiment.seed)
        progress = Progress(list(range(settings)), space.draw(random, settings), [])
        block = block_size(settings * experiment.seeds, method, rungs)
        if path is not None:
            random.bit_generator.state = meta["random"]
            progress = progress_of(meta)
        with ear.at_once():
            arena = Arena(experiment, members_of(experiment, progress.numbers), block)
        say(
            f"{settings} settings x {experiment.seeds} seeds of {experiment.agent} on {experiment.env}, "
            f"{experiment.steps:,} steps each, {rungs} rungs; compiled in {arena.running.compile_seconds:.1f} s"
        )
        if path is not None:
            arena.restore(path, meta["step"] // experiment.steps_per_iteration)
            say(f"It goes on from step {meta['step']:,}.")
        while not arena.done:
            with ear.at_once():
                arena.advance()
                progress, order = judged(arena, experiment, method, progress, say)
            if arena.done:
                break
            progress = with_surgery(arena, experiment, space, method, progress, order, random)
            where.save(origin, space, progress.rows[-1].step, arena, progress, random)
        where.end(origin, space, progress)
        return concluded(experiment, progress, folder, arena.running.compile_seconds)


def judged(
    arena: Arena, experiment: Experiment, method: Method, progress: Progress, say: Callable[[str], None]
) -> tuple[Progress, list[int]]:
    """The rows of a rung added, and the places of its settings from the best to the last."""
    running, numbers, rows = progress
    scores = by_setting(arena, experiment.seeds)
    step = arena.iteration * experiment.steps_per_iteration
    order = sorted(range(len(running)), key=lambda place: -np.nan_to_num(scores[place], nan=-np.inf))
    stays = order[: kept_of(len(order), method)] if not arena.done else order
    new = []
    for place, setting in enumerate(running):
        failed = math.isnan(scores[place])
        status = "failed" if failed else "running" if place in stays and not arena.done else "dropped"
        status = "finished" if arena.done and not failed else status
        new.append(Row(step, setting, dict(numbers[place]), float(scores[place]), status))
    best = order[0]
    say(f"step {step:,}: {len(running)} settings, best {scores[best]:.1f} with {settings_text(numbers[best])}")
    return Progress(running, numbers, [*rows, *new]), order


def kept_of(count: int, method: Method) -> int:
    """How many settings go on after a rung."""
    return max(1, math.ceil(count / KEPT)) if method == "halving" else count


def with_surgery(
    arena: Arena,
    experiment: Experiment,
    space: Space,
    method: Method,
    progress: Progress,
    order: list[int],
    random: np.random.Generator,
) -> Progress:
    """Who goes on after a rung, and with what."""
    running, numbers, rows = progress
    kept = sorted(order[: kept_of(len(order), method)])
    if len(kept) < len(running):
        arena.keep([place * experiment.seeds + seed for place in kept for seed in range(experiment.seeds)])
        running, numbers = [running[place] for place in kept], [numbers[place] for place in kept]
    if method == "pbt":
        numbers = take_over(arena, space, numbers, order, random)
    return Progress(running, numbers, rows)


def concluded(experiment: Experiment, progress: Progress, folder: Path, compile_seconds: float) -> Sweep:
    """What a sweep has found, written as a configuration too.  NumericError where every setting has failed."""
    best = progress.best
    if best is None:
        raise NumericError(
            f"all {len(progress.running)} settings met a number that is not finite; {folder / 'trials.csv'} has their "
            "values: search smaller learning rates, or what differs"
        )
    write_best(experiment, best.numbers, folder)
    return Sweep(progress.rows, best.numbers, best.score, compile_seconds)


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
