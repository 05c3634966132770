"""A setting and what belongs to it, things of the user's own by `package.module:name`, and where things are kept."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import os
import typing
from pathlib import Path
from typing import Any, NamedTuple

from rollax.errors import ConfigError, EnvError, fails, shown

# Numbers are computed in 32 bits.  What is beyond the largest is infinite there, and below the smallest it is 0.
LARGEST, SMALLEST = 3.4028234663852886e38, 1.1754943508222875e-38
GIVEN = "given:"  # how the names begin of things that another program cannot find
LONGEST_TEXT = 4_096  # characters of a name or a path


class Limit(NamedTuple):
    """A range of numbers that 32 bits can hold, its ends included unless `above` is set."""

    low: float
    high: float = LARGEST
    above: bool = False  # the low end itself is not allowed

    def admits(self, value: float) -> bool:
        """Whether a value lies in the range.  NaN lies in none."""
        inside = (value > self.low if self.above else value >= self.low) and value <= self.high
        return inside and not 0 < abs(value) < SMALLEST

    def demand(self, value: float) -> str:
        """What a value that is not admitted should have been."""
        if 0 < abs(value) < SMALLEST:
            return f"{'' if self.above else '0 or '}at least {SMALLEST:.3g}: it would be computed as 0"
        if value > self.high:
            return f"at most {self.high:,}" if self.high < LARGEST else f"at most {self.high:.6g}"
        if self.high >= 2**31 - 1:
            return f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        return f"in {'(' if self.above else '['}{self.low:g}, {self.high:g}]"


POSITIVE = Limit(0.0, above=True)
NOT_NEGATIVE = Limit(0.0)
SHARE = Limit(0.0, 1.0)
COUNT = Limit(1, 2**31 - 1)
COUNT_OR_NONE = Limit(0, 2**31 - 1)
# Of settings that say none, as those of a user's own part.
ANY_NUMBER = {float: Limit(-LARGEST), int: Limit(-(2**31), 2**31 - 1)}


class About(NamedTuple):
    """What belongs to a setting beside its name, type and default.  A field that holds a part says it for all below."""

    help: str = ""  # one sentence that can be understood alone
    limit: Limit | None = None  # the values that it may take
    group: str = ""  # the heading that `--help` shows it under; by default that of what holds it
    rare: bool = False  # only `--help-all` shows it
    population: bool = False  # several values make a population; true of everything below `hparams`
    resumable: bool = False  # `resume` may change it: what was computed so far does not depend on it
    incidental: bool = False  # two runs that differ in it alone are the same method
    searchable: bool = True  # `sweep` and `tune` may search it
    memory: bool = False  # the more of it, the more memory a run needs
    protocol: bool = False  # a score depends on it, whatever was learnt
    at_most: str = ""  # the name of a field beside it, which must not be smaller

    def over(self, base: About) -> About:
        """What this says, and where it says nothing, what `base` says."""
        each = zip(self, base, About(), strict=True)
        return About._make(theirs if ours == plain else ours for ours, theirs, plain in each)


KEY = "rollax"  # under which a field's metadata has it


def setting(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    limit: Limit | None = None,
    group: str = "",
    rare: bool = False,
    population: bool = False,
    resumable: bool = False,
    incidental: bool = False,
    searchable: bool = True,
    memory: bool = False,
    protocol: bool = False,
    at_most: str = "",
) -> Any:
    """A field of a dataclass with what belongs to it, as `About` has it; without a default it must be given."""
    marks = (rare, population, resumable, incidental, searchable, memory, protocol, at_most)
    about = About(help, limit, group, *marks)
    return dataclasses.field(default=default, metadata={KEY: about})


@functools.cache
def abouts(kind: type) -> dict[str, About]:
    """What belongs to each field of a dataclass.  One that overrides only a default inherits the rest.

    A class attribute `settings_group` is the group of its fields that say none.
    """
    collected: dict[str, About] = {}
    for base in reversed(kind.__mro__):
        fields = base.__dict__.get("__dataclass_fields__", {})
        for name in inspect.get_annotations(base):
            if name in fields:
                inherited = collected.get(name, About(group=base.__dict__.get("settings_group", "")))
                collected[name] = fields[name].metadata.get(KEY, About()).over(inherited)
    return collected


def out_of_range(name: str, annotation: Any, limit: Limit | None, value: Any) -> list[str]:
    """The first of the numbers that is out of its range, in a line; nothing where all are in it.

    A number of a setting without a limit must still fit into 32 bits.
    """
    kind = typing.get_args(annotation)[0] if typing.get_origin(annotation) is tuple else annotation
    limit = limit or ANY_NUMBER.get(kind)
    if limit is None:
        return []
    values = value if isinstance(value, tuple) else (value,)
    wrong = (item for item in values if not limit.admits(item))
    return [f"{name}={shown(item)} must be {limit.demand(item)}" for item in wrong][:1]


def text_problem(value: Any) -> str:
    """What is wrong with a name or a path, whatever it names; empty where nothing is."""
    if not isinstance(value, str):
        return "must be a str"
    if len(value) > LONGEST_TEXT:
        return f"must have at most {LONGEST_TEXT:,} characters"
    return "must not hold a NUL character" if "\0" in value else ""


def check_text(slot: str, value: Any) -> None:
    """Raises ConfigError, which speaks of `slot`, for what can be no name."""
    if problem := text_problem(value):
        raise ConfigError(f"{slot}={shown(value)} {problem}")


def is_own(name: str) -> bool:
    """Whether a name is one of the user's own things."""
    return ":" in name


