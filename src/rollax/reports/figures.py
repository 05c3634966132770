"""Figures as data: what is drawn, whoever draws it.  A picture and a page show the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rollax.reports.runs import Group
from rollax.reports.scales import SHARE, Bounds, Scale, bounds_of, lengths_of, scale_of
from rollax.rules.aggregates import bootstrap, mean_band, moving_average, performance_profile
from rollax.runs.files import METRIC_COLUMNS

SMOOTHED = 50  # episodes
PROFILE_POINTS = 101


class Line(NamedTuple):
    """The seeds of a setting over an axis, their mean, and its 95 % interval."""

    method: str
    x: np.ndarray  # [points]
    mean: np.ndarray
    low: np.ndarray  # NaN where there is no interval
    high: np.ndarray
    seeds: np.ndarray  # [seeds, points], NaN where a seed has no value; no seeds where there is nothing to show
    seconds: np.ndarray | None = None  # [points]: the clock, where the axis is steps


class Chart(NamedTuple):
    """Lines over one axis."""

    name: str  # of the kind of figure
    env: str  # "" for all together
    title: str
    xlabel: str
    ylabel: str
    lines: list[Line]
    level: float | None = None  # a line across: where the environment counts as solved
    bounds: Bounds = Bounds()  # of what is drawn, along the upright axis


class Bar(NamedTuple):
    method: str
    value: float
    low: float
    high: float
    seeds: int


class Bars(NamedTuple):
    """A value with its interval for each setting."""

    name: str
    env: str
    title: str
    xlabel: str
    bars: list[Bar]
    bounds: Bounds = Bounds()


Figure = Chart | Bars


def environments(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(group.env for group in groups))


def methods(groups: Sequence[Group]) -> list[str]:
    return list(dict.fromkeys(group.method for group in groups))


def all_figures(groups: Sequence[Group]) -> list[Figure]:
    """Every figure there is for these settings, kind by kind, each kind environment by environment."""
    return [figure for kind in kinds(groups) for figure in figures_of(kind, groups)]


def kinds(groups: Sequence[Group]) -> list[str]:
    """The kinds of figure that these settings have, by name."""
    own = [name for group in groups for name in group.run.result.curves if name not in METRIC_COLUMNS]
    evaluated = any(group.run.result.evaluations for group in groups)
    solved = any((scale := scale_of(group.env)) and scale.solved is not None for group in groups)
    scored = any(len(group.scores) for group in groups)
    return [
        "returns",
        "smoothed",
        *(["evaluations"] if evaluated else []),
        *(["success"] if evaluated and solved else []),
        "lengths",
        *dict.fromkeys(own),
        *(["iqm", "profile"] if scored else []),
    ]


def figures_of(kind: str, groups: Sequence[Group]) -> list[Figure]:
    """The figures of a kind: one for each environment and, of scores, one for all together if there are several."""
    if kind in ("iqm", "profile"):
        scored = [group for group in groups if len(group.scores)]
        together = [None] if len(environments(scored)) > 1 else []
        places = [*environments(scored), *together]
        if kind == "iqm":
            return [interquartile_means(scored, env) for env in places]
        return [chart for env in places if (chart := profiles(scored, env))]
    charts = (curves(kind, [group for group in groups if group.env == env], env) for env in environments(groups))
    return [chart for chart in charts if chart.lines or kind == "returns"]  # those may still come


CURVES: dict[str, tuple[str, str]] = {
    "returns": ("episode_return_mean", "return of training episodes"),
    "smoothed": ("episode_return_mean", f"return, mean of the last {SMOOTHED} episodes"),
    "lengths": ("episode_length_mean", "length of training episodes"),
    "evaluations": ("return_mean", "return of greedy episodes"),
    "success": ("return_mean", "share of seeds that solve it"),
}


def curves(kind: str, groups: Sequence[Group], env: str) -> Chart:
    """A column over the steps.  Settings that lack it are left out."""
    column, ylabel = CURVES.get(kind, (kind, kind.replace("_", " ")))
    scale = scale_of(env)
    solved = scale.solved if scale else None
    lines, bounds = [], bounds_along(kind, env)
    for group in groups:
        evaluated = kind in ("evaluations", "success")
        source = group.run.result.evaluations if evaluated else group.run.result.curves
        if column not in source or (kind == "success" and solved is None):
            continue
        read: Callable[[str], np.ndarray] = group.evaluation if evaluated else group.curve
        values = read(column)
        if kind == "smoothed":
            values = moving_average(values, read("episodes"), SMOOTHED)
        if kind == "success":
            values = np.where(np.isnan(values), np.nan, values >= solved)
        seen = ~np.all(np.isnan(values), axis=0)
        if not seen.any():
            continue
        x = np.nanmax(read("step"), axis=0, where=True, initial=0)[seen]
        seconds = None if evaluated else np.nanmax(group.curve("wall_seconds"), axis=0, initial=0)[seen]
        mean, low, high = mean_band(values[:, seen])
        low, high = bounds.cut(low), bounds.cut(high)
        thin = values[:, seen]
        if kind == "success":  # a share of few seeds: Student's t says nothing about it
            low, high, thin = np.full_like(mean, np.nan), np.full_like(mean, np.nan), thin[:0]
        lines.append(Line(group.method, x, mean, low, high, thin, seconds))
    level = solved if kind in ("returns", "smoothed", "evaluations") else None
    return Chart(kind, env, env, "environment steps of each seed", ylabel, lines, level, bounds)


def bounds_along(kind: str, env: str) -> Bounds:
    """Between which values a kind of curve lies."""
    if kind in ("returns", "smoothed", "evaluations"):
        return bounds_of(env)
    return {"success": SHARE, "lengths": lengths_of(env)}.get(kind, Bounds())


def interquartile_means(groups: Sequence[Group], env: str | None) -> Bars:
    """The middle half of the last evaluations, with its interval over seeds; of all environments on one scale."""
    bars = []
    for method in methods(groups):
        scores = [scaled(group, groups) if env is None else group.scores for group in chosen(groups, method, env)]
        scores = [one for one in scores if len(one)]
        if scores:
            bars.append(Bar(method, *bootstrap(scores), sum(map(len, scores))))
    if env is not None:
        return Bars("iqm", env, env, "IQM of the last evaluation's return", bars, bounds_of(env))
    return Bars("iqm", "", "all environments", "IQM of scaled scores (random play 0, good 1)", bars)


def profiles(groups: Sequence[Group], env: str | None) -> Chart | None:
    """The share of seeds that score more than a return, over all returns from random play to a good score.

    None where nothing is known of the environment and all seeds score the same: there is nothing to see.
    """
    found = {
        method: [
            scores
            for group in chosen(groups, method, env)
            if len(scores := scaled(group, groups) if env is None else group.scores)
        ]
        for method in methods(groups)
    }
    everything = np.concatenate([one for scores in found.values() for one in scores])
    scale = Scale(0.0, 1.0) if env is None else scale_of(env)
    known = [scale.random, scale.good] if scale else []
    ends = [*everything, *known]
    low, high = min(ends), max(ends)
    if low == high:
        return None
    points = np.linspace(low, high + 0.02 * (high - low), PROFILE_POINTS)
    lines = [
        Line(method, points, *performance_profile(scores, points), np.zeros((0, PROFILE_POINTS)))
        for method, scores in found.items()
        if scores
    ]
    where, axis = (env, "return") if env is not None else ("all environments", "scaled score (random play 0, good 1)")
    return Chart("profile", env or "", where, axis, "share of seeds above it", lines, bounds=SHARE)


def chosen(groups: Sequence[Group], method: str, env: str | None) -> list[Group]:
    return [group for group in groups if group.method == method and env in (None, group.env)]


def scaled(group: Group, groups: Sequence[Group]) -> np.ndarray:
    """Scores on which random play is 0 and a good score 1."""
    scale = scale_of(group.env) or own_scale(group.env, groups)
    return (group.scores - scale.random) / (scale.good - scale.random)


def own_scale(env: str, groups: Sequence[Group]) -> Scale:
    """Where none was measured: from the lowest to the highest score of these runs."""
    scores = np.concatenate([group.scores for group in groups if group.env == env])
    low, high = float(scores.min()), float(scores.max())
    return Scale(low, high if high > low else low + 1.0)
