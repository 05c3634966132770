"""Bayesian search with Optuna: batches of trials are asked for together, and each batch is one compiled population."""

from __future__ import annotations

import math
import os
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from rollax.errors import ConfigError, ResourceError
from rollax.experiment.experiment import Experiment, with_values
from rollax.runs.folder import RunFolder
from rollax.search.arena import Arena, with_rungs
from rollax.search.pictures import plot_study
from rollax.search.space import Dimension, Space
from rollax.search.sweep import by_setting, members_of, told, write_best

STALE_SECONDS = 600.0  # a trial of another machine that nobody has touched for so long is taken back
WORKER, CAUSE = "worker", "cause"  # whose a trial is and when it was last touched; why one failed
STARTING = 10  # trials that are drawn at random before anything is learnt from them
FRESH = 1_000_000  # added to the seed, for seeds that no trial has
ENOUGH = 4  # trials that a median is taken of, at least
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


class Settings(NamedTuple):
    """How a search is run."""

    trials: int = 20
    batch: int = 10  # trials that are asked for, and trained, together
    rungs: int = 4  # evaluations of a trial
    prune_from: int = 2  # the first rung after which a trial may be left; above `rungs` for never
    seed: int = 0
    confirm: int = 3  # the best trials that are trained again before one of them is named; 0 for none ...
    confirm_seeds: int = 8  # ... with so many seeds that they have not seen


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
    RunFolder(folder).make()
    study = open_study(experiment, storage, folder, settings.seed)
    experiment = with_rungs(experiment, settings.rungs)
    arenas: dict[tuple, Arena] = {}  # one for each program
    while len(ended(study)) < settings.trials:
        take_back(study)
        trials = ask(study, space, settings)
        if not trials:
            time.sleep(1.0)  # other workers have the rest
            continue
        for fixed, group in by_program(space, trials).items():
            train_group(study, space, settings, with_values(experiment, dict(fixed)), group, arenas, say)
        say(progress(study, settings))
    best, score = confirmed(study, space, settings, experiment, arenas, say)
    numbers = values_of(space, best)
    write_best(experiment, numbers, folder)
    plot_study(study, space, folder / "study.png")
    return Tuning(len(ended(study)), numbers, score, time.monotonic() - began, len(arenas))


# -- the study


def open_study(experiment: Experiment, storage: str, folder: Path, seed: int) -> optuna.Study:
    """The study of that storage, or a new one: a journal file in the folder unless another place is named."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    place: Any = storage
    if not storage:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        place = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    elif "://" not in storage:
        raise ConfigError(f"storage={storage!r} must be a URL such as sqlite:///study.db, or left out")
    sampler = TPESampler(
        seed=seed + os.getpid() % 1_000 if storage else seed,
        multivariate=True,
        constant_liar=True,
        n_startup_trials=STARTING,
    )
    try:
        return optuna.create_study(
            study_name=f"{experiment.agent} on {experiment.env}",
            storage=place,
            sampler=sampler,
            direction="maximize",
            load_if_exists=True,
        )
    except Exception as error:  # whatever a database driver raises
        raise ResourceError(f"storage={storage or folder} cannot be opened: {str(error).splitlines()[0]}") from error


def ended(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that count: completed, pruned, or failed for a cause of their own."""
    trials = study.get_trials(deepcopy=False, states=(*ENDED, TrialState.FAIL))
    return [trial for trial in trials if trial.state in ENDED or CAUSE in trial.user_attrs]


def take_back(study: optuna.Study) -> None:
    """Trials of workers that are no more are tried again."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, process, touched = trial.user_attrs.get(WORKER, ("", 0, 0.0))
        here = host == socket.gethostname() and not alive(process)
        if here or time.time() - touched > STALE_SECONDS:
            give_up(study, trial.number, trial.params)


def give_up(study: optuna.Study, number: int, params: dict[str, Any]) -> None:
    """Ends a trial without a cause, which does not count; its values, if it has any, come up again."""
    study.tell(number, state=TrialState.FAIL)
    if params:
        study.enqueue_trial(params)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process > 0


def ask(study: optuna.Study, space: Space, settings: Settings) -> list[Trial]:
    """New trials, as many as a batch holds and are still missing.

    At first all choices are tried.  Later the first trial of a batch chooses what a program depends on, and the others
    follow, unless they were taken back from elsewhere.
    """
    count = min(settings.batch, missing(study, settings))
    if count <= 0:
        return []
    own = study.sampler
    trials = [suggested(study.ask(), space)]
    if space.fixed and len(ended(study)) >= STARTING:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.sampler = PartialFixedSampler(fixed_values(space, trials[0]), own)
    try:
        trials += [suggested(study.ask(), space) for _ in range(count - 1)]
    finally:
        study.sampler = own
    surplus = max(0, -missing(study, settings))  # another worker has asked at the same time
    for trial in trials[len(trials) - surplus :]:
        give_up(study, trial.number, trial.params)
    return trials[: len(trials) - surplus]


def missing(study: optuna.Study, settings: Settings) -> int:
    """Trials that nobody has begun."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return settings.trials - len(ended(study)) - len(running)


