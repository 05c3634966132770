"""Figures as pictures: PNG, SVG, or whatever else the file's name asks for."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollax.errors import ConfigError, did_you_mean
from rollax.reports.axes import extent, labels, ticks
from rollax.reports.figures import Bars, Chart, Figure, figures_of, kinds, methods
from rollax.reports.runs import Group, groups_of, read_runs
from rollax.runs.result import Policy
from rollax.runs.session import Draw

COLOURS = ("#3b6fd4", "#d9622b", "#2f9e62", "#b0409a", "#8a6d1f", "#11a0b5", "#c63d4f", "#6a5acd", "#7a8a12", "#5f6b7a")


TICKS = 6  # on an axis, about


def colour_of(groups: Sequence[Group]) -> dict[str, str]:
    """A colour for each setting, the same in every figure."""
    return {method: COLOURS[index % len(COLOURS)] for index, method in enumerate(methods(groups))}


def plot_runs(run_dirs: Sequence[Path | str], target: Path | str) -> Path:
    """The learning curves of runs in one picture, an environment beside the other.  Returns its path."""
    groups = groups_of(read_runs(run_dirs))
    return draw(figures_of("returns", groups), colour_of(groups), Path(target))


def prepare() -> None:
    """Imports what pictures are drawn with, and draws one that nobody sees: the first takes four times as long."""
    import scipy.special  # noqa: F401  for the intervals
    from matplotlib.figure import Figure as Picture

    picture = Picture(layout="constrained")
    axes = picture.subplots()
    axes.plot([0, 1], [0, 1], label="a line")
    axes.set(title="a title", xlabel="steps", ylabel="return")
    axes.legend()
    picture.savefig(io.BytesIO(), format="png")


def plot_figures(run_dirs: Sequence[Path | str], names: Sequence[str], folder: Path, suffix: str = "png") -> list[Path]:
    """A picture `folder/NAME.suffix` for each kind of figure; all kinds without names.  Returns their paths."""
    groups = groups_of(read_runs(run_dirs))
    known = kinds(groups)
    problems = [f"figures={name!r} is no figure of these runs; {did_you_mean(name, known)}" for name in names]
    problems = [problem for name, problem in zip(names, problems, strict=True) if name not in known]
    if problems:
        raise ConfigError(problems)
    colours = colour_of(groups)
    found = {name: figures_of(name, groups) for name in names or known}
    return [draw(figures, colours, folder / f"{name}.{suffix}") for name, figures in found.items() if figures]


def draw(figures: Sequence[Figure], colours: dict[str, str], target: Path) -> Path:
    """Figures of one kind, side by side, as one picture."""
    from matplotlib.figure import Figure as Picture

    columns = min(len(figures), 3)
    rows = -(-len(figures) // columns)
    picture = Picture(figsize=(8.0 if columns == 1 else 5.4 * columns, 4.5 * rows), layout="constrained")
    places = np.ravel(picture.subplots(rows, columns, squeeze=False))
    for axes, figure in zip(places, figures, strict=False):
        draw_chart(axes, figure, colours) if isinstance(figure, Chart) else draw_bars(axes, figure, colours)
    for axes in places[len(figures) :]:
        axes.set_visible(False)
    return save(lambda path: picture.savefig(path, dpi=140), target)


def draw_chart(axes: Any, chart: Chart, colours: dict[str, str]) -> None:
    """Each seed thin, the mean thick, its interval as a band, cut off where it is far wider than what the seeds did."""
    alone = len(chart.lines) == 1
    for line in chart.lines:
        colour = colours[line.method]
        for seed in line.seeds:
            there = ~np.isnan(seed)
            axes.plot(line.x[there], seed[there], color=colour, linewidth=0.7, alpha=0.35)
        if not np.all(np.isnan(line.low)):
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
        count = f", mean of {len(line.seeds)}" if len(line.seeds) > 1 else ""
        axes.plot(line.x, line.mean, color=colour, linewidth=2.2, label=f"{line.method}{count}")
    if chart.level is not None:
        axes.axhline(chart.level, color="0.45", linewidth=1, linestyle=(0, (5, 4)), label="counts as solved")
    axes.set(title=chart.title, xlabel=chart.xlabel, ylabel=chart.ylabel)
    if chart.lines:
        ends = [end for line in chart.lines for end in (line.x[0], line.x[-1])]
        measure(axes.xaxis, min(ends), max(ends) if max(ends) > min(ends) else min(ends) + 1.0)
    measure(axes.yaxis, *height_of(chart))
    style(axes)
    if chart.lines and not (alone and len(chart.lines[0].seeds) == 0):
        axes.legend(loc="best", frameon=False, fontsize="small")


def draw_bars(axes: Any, bars: Bars, colours: dict[str, str]) -> None:
    """A point with its interval for each setting."""
    for height, bar in enumerate(reversed(bars.bars)):
        axes.plot([bar.low, bar.high], [height, height], color=colours[bar.method], linewidth=9, alpha=0.3)
        axes.plot([bar.value], [height], "o", color=colours[bar.method], markersize=7)
    axes.set_yticks(range(len(bars.bars)), [bar.method for bar in reversed(bars.bars)])
    axes.set(title=bars.title, xlabel=bars.xlabel, ylim=(-0.6, len(bars.bars) - 0.4))
    measure(axes.xaxis, *extent((end for bar in bars.bars for end in (bar.low, bar.high)), bars.bounds))
    style(axes, across="x")


def height_of(chart: Chart) -> tuple[float, float]:
    """The ends of a chart's upright axis: of what the seeds did or, where none is shown, of mean and interval."""
    drawn = [(line.seeds,) if len(line.seeds) else (line.mean, line.low, line.high) for line in chart.lines]
    values = [number for arrays in drawn for array in arrays for number in np.ravel(array).tolist()]
    return extent([*values, *([] if chart.level is None else [chart.level])], chart.bounds)


def measure(axis: Any, low: float, high: float) -> None:
    """Gives an axis its ends and its ticks."""
    places = ticks(low, high, TICKS)
    axis.axes.set(**{f"{axis.axis_name}lim": (low, high)})
    axis.set_ticks(places, labels(places))


def style(axes: Any, across: str = "both") -> None:
    """What all pictures have alike."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2, axis=across)
    axes.tick_params(length=0)


def save(write: Callable[[Path], Any], target: Path) -> Path:
    """Lets a file be written beside its place, then puts it there in one step."""
    aside = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)  # so that nothing is written through a link
        write(aside)
        aside.replace(target)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{target} cannot be written: {error}") from error
    return target


def film_of(policy: Policy, env: str) -> bytes | None:
    """A GIF of an episode, where the environment can be drawn."""
    from rollax.reports.films import gif_of

    return gif_of(policy, env)


CURVES = Draw(plot_runs, prepare, film_of)
