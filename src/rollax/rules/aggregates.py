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


def moving_average(curves: np.ndarray, window: int) -> np.ndarray:
    """Each point of `[seeds, points]` as the mean of the last `window` values up to it, those that are there.

    A seed that has no value any more has no average either.
    """
    seen = ~np.isnan(curves)
    over = np.cumsum(seen[:, ::-1], axis=1)[:, ::-1] == 0
    sums = np.cumsum(np.where(seen, curves, 0.0), axis=1)
    counts = np.cumsum(seen, axis=1)
    earlier = [(0, 0), (window, 0)]
    behind_sums = np.pad(sums, earlier)[:, : curves.shape[1]]
    behind_counts = np.pad(counts, earlier)[:, : curves.shape[1]]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(over, np.nan, (sums - behind_sums) / (counts - behind_counts))


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