def by_program(space: Space, trials: list[Any]) -> dict[tuple, list[Any]]:
    """The trials that one program can train, by what it depends on."""
    groups: dict[tuple, list[Any]] = {}
    for trial in trials:
        groups.setdefault(tuple(fixed_values(space, trial).items()), []).append(trial)
    return groups


def suggested(trial: Trial, space: Space) -> Trial:
    """The trial with a value for every dimension, and its worker's name."""
    touch(trial)
    for dimension in space.dimensions:
        suggest(trial, dimension)
    return trial


def suggest(trial: Trial, dimension: Dimension) -> Any:
    if dimension.kind == "choice":
        return trial.suggest_categorical(dimension.name, list(dimension.options))
    if dimension.whole:
        return trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high), log=dimension.kind == "log")
    return trial.suggest_float(dimension.name, dimension.low, dimension.high, log=dimension.kind == "log")


def touch(trial: Trial) -> None:
    """Says that this process has the trial; not more often than it matters."""
    if time.time() - trial.user_attrs.get(WORKER, ("", 0, 0.0))[2] > STALE_SECONDS / 4:
        trial.set_user_attr(WORKER, (socket.gethostname(), os.getpid(), time.time()))


def values_of(space: Space, trial: Trial | FrozenTrial) -> dict[str, Any]:
    return {dimension.name: trial.params[dimension.name] for dimension in space.dimensions}


def fixed_values(space: Space, trial: Trial | FrozenTrial) -> dict[str, Any]:
    return {dimension.name: trial.params[dimension.name] for dimension in space.fixed}


def best_of(study: optuna.Study) -> FrozenTrial:
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        raise ResourceError("no trial has completed: all failed or were pruned; look at the study, widen the space")
    return max(complete, key=merit)


def merit(trial: FrozenTrial) -> tuple[float, float]:
    """Of equal scores, as where all is reached that can be, that which was reached sooner."""
    score = -math.inf if trial.value is None else trial.value
    return score, float(np.mean(list(trial.intermediate_values.values()) or [0.0]))


# -- a batch


def train_group(
    study: optuna.Study,
    space: Space,
    settings: Settings,
    experiment: Experiment,
    trials: list[Trial],
    arenas: dict[tuple, Arena],
    say: Callable[[str], None],
) -> None:
    """Trains trials as one population, and tells the study what became of each."""
    seeds = experiment.seeds
    try:  # half a batch at a time: once so many are pruned, the rest takes half the time
        arena = arena_of(experiment, space, trials, arenas, seeds * max(1, settings.batch // 2))
    except ConfigError as error:  # choices that do not go together
        for trial in trials:
            fail(study, trial, str(error))
        say(f"trials {trials[0].number} to {trials[-1].number} cannot be: {error}")
        return
    running = trials
    history: dict[int, list[float]] = {trial.number: [] for trial in trials}
    for rung in range(1, settings.rungs + 1):
        arena.advance()
        scores = by_setting(arena, seeds)
        well = []
        for place, trial in enumerate(running):
            score = float(scores[place])
            if math.isnan(score):
                fail(study, trial, f"not finite by step {arena.iteration * experiment.steps_per_iteration}")
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
        arena = arena_of(fresh, space, group, arenas, len(group) * settings.confirm_seeds)
        seen = []
        while not arena.done:
            arena.advance()
            seen.append(by_setting(arena, settings.confirm_seeds))
        late = np.nan_to_num(np.mean(seen[settings.rungs // 2 :], axis=0), nan=-math.inf)
        scores |= {trial.number: float(score) for trial, score in zip(group, late, strict=True)}
    best = max(leading, key=lambda trial: scores[trial.number])
    told_scores = ", ".join(f"trial {trial.number}: {scores[trial.number]:.1f}" for trial in leading)
    say(f"the best again, with {settings.confirm_seeds} fresh seeds: {told_scores}")
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


def fail(study: optuna.Study, trial: Trial, cause: str) -> None:
    trial.set_user_attr(CAUSE, cause)
    study.tell(trial, state=TrialState.FAIL)


def median(study: optuna.Study, rung: int) -> float:
    """The median of all trials that have come so far, running ones included; of too few, below every number."""
    trials = study.get_trials(deepcopy=False)
    seen = [trial.intermediate_values[rung] for trial in trials if rung in trial.intermediate_values]
    return float(np.median(seen)) if len(seen) >= ENOUGH else -math.inf


def progress(study: optuna.Study, settings: Settings) -> str:
    counts = {state: len(study.get_trials(deepcopy=False, states=(state,))) for state in (*ENDED, TrialState.FAIL)}
    complete, pruned, failed = counts.values()
    line = f"{len(ended(study))} of {settings.trials} trials: {complete} completed, {pruned} pruned, {failed} failed"
    if complete:
        best = best_of(study)
        line += f"; best {best.value:.1f} with {told(best.params)}"
    return line
