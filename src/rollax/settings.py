"""A setting: which values it may take, and things of the user's own by the name `package.module:name`."""

from __future__ import annotations

import difflib
import importlib
import math
from typing import Any, NamedTuple

from rollax.errors import ConfigError, EnvError


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


def is_own(name: str) -> bool:
    """Whether a name is one of the user's own things."""
    return ":" in name


def find(slot: str, name: str) -> Any:
    """What stands under that name in that module.

    Raises ConfigError, which speaks of `slot`, where there is no such thing, EnvError where its module fails.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{slot}={name!r}: there is no module {error.name!r}; is it on PYTHONPATH?") from error
    except Exception as error:
        raise EnvError(f"{module_name} fails on import: {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, dir(module), n=1)
        hint = f"; did you mean {module_name}:{near[0]}?" if near else ""
        raise ConfigError(f"{slot}={name!r}: {module_name} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def name_of(kind: type) -> str:
    """The name under which `find` finds a class again."""
    return f"{kind.__module__}:{kind.__qualname__}"
