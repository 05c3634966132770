"""Scores of several runs in a few numbers, with intervals that say how far to trust them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """An estimate, and the range that holds 95 % of what it would have been with other seeds."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half of all scores, in any shape; a score on the border counts in part.

    As robust against one lucky or failed seed as the median, with less variance (Agarwal et al. 2021).
    """
    ordered = np.sort(np.asarray(scores, float).ravel())
    count = len(ordered)
    # Each score is a piece of width 1; what lies between a quarter and three quarters of the line counts.
    left = np.arange(count)
    width = np.clip(np.minimum(left + 1, 0.75 * count) - np.maximum(left, 0.25 * count), 0.0, 1.0)
    return float(np.sum(width * ordered) / np.sum(width))


def bootstrap(
    scores: np.ndarray | Sequence[np.ndarray],
    statistic: Callable[[np.ndarray], float] = interquartile_mean,
    draws: int = 2_000,
    seed: int = 0,
) -> Interval:
    """The statistic of scores, an array of seeds for each task (or one array `[seeds]`), with its 95 % interval.

    The bootstrap is stratified: seeds are drawn anew with replacement within each task.  The statistic is given the
    scores of all tasks in one row.
    """
    tasks = [np.asarray(scores, float)] if np.ndim(scores[0]) == 0 else [np.asarray(one, float) for one in scores]
    rng = np.random.default_rng(seed)
    drawn = np.concatenate([one[rng.integers(len(one), size=(draws, len(one)))] for one in tasks], axis=1)
    low, high = np.percentile([statistic(sample) for sample in drawn], [2.5, 97.5])
    return Interval(statistic(np.concatenate(tasks)), float(low), float(high))


def mean_band(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean over curves `[seeds, points]`, and the 95 % interval of it by Student's t; NaN where none has a value.

    A mean of one has no interval: its low and high are NaN.
    """
    from scipy.special import stdtrit  # not `scipy.stats`, which takes a second to import

    count = np.sum(~np.isnan(curves), axis=0)
    filled = np.where(np.isnan(curves), 0.0, curves)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, filled.sum(axis=0) / count, np.nan)
        squares = np.where(np.isnan(curves), 0.0, (curves - mean) ** 2).sum(axis=0)
        half = stdtrit(count - 1, 0.975) * np.sqrt(squares / (count - 1) / count)
    return mean, mean - half, mean + half


def moving_average(means: np.ndarray, counts: np.ndarray, window: int) -> np.ndarray:
    """The mean of the last `window` episodes up to each row `[seeds, rows]`, or of all where there are fewer.

    A row has the mean of its own `counts` episodes; of the oldest row that reaches into the window only so many count
    as lie in it, each as the row's mean.  A seed that has no value any more has no average either.
    """
    averages = np.full(means.shape, np.nan)
    for seed, (values, episodes) in enumerate(zip(means, counts, strict=True)):
        there = np.flatnonzero(~np.isnan(values) & (episodes > 0))
        if not len(there):
            continue
        ends = np.concatenate([[0.0], np.cumsum(episodes[there])])
        sums = np.concatenate([[0.0], np.cumsum(values[there] * episodes[there])])
        first = np.maximum(ends[1:] - window, 0.0)
        # Sums grow linearly within a row, each of whose episodes counts as its mean.
        inside = (sums[1:] - np.interp(first, ends, sums)) / (ends[1:] - first)
        rows = np.arange(there[0], there[-1] + 1)
        averages[seed, rows] = inside[np.searchsorted(there, rows, side="right") - 1]
    return averages


def performance_profile(
    scores: list[np.ndarray], points: np.ndarray, draws: int = 1_000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The share of runs that score above each point, with its 95 % interval; `scores` has an array for each task.

    Every task counts the same, however many seeds it has.  The bootstrap is stratified, as in `bootstrap`.
    """
    rng = np.random.default_rng(seed)

    def shares(drawn: list[np.ndarray]) -> np.ndarray:
        return np.mean([np.mean(one[..., None] > points, axis=-2) for one in drawn], axis=0)

    again = shares([one[rng.integers(len(one), size=(draws, len(one)))] for one in scores])
    low, high = np.percentile(again, [2.5, 97.5], axis=0)
    return shares(scores), low, high


def spread(values: Sequence[float]) -> dict[str, float]:
    """The middle of repeats, and how far they lie apart."""
    return {"median": float(np.median(values)), "min": float(min(values)), "max": float(max(values))}