def module_of(name: str) -> str:
    """The module that `find` imports for such a name."""
    return name.partition(":")[0]


def find(slot: str, name: str) -> Any:
    """What stands under that name in that module.

    Raises ConfigError, which speaks of `slot`, where there is no such thing or its module fails; for an environment's
    module that fails it is EnvError.
    """
    check_text(slot, name)
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{slot}={name!r}: there is no module {error.name!r}; is it on PYTHONPATH?") from error
    except (Exception, SystemExit) as error:
        kind = EnvError if slot == "env" else ConfigError
        raise kind(f"{module_name} {fails(error)}, on import") from error
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, dir(module), n=1)
        hint = f"; did you mean {module_name}:{near[0]}?" if near else ""
        raise ConfigError(f"{slot}={name!r}: {module_name} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def name_of(kind: type) -> str:
    """The name under which `find` finds a class again."""
    return f"{kind.__module__}:{kind.__qualname__}"


def importable_name(thing: Any) -> str | None:
    """`package.module:name` of a class or function that can be imported by it; None for all else."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not callable(thing) or not module or not name or module == "__main__" or "." in name:
        return None
    try:
        there = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return f"{module}:{name}" if there is thing else None


def name_here(thing: Any, known: dict[str, Any]) -> tuple[str, bool]:
    """The name of a thing that was handed over, and whether it is a new one.

    It is `package.module:name` where the thing can be imported by that; else one that begins with `GIVEN` and means
    something in this program only, under which `known` has it from now on.
    """
    if name := importable_name(thing) or next((name for name, its in known.items() if its is thing), None):
        return name, False
    name = GIVEN + getattr(thing, "__qualname__", type(thing).__qualname__).rpartition(".")[2].strip("<>")
    if name in known:
        name = f"{name}-{sum(other.startswith(name) for other in known) + 1}"
    known[name] = thing
    return name, True


def cache_folder() -> Path:
    """Where compiled programs and notes about runs are kept for this user: below `XDG_CACHE_HOME`, or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollax"


def source_of(folder: Path) -> list[tuple[str, int, int]]:
    """The Python files of a package, with when they were written, and their sizes."""
    return sorted(
        (str(path), stat.st_mtime_ns, stat.st_size) for path in folder.rglob("*.py") if (stat := os.stat(path))
    )
