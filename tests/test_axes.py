"""Axes of figures: no mountain of nothing, nothing beyond what can be, and ticks in one unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from rollax.reports.axes import extent, labels, ticks
from rollax.reports.figures import Bars, Chart, curves, interquartile_means, profiles
from rollax.reports.runs import Group
from rollax.reports.scales import SHARE, Bounds


@pytest.mark.parametrize(
    ("values", "bounds", "ends"),
    [
        ([0.0, 100.0], Bounds(), (-5.0, 105.0)),
        ([0.0, 500.0], Bounds(0.0, 500.0), (-10.0, 510.0)),  # a line at 500 is whole, and no tick stands beyond it
        ([500.0, 500.0], Bounds(0.0, 500.0), (-10.0, 510.0)),
        ([1.0, 0.8], SHARE, (-0.02, 1.02)),
        ([0.0, 0.0], Bounds(-1.0, None), (-0.55, 0.55)),
        ([99.0, 99.5], Bounds(None, 100.0), (95.821, 100.0796)),
        ([500.0], Bounds(), (489.0, 511.0)),
        ([0.0, 0.0], Bounds(0.0, None), (-0.02, 1.05)),
        ([499.6, 500.4], Bounds(), (488.9912, 511.0088)),
        ([510.0, 0.0], Bounds(0.0, 500.0), (-10.2, 535.5)),  # what is there is shown, whatever the bound says
        ([np.nan], Bounds(), (0.0, 1.0)),
    ],
)
def test_ends_of_an_axis(values, bounds, ends):
    np.testing.assert_allclose(extent(values, bounds), ends, rtol=1e-9)


def test_ticks_are_round_and_of_one_unit():
    assert ticks(-10, 510, 5) == [0, 200, 400]
    assert labels(ticks(0, 20_000, 5)) == ["0", "5 k", "10 k", "15 k", "20 k"]
    assert labels(ticks(0, 1.2e6, 5)) == ["0", "0.5 M", "1 M"]
    assert labels(ticks(-0.02, 1.05, 5)) == ["0", "0.5", "1"]
    assert labels([-200.0, -150.0]) == ["-200", "-150"]


@given(st.floats(-1e7, 1e7), st.floats(1e-3, 1e7))
def test_ticks_lie_between_the_ends_and_are_told_apart(low, size):
    low, high = extent([low, low + size])
    found = ticks(low, high, 5)
    assert 1 <= len(found) <= 7
    step = np.diff(found).min(initial=high - low)
    assert all(low - 1e-6 * step <= tick <= high + 1e-6 * step for tick in found)
    assert len(set(labels(found))) == len(found)


@dataclass
class Runs:
    """What figures ask of a group of runs."""

    scores: np.ndarray
    rows: np.ndarray = field(default_factory=lambda: np.zeros((3, 4)))
    env: str = "CartPole-v1"
    method: str = "double"

    @property
    def run(self) -> Any:
        names = ("step", "episode_return_mean", "wall_seconds", "episode_length_mean")
        return SimpleNamespace(result=SimpleNamespace(curves=names, evaluations=()))

    def curve(self, name: str) -> np.ndarray:
        return (
            np.tile(np.arange(self.rows.shape[1], dtype=float), (3, 1))
            if name in ("step", "wall_seconds")
            else self.rows
        )


def group(*scores: float, **values: Any) -> Group:
    return cast("Group", Runs(np.array(scores), **values))


def test_bands_are_cut_where_nothing_can_be():
    rows = np.array([[20.0, 300.0, 500.0, 500.0], [20.0, 500.0, 500.0, 500.0], [20.0, 500.0, 470.0, 500.0]])
    for kind in ("returns", "lengths"):
        (line,) = curves(kind, [group(rows=rows)], "CartPole-v1").lines
        assert line.high.max() == 500.0  # Student's t says 720
        assert line.low[1] == pytest.approx(433.333 - 4.302653 * 66.6667, rel=1e-4)
    (line,) = curves("returns", [group(rows=rows, env="Unknown-v0")], "Unknown-v0").lines
    assert line.high.max() > 700


def test_a_profile_goes_from_random_play_to_a_good_score():
    chart = profiles([group(500.0, 500.0, 499.8)], "CartPole-v1")
    assert isinstance(chart, Chart)
    assert chart.lines[0].x[0] == 22.0
    assert 500.0 < chart.lines[0].x[-1] < 515.0
    assert chart.lines[0].mean[0] == 1.0


def test_a_profile_of_equal_scores_that_mean_nothing_is_left_out():
    assert profiles([group(3.0, 3.0, env="Unknown-v0")], "Unknown-v0") is None
    assert profiles([group(3.0, 4.0, env="Unknown-v0")], "Unknown-v0") is not None


def test_means_know_what_they_cannot_exceed():
    bars = interquartile_means([group(500.0, 500.0)], "CartPole-v1")
    assert isinstance(bars, Bars)
    assert extent([bars.bars[0].low, bars.bars[0].high], bars.bounds) == (-10.0, 510.0)
