"""One thing measured on several sides, in turns: what such comparisons have in common.

A side computes in a process of its own (`processes.Remote`).  What is measured of it becomes a summary: plain data,
with each figure's repeats, their median and their spread.  Tables and charts are drawn from summaries alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rollax.errors import ConfigError
from rollax.rules.aggregates import spread
from rollax.runs.console import table
from rollax.settings import abouts

Say = Callable[[str], None]
Summary = dict[str, Any]
Side = TypeVar("Side")
Turn = TypeVar("Turn")
Row = TypeVar("Row")


def check(protocol: Any, *more: str) -> None:
    """Raises ConfigError with every setting of a protocol that is out of its limit, and with the problems beside."""
    values = {name: (getattr(protocol, name), about.limit) for name, about in abouts(type(protocol)).items()}
    problems = [
        f"{name}={value} must be {limit.demand(value)}"
        for name, (value, limit) in values.items()
        if limit is not None and not limit.admits(value)
    ]
    if problems or more:
        raise ConfigError([*problems, *more])


def in_turns(sides: Sequence[Side], turns: Iterable[Turn], measure: Callable[[Side, Turn], Row]) -> list[list[Row]]:
    """What is measured of each side, a row for each turn.

    Every turn measures all sides one after the other, so that whatever else the machine does meets all of them.
    """
    rows = [[measure(side, turn) for side in sides] for turn in turns]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in sides]


def figures(values: Sequence[float | None]) -> Summary:
    """All values and their spread; a None is longer than any other, so a median is None if most are."""
    known = [math.inf if value is None else value for value in values]
    finite = {name: value if math.isfinite(value) else None for name, value in spread(known).items()}
    return {**finite, "values": list(values)}


def ratio(upper: Summary, lower: Summary) -> float | None:
    """Of two medians; None where one is unknown."""
    known = upper["median"] is not None and lower["median"] is not None
    return upper["median"] / lower["median"] if known else None


def with_range(values: Summary, digits: int, unit: float = 1.0, between: str = " .. ") -> str:
    """A median with the smallest and the largest value, in units; a dash for what is not known."""
    numbers = [values[name] for name in ("median", "min", "max")]
    median, least, most = ("-" if number is None else f"{number / unit:,.{digits}f}" for number in numbers)
    return f"{median} ({least}{between}{most})"


class Column(NamedTuple):
    """A column of a table with a row for each side."""

    title: str
    cell: Callable[[Summary], str]


def side_table(columns: Sequence[Column], summaries: Iterable[Summary]) -> str:
    rows = [[column.cell(summary) for column in columns] for summary in summaries]
    return table([column.title for column in columns], rows)


class Panel(NamedTuple):
    """A chart with a bar for each side, made of layers that stand on one another."""

    title: str
    layers: Mapping[str, Sequence[float]]  # the heights of each layer, by its name
    unit: str = ""
    labels: Sequence[str] = ()  # above the bars
    look: dict[str, Any] = {}  # what matplotlib is told of the bars beside


def draw(target: Path, title: str, names: Sequence[str], panels: Sequence[Panel], size: tuple[float, float]) -> None:
    """Writes the panels, side by side, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
        floor = np.zeros(len(names))
        for layer, heights in panel.layers.items():
            bars = axes.bar(names, heights, bottom=floor, label=layer, width=0.6, **panel.look)
            floor = floor + heights
        if panel.labels:
            axes.bar_label(bars, panel.labels, fontsize=8)
            axes.margins(y=0.15)
        if len(panel.layers) > 1:
            axes.legend(frameon=False, fontsize=8)
        axes.set_ylabel(panel.unit)
        axes.set_title(panel.title, fontsize=10)
    figure.suptitle(title, fontsize=10)
    figure.savefig(target, dpi=140)
