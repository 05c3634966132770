"""Aggregate scores: by hand, and whether intervals hold what they promise."""

from __future__ import annotations

import numpy as np

from rollax.rules.aggregates import bootstrap, interquartile_mean


def test_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, -50.0])) == 1.5
    assert interquartile_mean(np.array([7.0])) == 7.0
    # Five scores: the line from 1.25 to 3.75, so 0.75 of the second and fourth and all of the third.
    np.testing.assert_allclose(interquartile_mean(np.array([0.0, 1.0, 2.0, 4.0, 9.0])), (0.75 * 1 + 2 + 0.75 * 4) / 2.5)
    np.testing.assert_allclose(interquartile_mean(np.arange(12.0).reshape(3, 4)), 5.5)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    held = 0
    for number in range(120):
        interval = bootstrap(rng.normal(3.0, 1.0, size=20), lambda x: float(np.mean(x)), draws=300, seed=number)
        assert interval.low <= interval.value <= interval.high
        held += interval.low <= 3.0 <= interval.high
    assert 0.85 < held / 120 <= 1.0


def test_seeds_are_drawn_within_their_task():
    """Tasks on different scales: mixed strata would make the interval of the mean far too wide."""
    table = np.array([[0.0, 0.0, 0.0], [1000.0, 1000.0, 1000.0]])
    assert bootstrap(table, lambda x: float(np.mean(x))) == (500.0, 500.0, 500.0)
