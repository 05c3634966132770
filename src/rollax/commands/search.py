"""The commands that look for good settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from rollax.commands.flags import ExperimentFlags, read_experiment
from rollax.errors import demand
from rollax.settings import COUNT, COUNT_OR_NONE, Limit, setting

MOST = 1_000_000  # settings, trials and members


@dataclass(frozen=True, kw_only=True)
class Search(ExperimentFlags):
    search: tyro.conf.UseAppendAction[tuple[str, ...]] = setting(
        (),
        "What is searched: NAME=uniform:LOW:HIGH, NAME=log:LOW:HIGH, NAME=int:LOW:HIGH or NAME=choice:A,B; "
        "given again for each.",
        group="search",
    )
    space: str = setting(
        "", 'A JSON file of what is searched by name, as in {"learning_rate": "log:1e-4:1e-2"}.', group="search"
    )
    rungs: int = setting(4, "Number of evaluations of each setting, evenly apart.", group="search", limit=COUNT)
    out: str = setting("", "The folder for the results; by default one below runs/.", group="search")
    quiet: bool = setting(False, "Print nothing but warnings.", group="run")


@dataclass(frozen=True, kw_only=True)
class SweepFlags(Search):
    method: Literal["random", "halving", "pbt"] = setting(
        "random",
        "Search method: random trains all settings to the end, halving keeps the better half at each rung, pbt "
        "replaces the worst by varied copies of the best.",
        group="search",
    )
    settings: int = setting(
        16, "Number of settings that are drawn, each with so many --seeds.", group="search", limit=Limit(2, MOST)
    )


@dataclass(frozen=True, kw_only=True)
class TuneFlags(Search):
    trials: int = setting(
        20, "Number of finished trials at which the search ends.", group="search", limit=Limit(1, MOST)
    )
    batch: int = setting(10, "Number of trials that are trained at once.", group="search", limit=Limit(1, MOST))
    prune_from: int = setting(
        2,
        "The first rung after which trials below the median are pruned; above --rungs prunes none.",
        group="search",
        limit=COUNT_OR_NONE,
    )
    confirm: int = setting(
        3,
        "Number of best trials that are trained again with new seeds before the winner is chosen.",
        group="search",
        limit=COUNT_OR_NONE,
    )
    storage: str = setting(
        "", "Where the study is kept, as in postgresql://...; by default a journal in the folder.", group="search"
    )


def sweep_command(arguments: list[str]) -> int:
    """`rollax sweep [AGENT] --search NAME=... [flags]`."""
    text = "Train many settings in one compiled program: random search, successive halving, population-based training."
    experiment, flags = searched(arguments, SweepFlags, "sweep", text)
    from rollax.search.space import read_space
    from rollax.search.sweep import settings_text, sweep

    space = read_space(experiment, flags.search, flags.space)
    folder = search_folder(flags, f"sweep_{experiment.agent}_{experiment.env}")
    found = sweep(experiment, space, flags.method, flags.settings, flags.rungs, folder, speaker(flags))
    print(f"Best: {found.score:.1f} with {settings_text(found.best)}")
    print(f"Train it: rollax train --config {folder / 'best.json'}")
    return 0


def tune_command(arguments: list[str]) -> int:
    """`rollax tune [AGENT] --search NAME=... [flags]`."""
    text = "Bayesian search with Optuna: batches of trials, each one compiled population. The same command goes on."
    experiment, flags = searched(arguments, TuneFlags, "tune", text)
    demand("optuna", "tune")
    from rollax.runs.folder import plain_name
    from rollax.search.space import read_space
    from rollax.search.study import Settings
    from rollax.search.sweep import settings_text
    from rollax.search.tune import tune

    space = read_space(experiment, flags.search, flags.space)
    settings = Settings(flags.trials, flags.batch, flags.rungs, flags.prune_from, experiment.seed, flags.confirm)
    folder = Path(flags.out or Path("runs") / f"tune_{plain_name(f'{experiment.agent}_{experiment.env}')}")
    found = tune(experiment, space, settings, flags.storage, folder, speaker(flags))
    print(f"{found.finished} trials in {found.seconds:.0f} s, {found.programs} programs; {folder / 'study.png'}")
    print(f"Best: {found.score:.1f} with {settings_text(found.best)}")
    print(f"Train it: rollax train --config {folder / 'best.json'}")
    return 0


def searched(arguments: list[str], options: type, command: str, text: str) -> tuple[Any, Any]:
    """The experiment around which is searched, and the flags of the search."""
    experiment, flags = read_experiment(arguments, options, command, text)
    from rollax.programs.machine import use_all_cores, use_compile_cache

    use_all_cores()
    if flags.compile_cache:
        use_compile_cache()
    return experiment, flags


def search_folder(flags: Any, name: str) -> Path:
    from rollax.runs.folder import unused_folder

    return Path(flags.out) if flags.out else unused_folder(name)


def speaker(flags: Any) -> Callable[[str], None]:
    return (lambda line: None) if flags.quiet else (lambda line: print(line, flush=True))
