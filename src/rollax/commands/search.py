"""The commands that look for good settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from rollax.commands.flags import parse_experiment, starting_experiment
from rollax.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Search:
    search: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=uniform:LOW:HIGH, NAME=log:LOW:HIGH, NAME=int:LOW:HIGH or NAME=choice:A,B; again for each."""
    space: str = ""  # A JSON file with the same by name, as in {"learning_rate": "log:1e-4:1e-2"}.
    rungs: int = 4  # Evaluations of each setting, evenly apart.
    out: str = ""  # The folder for what is found; by default a new one below runs/.


@dataclass(frozen=True, kw_only=True)
class SweepFlags(Search):
    method: Literal["random", "halving", "pbt"] = (
        "random"  # All to the end; the better half of each rung; or taking over.
    )
    settings: int = 16  # Settings that are drawn; each has so many --seeds.


@dataclass(frozen=True, kw_only=True)
class TuneFlags(Search):
    trials: int = 20  # Trials that are to end.
    batch: int = 10  # Trials that are trained at once.
    prune_from: int = 2  # The first rung after which what is below the median is left; above --rungs for never.
    confirm: int = 3  # The best trials that are trained again, with fresh seeds, before one is named; 0 for none.
    storage: str = ""  # Where the study is kept, as in postgresql://...; by default a journal in the folder.


def sweep_command(arguments: list[str]) -> int:
    """`rollax sweep [AGENT] --search NAME=... [flags]`."""
    text = "Train many settings in one compiled program: random search, successive halving, population-based training."
    experiment, flags = searched(arguments, SweepFlags, "rollax sweep [AGENT]", text)
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
    experiment, flags = searched(arguments, TuneFlags, "rollax tune [AGENT]", text)
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("tune needs Optuna: pip install 'rollax[tune]'")
    from rollax.runs.run import plain_name
    from rollax.search.space import read_space
    from rollax.search.study import Settings
    from rollax.search.sweep import settings_text
    from rollax.search.tune import tune

    space = read_space(experiment, flags.search, flags.space)
    if flags.trials < 1 or flags.batch < 1:
        raise ConfigError(f"trials={flags.trials} and batch={flags.batch} must be at least 1")
    settings = Settings(flags.trials, flags.batch, flags.rungs, flags.prune_from, experiment.seed, flags.confirm)
    folder = Path(flags.out or Path("runs") / f"tune_{plain_name(f'{experiment.agent}_{experiment.env}')}")
    found = tune(experiment, space, settings, flags.storage, folder, speaker(flags))
    print(f"{found.finished} trials in {found.seconds:.0f} s, {found.programs} programs; {folder / 'study.png'}")
    print(f"Best: {found.score:.1f} with {settings_text(found.best)}")
    print(f"Train it: rollax train --config {folder / 'best.json'}")
    return 0


def searched(arguments: list[str], base: type, program: str, description: str) -> tuple[Any, Any]:
    """The experiment around which is searched, and the flags of the search."""
    agent = arguments[0] if arguments and not arguments[0].startswith("-") else None
    flags = arguments[1:] if agent else arguments
    start = starting_experiment(agent, flags)
    values, parsed = parse_experiment(start, flags, base, [], program, description)
    if parsed.rungs < 1:
        raise ConfigError(f"rungs={parsed.rungs} must be at least 1")
    from rollax.experiment.experiment import with_values
    from rollax.runs.run import use_all_cores, use_compile_cache

    use_all_cores()
    if parsed.compile_cache:
        use_compile_cache()
    return with_values(start, values), parsed


def search_folder(flags: Any, name: str) -> Path:
    from rollax.runs.run import unused_folder

    return Path(flags.out) if flags.out else unused_folder(name)


def speaker(flags: Any) -> Callable[[str], None]:
    return (lambda line: None) if flags.quiet else (lambda line: print(line, flush=True))
