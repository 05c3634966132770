"""From run folders to what figures compare: seeds of one setting, under a name that tells settings apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rollax.errors import ConfigError, RollaxError, warn
from rollax.experiment.experiment import population
from rollax.experiment.tree import Leaf, leaves, parts_of
from rollax.runs.result import Result


@dataclass(frozen=True)
class Run:
    """A run folder under the name that a report gives it."""

    name: str
    result: Result

    @property
    def env(self) -> str:
        return self.result.description.env

    @property
    def agent(self) -> str:
        return self.result.description.agent

    @cached_property
    def leaves(self) -> list[Leaf]:
        return list(leaves(self.result.description))

    @property
    def varied(self) -> list[str]:
        """The hyper-parameters that make a population."""
        return [leaf.name for leaf in self.leaves if leaf.traced and isinstance(leaf.value, tuple)]

    @cached_property
    def incidental(self) -> set[str]:
        """The settings that do not tell two ways to learn apart: what is only looked at or kept."""
        return {leaf.name for leaf in self.leaves if leaf.about.incidental}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every leaf of the experiment by its name; a population's is a tuple of numbers."""
        return parts_of(self.result.description) | {leaf.name: leaf.value for leaf in self.leaves}


@dataclass(frozen=True)
class Group:
    """The seeds of one setting in one environment."""

    method: str  # the same in every environment, so that scores can be taken together
    run: Run
    members: tuple[int, ...]

    @property
    def env(self) -> str:
        return self.run.env

    def curve(self, name: str) -> np.ndarray:
        """A column of metrics.csv, `[seeds, rows]`."""
        return self.run.result.curves[name][list(self.members)]

    def evaluation(self, name: str) -> np.ndarray:
        """A column of evaluations.csv, likewise."""
        return self.run.result.evaluations[name][list(self.members)]

    @cached_property
    def scores(self) -> np.ndarray:
        """The mean return of each seed's last evaluation; a seed that failed or was not evaluated has none."""
        if not self.run.result.evaluations:
            return np.array([])
        members = self.run.result.summary["members"]
        well = [member for member in self.members if members[member]["status"] != "failed"]
        rows = self.run.result.evaluations["return_mean"][well]
        return np.array([row[~np.isnan(row)][-1] for row in rows if not np.all(np.isnan(row))], float)


def read_runs(run_dirs: Sequence[Path | str]) -> list[Run]:
    """The runs of these folders; what is none, or has no rows yet, is said and left out."""
    if not run_dirs:
        raise ConfigError("at least one run folder is needed, as in `rollax report runs/mine`")
    paths = [Path(path) for path in run_dirs]
    names = [path.resolve().name for path in paths]
    unique = [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]
    runs: list[Run] = []
    problems: list[str] = []
    fail: type[RollaxError] = ConfigError
    for name, path in zip(unique, paths, strict=True):
        run = Run(name, Result(path))
        try:
            if not run.result.curves:
                raise ConfigError(f"{path} has no rows in metrics.csv yet")
            runs.append(run)
        except RollaxError as error:
            problems += str(error).splitlines()
            fail = ConfigError if isinstance(error, ConfigError) else type(error)
    if not runs:
        raise fail("\n".join(problems))
    for problem in problems:  # of `runs/*` some may be other things
        warn(f"{problem}; it is left out")
    return runs


def groups_of(runs: Sequence[Run]) -> list[Group]:
    """The settings of all runs, named by their agent, and by what else it takes to tell them apart."""
    found = []
    for run in runs:
        alike = [other for other in runs if (other.agent, other.env) == (run.agent, run.env)]
        apart = [name for name in differing(alike) if name in run.settings and name not in run.incidental]
        told = [f"{name}={value_text(run.settings[name])}" for name in apart if name not in run.varied]
        same = [other for other in alike if other is not run and set(differing([run, other])) <= run.incidental]
        base = ", ".join([run.agent, *told]) + (f" ({run.name})" if same else "")
        settings: dict[str, list[int]] = {}
        for index, member in enumerate(population(run.result.description)):
            own = "".join(f", {name}={value_text(member.hparams[name])}" for name in run.varied)
            settings.setdefault(base + own, []).append(index)
        found += [Group(method, run, tuple(members)) for method, members in settings.items()]
    return found


def differing(runs: Sequence[Run]) -> list[str]:
    """The settings that are not the same in all of these runs."""
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    return [name for name in names if len({json.dumps(run.settings.get(name)) for run in runs}) > 1]


def value_text(value: Any) -> str:
    """A setting as it is written in a label or a cell."""
    if isinstance(value, tuple | list):
        return " ".join(map(value_text, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
