"""Which values a field may take.  A part declares them as `limits: ClassVar = {"field": Limit(...)}`."""

from __future__ import annotations

import math
from typing import NamedTuple


class Limit(NamedTuple):
    """A range of finite numbers, its ends included unless `above` is set."""

    low: float
    high: float = math.inf
    above: bool = False  # the low end itself is not allowed

    def admits(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return (value > self.low if self.above else value >= self.low) and value <= self.high

    def demand(self, value: float) -> str:
        """What a value that is not admitted should have been."""
        if value > self.high:
            return f"at most {self.high:,}"
        if self.high >= 2**31 - 1:
            return f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        return f"in {'(' if self.above else '['}{self.low:g}, {self.high:g}]"


POSITIVE = Limit(0.0, above=True)
NOT_NEGATIVE = Limit(0.0)
SHARE = Limit(0.0, 1.0)
COUNT = Limit(1, 2**31 - 1)
COUNT_OR_NONE = Limit(0, 2**31 - 1)
