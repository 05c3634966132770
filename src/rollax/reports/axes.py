"""Axes of figures: how far they go, where their ticks are and what these say.  `page.js` has the same rules."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from rollax.reports.scales import SHARE, UNBOUNDED, Bounds

ROOM = 0.05  # of an axis beyond what it shows
SLIVER = 0.02  # of it beyond a bound, so that a line there is whole
FLATTEST = 0.04  # of the largest number: a shorter axis would make mountains of nothing
UNITS = ((1e6, " M"), (1e4, " k"))  # from so large a number on
SIZES = {" M": 1e6, " k": 1e3}


def extent(values: Iterable[float], bounds: Bounds = UNBOUNDED) -> tuple[float, float]:
    """The ends of an axis that shows these values, of which no other can lie beyond the bounds.

    Shares, and values that hardly differ, are seen against all that they could be, where that is known.
    """
    seen = [value for value in values if math.isfinite(value)]
    if not seen:
        return 0.0, 1.0
    low, high = min(seen), max(seen)
    least = -math.inf if bounds.lowest is None or low < bounds.lowest else bounds.lowest
    most = math.inf if bounds.highest is None or high > bounds.highest else bounds.highest
    span = FLATTEST * max(abs(low), abs(high)) or 1.0
    flat = high - low < span
    if (flat or bounds == SHARE) and math.isfinite(most - least):
        low, high = least, most
    elif flat:
        low, high = (low + high - span) / 2, (low + high + span) / 2
        beyond = max(0.0, high - most) - max(0.0, least - low)
        low, high = low - beyond, high - beyond
    room, sliver = ROOM * (high - low), SLIVER * (high - low)
    return max(low - room, least - sliver), min(high + room, most + sliver)


def ticks(low: float, high: float, count: float) -> list[float]:
    """Round numbers between two ends, about so many."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= rough), 10 * power)
    first = math.ceil(low / step)
    number = math.floor((high + step * 1e-9) / step) - first + 1
    return [float(f"{(first + index) * step:.12g}") for index in range(number)]


def labels(values: list[float]) -> list[str]:
    """What ticks say, all of an axis in one unit."""
    most = max(map(abs, values), default=0.0)
    unit = next((name for size, name in UNITS if most >= size), "")
    return [_plain(value / SIZES.get(unit, 1.0)) + (unit if value else "") for value in values]


def _plain(value: float) -> str:
    return np.format_float_positional(float(f"{value:.8g}"), trim="-") if value else "0"
