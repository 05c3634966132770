"""The study of a Bayesian search: trials that are asked for, belong to a worker, and end with a score or a cause."""

from __future__ import annotations

import math
import os
import socket
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState

from rollax.errors import CheckpointError, ConfigError, NumericError, ResourceError, RollaxError
from rollax.experiment.experiment import Experiment
from rollax.search.journal import JOURNAL, check_journal, seal
from rollax.search.origin import check_origin, origin_of
from rollax.search.space import Dimension, Space
from rollax.search.sweep import settings_text

STALE_SECONDS = 600.0  # a trial of another machine that nobody has touched for so long is taken back
WORKER, CAUSE = "worker", "cause"  # whose a trial is and when it was last touched; why one failed
ORIGIN = "origin"  # of a study: its experiment, its space, and how it is searched
NOT_FINITE = "not finite"  # how the cause of a numerical failure begins
DAMAGED = ("malformed", "not a database", "corrupt")  # what databases say
STARTING = 10  # trials that are drawn at random before anything is learnt from them
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


def open_study(experiment: Experiment, space: Space, storage: str, folder: Path, settings: Settings) -> optuna.Study:
    """The study of that storage, or a new one: a journal file in the folder unless another place is named.

    Raises ConfigError where it is another experiment's, or has another space; CheckpointError where it is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    place: Any = storage
    if not storage:
        check_journal(folder)
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        place = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    elif "://" not in storage:
        raise ConfigError(f"storage={storage!r} must be a URL such as sqlite:///study.db, or left out")
    sampler = TPESampler(
        seed=settings.seed + os.getpid() % 1_000 if storage else settings.seed,
        multivariate=True,
        constant_liar=True,
        n_startup_trials=STARTING,
    )
    name = f"{experiment.agent} on {experiment.env}"
    try:
        there = optuna.get_all_study_names(place)
        if not storage and (others := [each for each in there if each != name]):
            raise ConfigError(f"{folder} holds the study {others[0]!r}, not {name!r}; name another folder")
        if name in there:
            study = optuna.load_study(study_name=name, storage=place, sampler=sampler)
        else:
            study = optuna.create_study(
                study_name=name, storage=place, sampler=sampler, direction="maximize", load_if_exists=True
            )
        claim(study, experiment, space, settings, storage or folder)
    except RollaxError:
        raise
    except Exception as error:  # whatever a database driver raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if not storage or any(word in str(error) for word in DAMAGED):
            raise CheckpointError(f"{storage or folder / JOURNAL} is damaged: {reason}; name another") from error
        raise ResourceError(f"storage={storage} cannot be opened: {reason}") from error
    if not storage:
        seal(folder)
    return study


def claim(study: optuna.Study, experiment: Experiment, space: Space, settings: Settings, where: Any) -> None:
    """Notes whose a new study is; refuses one of another experiment, or of another space."""
    origin = origin_of(experiment, space, rungs=settings.rungs)
    recorded = study.user_attrs.get(ORIGIN)
    if recorded is None and study.get_trials(deepcopy=False):
        raise ConfigError(f"{where} has trials of a version that did not note their experiment; name another folder")
    if recorded is None:
        study.set_user_attr(ORIGIN, origin)
    else:
        check_origin(where, recorded, origin, experiment)


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
    sampler = study.sampler
    trials = [suggested(study.ask(), space)]
    if space.fixed and len(ended(study)) >= STARTING:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.sampler = PartialFixedSampler(fixed_values(space, trials[0]), sampler)
    try:
        trials += [suggested(study.ask(), space) for _ in range(count - 1)]
    finally:
        study.sampler = sampler
    surplus = max(0, -missing(study, settings))  # another worker has asked at the same time
    for trial in trials[len(trials) - surplus :]:
        give_up(study, trial.number, trial.params)
    return trials[: len(trials) - surplus]


def missing(study: optuna.Study, settings: Settings) -> int:
    """Trials that nobody has begun."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return settings.trials - len(ended(study)) - len(running)


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
        raise fruitless(ended(study))
    return max(complete, key=merit)


def fruitless(trials: list[FrozenTrial]) -> RollaxError:
    """Why no trial of these has completed."""
    causes = [str(trial.user_attrs.get(CAUSE, "")) for trial in trials]
    finite = [cause for cause in causes if not cause.startswith(NOT_FINITE)]
    if causes and not finite:
        return NumericError(
            f"all {len(causes)} trials met a number that is not finite; search smaller learning rates, or what differs"
        )
    if causes and len(finite) == len(causes) and all(causes):
        return ConfigError([f"no trial can be run: {cause}" for cause in dict.fromkeys(causes)])
    return NumericError("no trial has completed: all failed or were pruned; look at the study, widen the space")


def hand_back(study: optuna.Study) -> None:
    """Trials of this process are tried again, by whoever goes on."""
    own = (socket.gethostname(), os.getpid())
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if tuple(trial.user_attrs.get(WORKER, ())[:2]) == own:
            give_up(study, trial.number, trial.params)


def merit(trial: FrozenTrial) -> tuple[float, float]:
    """Of equal scores, as where all is reached that can be, that which was reached sooner."""
    score = -math.inf if trial.value is None else trial.value
    return score, float(np.mean(list(trial.intermediate_values.values()) or [0.0]))


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
        line += f"; best {best.value:.1f} with {settings_text(best.params)}"
    return line
