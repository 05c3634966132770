"""What the board shows of the runs that are ticked: the report's own figures and tables, and a run's console."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rollax.board.watching import Known
from rollax.errors import RollaxError, told
from rollax.reports.drawing import colour_of
from rollax.reports.figures import CURVES, figures_of, kinds
from rollax.reports.page import card, plain
from rollax.reports.runs import Run, groups_of
from rollax.reports.tables import differences_section, evaluation_section, machine_section, settings_section
from rollax.runs.console import Console, Standing
from rollax.runs.folder import RunFolder
from rollax.runs.result import Result
from rollax.runs.session import show_members

MOST_RUNS = 40  # that are compared at once
LABELS = {"iqm": "IQM of the last evaluations", "profile": "performance profiles"}


@dataclass(frozen=True)
class Seen(Result):
    """A run folder that is only looked at: what is wrong with it is kept, and not printed."""

    problems: list[str] = field(default_factory=list, compare=False)

    @cached_property
    def folder(self) -> RunFolder:
        return RunFolder(self.run_dir, writes=False)

    def tell(self, line: str) -> None:
        self.problems.append(line)


class Readings:
    """Runs as a report reads them, each kept until it changes."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[int, Path, Run | str]] = {}

    def read(self, key: str, known: Known) -> Run | str:
        """A run, or in words why it cannot be shown."""
        kept = self.kept.get(key)
        if kept is not None and kept[:2] == (known.version, known.path):
            return kept[2]
        run = readable(known)
        self.kept[key] = known.version, known.path, run
        while len(self.kept) > 2 * MOST_RUNS:
            del self.kept[next(iter(self.kept))]
        return run

    def all(self, chosen: dict[str, Known]) -> tuple[list[Run], list[str]]:
        """The runs that can be shown, and what is wrong with these and the others."""
        found = [self.read(key, known) for key, known in list(chosen.items())[:MOST_RUNS]]
        runs = [run for run in found if isinstance(run, Run)]
        problems = [run for run in found if isinstance(run, str)]
        problems += [
            line for run in runs if isinstance(run.result, Seen) for line in dict.fromkeys(run.result.problems)
        ]
        if len(chosen) > MOST_RUNS:
            problems.append(f"{len(chosen)} runs are chosen; the first {MOST_RUNS} are shown")
        return runs, problems


def readable(known: Known) -> Run | str:
    """A run of which everything that figures and tables ask for can be read."""
    run = Run(known.row.name, Seen(known.path))
    try:
        groups = groups_of([run])
        for group in groups:
            _ = group.run.result.curves, group.run.result.evaluations, group.run.result.summary, group.scores
    except RollaxError as error:
        return str(error).splitlines()[0]
    except Exception as error:  # a table that somebody has edited may break anything, and the others are still shown
        return f"{known.row.name} cannot be shown: {told(error)}"
    return run


def curves(runs: Sequence[Run], kind: str) -> dict[str, Any]:
    """The figures of a kind as the report's script reads them, the cards for them, and which kinds there are."""
    groups = groups_of(runs)
    known = kinds(groups) if groups else []
    shown = kind if kind in known else "returns"
    figures = figures_of(shown, groups) if groups else []
    return {
        "kind": shown,
        "kinds": [[name, label_of(name)] for name in known],
        "colours": colour_of(groups),
        "figures": [plain(figure, index) for index, figure in enumerate(figures)],
        "cards": "".join(card(figure, index, curves=True) for index, figure in enumerate(figures)),
    }


def label_of(kind: str) -> str:
    """A kind of figure in words."""
    return LABELS.get(kind) or CURVES.get(kind, (kind, kind.replace("_", " ")))[1]


def tables(runs: Sequence[Run]) -> dict[str, str]:
    """The report's tables as HTML."""
    groups = groups_of(runs)
    return {
        "evaluation": evaluation_section(groups),
        "settings": differences_section(runs) + settings_section(runs),
        "machine": machine_section(runs),
    }


def console_of(run: Run) -> list[str]:
    """What the run's console says, from its files: a line for each row, evaluation and failure, and how it ended."""
    summary, description = run.result.summary, run.result.description
    members = len(summary["members"])
    seeds = "1 seed" if members == 1 else f"{members} members"
    lines = [f"{run.agent} on {run.env}, {seeds}, {description.steps:,} steps each, on {summary['device']}"]
    total = description.iterations(description.steps) * description.steps_per_iteration
    said = [*progress_lines(run.result, total, members), *evaluation_lines(run.result), *failure_lines(summary)]
    lines += [line for _, line in sorted(said, key=lambda one: one[0])]
    if summary["status"] in ("finished", "failed"):
        out = io.StringIO()
        show_members(Console(out=out), summary)
        lines += [*out.getvalue().splitlines(), f"{summary['status'].capitalize()} at step {summary['total_steps']:,}."]
    return lines


def progress_lines(result: Result, total: int, members: int) -> list[tuple[float, str]]:
    """A line for each step of metrics.csv, as a run prints it."""
    found = result.curves
    if not found:
        return []
    steps, rates, returns = (found[name] for name in ("step", "steps_per_second", "episode_return_mean"))
    lines = []
    for column in range(steps.shape[1]):
        there = ~np.isnan(steps[:, column])
        step, rate = int(steps[there, column].max()), float(rates[there, column].mean())
        ended = returns[there, column][~np.isnan(returns[there, column])]
        left = max(total - step, 0) * members / rate if rate else 0.0
        standing = Standing(step, total, rate, left, [], [], float(ended.mean()) if len(ended) else None)
        lines.append((float(step), standing.line))
    return lines


def evaluation_lines(result: Result) -> list[tuple[float, str]]:
    """A line for each step of evaluations.csv."""
    found = result.evaluations
    if not found:
        return []
    lines = []
    for column in range(found["step"].shape[1]):
        step = np.nanmax(found["step"][:, column])
        returns = found["return_mean"][:, column]
        returns = returns[~np.isnan(returns)]
        spread = f" ({returns.min():.1f} to {returns.max():.1f})" if len(returns) > 1 else ""
        text = f"{returns.mean():.1f}{spread}" if len(returns) else "-"
        lines.append((float(step) + 0.5, f"step {step:,.0f}: evaluation, return {text}"))
    return lines


def failure_lines(summary: dict[str, Any]) -> list[tuple[float, str]]:
    """A line for each member that has failed."""
    return [
        (
            float(failure["step"]),
            f"member {member['member']} (seed {member['seed']}) stopped: {failure['tensor']} not finite",
        )
        for member in summary["members"]
        if isinstance(failure := member.get("failure"), dict) and {"step", "tensor"} <= failure.keys()
    ]
