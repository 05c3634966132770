"""Bayesian search with Optuna: batches of trials are asked for together, and each batch is one compiled population."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from rollax.envs import registry
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment, with_values
from rollax.experiment.tree import range_problems
from rollax.runs.folder import RunFolder
from rollax.runs.reader import kind_of
from rollax.runs.signals import Ear
from rollax.search.arena import Arena, with_rungs
from rollax.search.journal import seal
from rollax.search.pictures import plot_study
from rollax.search.space import Space
from rollax.search.stopping import stoppable
from rollax.search.study import (
    NOT_FINITE,
    Settings,
    ask,
    best_of,
    ended,
    fail,
    fixed_values,
    hand_back,
    median,
    merit,
    open_study,
    progress,
    take_back,
    touch,
    values_of,
)
from rollax.search.sweep import by_setting, members_of, write_best

FRESH = 1_000_000  # added to the seed, for seeds that no trial has


class Tuning(NamedTuple):
    """What a search has found."""

    finished: int
    best: dict[str, Any]
    score: float
    seconds: float
    programs: int  # that were compiled


def tune(
    experiment: Experiment, space: Space, settings: Settings, storage: str, folder: Path, say: Callable[[str], None]
) -> Tuning:
    """Runs trials until so many have ended; what a killed search has left is taken up first.

    The score of a trial is the mean of the evaluations in the last half of its training, over its seeds.
    """
    began = time.monotonic()
    check_start(experiment)
    where = RunFolder(folder)
    if kind_of(where.config):
        raise ConfigError(f"out={folder} holds a run; name another folder")
    where.make()
    experiment = with_rungs(experiment, settings.rungs)
    study = open_study(experiment, space, storage, folder, settings)
    arenas: dict[tuple, Arena] = {}  # one for each program
    with stoppable(folder) as ear, handing_back(study, "" if storage else folder):
        while len(ended(study)) < settings.trials:
            take_back(study)
            trials = ask(study, space, settings)
            if not trials:
                with ear.at_once():
                    time.sleep(1.0)  # other workers have the rest
                continue
            for fixed, group in by_program(space, trials).items():
                train_group(study, space, settings, with_values(experiment, dict(fixed)), group, arenas, say, ear)
            if not storage:
                seal(folder)
            say(progress(study, settings))
        best, score = confirmed(study, space, settings, experiment, arenas, say, ear)
    numbers = values_of(space, best)
    write_best(experiment, numbers, folder)
    plot_study(study, space, folder / "study.png")
    return Tuning(len(ended(study)), numbers, score, time.monotonic() - began, len(arenas))


@contextmanager
def handing_back(study: optuna.Study, folder: Path | str) -> Generator[None]:
    """However it ends, no trial stays with this process, and the journal of that folder, if there is one, is sealed."""
    try:
        yield
    except BaseException:
        hand_back(study)
        raise
    finally:
        if folder:
            seal(Path(folder))


def check_start(experiment: Experiment) -> None:
    """Raises ConfigError, or EnvError, for what would be wrong with every trial."""
    if problems := range_problems(experiment):
        raise ConfigError(problems)
    registry.make_inside(experiment.env, experiment.world, experiment.view)


def by_program(space: Space, trials: list[Any]) -> dict[tuple, list[Any]]:
    """The trials that one program can train, by what it depends on."""
    groups: dict[tuple, list[Any]] = {}
    for trial in trials:
        groups.setdefault(tuple(fixed_values(space, trial).items()), []).append(trial)
    return groups


def train_group(
    study: optuna.Study,
    space: Space,
    settings: Settings,
    experiment: Experiment,
    trials: list[Trial],
    arenas: dict[tuple, Arena],
    say: Callable[[str], None],
    ear: Ear,
) -> None:
    """Trains trials as one population, and tells the study what became of each."""
    seeds = experiment.seeds
    try:  # half a batch at a time: once so many are pruned, the rest takes half the time
        with ear.at_once():
            arena = arena_of(experiment, space, trials, arenas, seeds * max(1, settings.batch // 2))
    except ConfigError as error:  # choices that do not go together
        for trial in trials:
            fail(study, trial, str(error))
        say(f"trials {trials[0].number} to {trials[-1].number} cannot be run: {error}")
        return
    running = trials
    history: dict[int, list[float]] = {trial.number: [] for trial in trials}
    for rung in range(1, settings.rungs + 1):
        with ear.at_once():
            arena.advance()
            scores = by_setting(arena, seeds)
        well = []
        for place, trial in enumerate(running):
            score = float(scores[place])
            if math.isnan(score):
                fail(study, trial, f"{NOT_FINITE} by step {arena.iteration * experiment.steps_per_iteration}")
                continue
            history[trial.number].append(score)
            trial.report(score, rung)
            touch(trial)
            well.append(place)
        bar = median(study, rung) if settings.prune_from <= rung < settings.rungs else -math.inf
        lost = {place for place in well if scores[place] < bar}
        for place in lost:
            study.tell(running[place], state=TrialState.PRUNED)
        stays = [place for place in well if place not in lost]
        if not stays:
            return
        if len(stays) < len(running) and rung < settings.rungs:
            arena.keep([place * seeds + seed for place in stays for seed in range(seeds)])
        running = [running[place] for place in stays]
    for trial in running:
        study.tell(trial, float(np.mean(history[trial.number][settings.rungs // 2 :])))


def confirmed(
    study: optuna.Study,
    space: Space,
    settings: Settings,
    experiment: Experiment,
    arenas: dict[tuple, Arena],
    say: Callable[[str], None],
    ear: Ear,
) -> tuple[FrozenTrial, float]:
    """The best trial and its score, by seeds that no trial has been chosen with: luck does not come twice."""
    best_of(study)  # or there is none
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    leading = sorted(complete, key=merit, reverse=True)[: settings.confirm]
    if len(leading) < 2:
        return best_of(study), float(best_of(study).value or math.nan)
    scores: dict[int, float] = {}
    for fixed, group in by_program(space, leading).items():
        fresh = replace(
            with_values(experiment, dict(fixed)), seed=experiment.seed + FRESH, seeds=settings.confirm_seeds
        )
        seen = []
        with ear.at_once():
            arena = arena_of(fresh, space, group, arenas, len(group) * settings.confirm_seeds)
            while not arena.done:
                arena.advance()
                seen.append(by_setting(arena, settings.confirm_seeds))
        late = np.nan_to_num(np.mean(seen[settings.rungs // 2 :], axis=0), nan=-math.inf)
        scores |= {trial.number: float(score) for trial, score in zip(group, late, strict=True)}
    best = max(leading, key=lambda trial: scores[trial.number])
    scores_text = ", ".join(f"trial {trial.number}: {scores[trial.number]:.1f}" for trial in leading)
    say(f"the best again, with {settings.confirm_seeds} fresh seeds: {scores_text}")
    return best, scores[best.number]


def arena_of(
    experiment: Experiment, space: Space, trials: Sequence[Trial | FrozenTrial], arenas: dict[tuple, Arena], block: int
) -> Arena:
    """The arena of these trials, begun: one that there is, if it has their program."""
    names = [dimension.name for dimension in space.traced]
    members = members_of(experiment, [{name: trial.params[name] for name in names} for trial in trials])
    program = tuple(fixed_values(space, trials[0]).items())
    if program in arenas:
        arenas[program].begin(members)
    else:
        arenas[program] = Arena(experiment, members, block)
    return arenas[program]
