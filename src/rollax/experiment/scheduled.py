"""Schedules as settings hold them: texts, each of which is a table or names a function of environment steps.

`0:1e-3,1e5:1e-4` is a table: a value at each of these steps, linear between two, constant before the first and after
the last.  `package.module:name` is a function.  One that cannot be imported by a name is known to this program alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.errors import ConfigError, fails, shown, warn
from rollax.rules.schedules import Schedule
from rollax.settings import GIVEN, Limit, find, name_here, text_problem

ENDING = "_schedule"  # of the names of such settings
EXAMPLE = "a table such as 0:1e-3,1e5:1e-4 (STEP:VALUE,...), or a function as package.module:name"
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {}

Point = tuple[float, float]  # a step and a value


def texts_of(name: str, value: Any) -> Any:
    """A value of that setting as an experiment holds it: None, a text, or several for a population.

    Taken are texts, dictionaries from steps to values, functions, and lists of these.  Raises TypeError or ValueError.
    """
    if isinstance(value, list | tuple):
        texts = tuple(text_of(name, one) for one in value)
        if len(texts) == 1:
            return texts[0]
        if not texts or None in texts:
            raise ValueError(f"must hold {EXAMPLE}, for each member")
        return texts
    return text_of(name, value)


def text_of(name: str, value: Any) -> str | None:
    """One schedule as a text; None for none."""
    if value is None or value == "none":
        return None
    if callable(value):
        return name_for(name, value)
    if isinstance(value, Mapping):
        text = ",".join(f"{step}:{number}" for step, number in value.items())
    elif problem := text_problem(value):
        raise TypeError(problem if isinstance(value, str) else f"must be {EXAMPLE}")
    else:
        text = compact(value)
    if isinstance(value, Mapping) or not is_function(text):
        points(text)
    return text


def compact(text: str) -> str:
    """A text without spaces, as all that reads it takes it."""
    return "".join(text.split())


def is_function(text: str) -> bool:
    """Whether a schedule's text, without spaces, names a function: it does not begin as a number does."""
    return ":" in text and not text.startswith(tuple("0123456789+-.:"))


def is_table(text: str) -> bool:
    """Whether a text is a table, as no name of a thing is."""
    return text[:1].isdigit() and ":" in text


def points(text: str) -> list[Point]:
    """The points of a table.  Raises ValueError."""
    try:
        pairs = [pair.split(":") for pair in text.split(",")]
        table = [(float(step), float(value)) for step, value in pairs]
    except ValueError:
        raise ValueError(f"must be {EXAMPLE}") from None
    steps = [step for step, _ in table]
    for step in steps:
        if not 0 <= step < math.inf:
            raise ValueError(f"has the step {step:g}; steps are counted from 0 on")
    for before, after in itertools.pairwise(steps):
        if after < before:
            raise ValueError(f"has step {after:g} behind step {before:g}; sort the steps")
    return table


def numbers_in(texts: Sequence[str | None]) -> tuple[float, ...]:
    """The values of all tables among schedules."""
    return tuple(value for text in texts if text and not is_function(text) for _, value in points(text))


# -- functions


@dataclass(frozen=True)
class Function:
    """A function of environment steps by its name, which is found when it is first asked."""

    setting: str
    name: str

    def __call__(self, env_steps: Any) -> Any:
        return function_of(self.setting, self.name)(env_steps)


def name_for(setting: str, function: Callable[[Any], Any]) -> str:
    """The name of a function: `package.module:name` where it can be imported by that, else one for this program."""
    name, new = name_here(function, _FUNCTIONS)
    if new:
        warn(
            f"{setting}={name}: another program cannot import this function by name; to resume a run there, hand it "
            f"over again with schedules={{{setting!r}: ...}}, or assign it to a name in a module and give "
            f"{setting}='module:name'"
        )
    return name


def function_of(setting: str, name: str) -> Callable[[Any], Any]:
    """The function of that name.  Raises ConfigError where there is none."""
    if not name.startswith(GIVEN):
        return find(setting, name)
    if name not in _FUNCTIONS:
        raise ConfigError(
            f"{setting}={name!r} was a function of another program; hand it over again, as in "
            f"rollax.resume(run_dir, schedules={{{setting!r}: ...}})"
        )
    return _FUNCTIONS[name]


def hand_over(setting: str, value: Any, functions: Any) -> None:
    """Gives functions to a run whose setting, as it was saved, knows them by the names in `value`.

    Raises ConfigError for a run that can find them.
    """
    names = value if isinstance(value, tuple) else (value,)
    given = functions if isinstance(functions, list | tuple) else (functions,)
    wanted = [name for name in names if isinstance(name, str) and name.startswith(GIVEN)]
    if not wanted:
        raise ConfigError(f"schedules: this run finds {setting}={shown(value)} by itself; leave it out")
    if len(given) != len(wanted) or not all(map(callable, given)):
        raise ConfigError(f"schedules: {setting} needs {len(wanted)} functions, in the order {', '.join(wanted)}")
    _FUNCTIONS.update(zip(wanted, given, strict=True))


def function_problem(setting: str, name: str, limit: Limit | None, steps: int) -> str:
    """What is wrong with a function for a run of so many steps; empty where nothing is."""
    function = function_of(setting, name)
    if not callable(function):
        return f"{setting}={name!r} is no function; it must take environment steps and return a number"
    try:
        shape = jax.eval_shape(lambda now: jnp.float32(function(now)), jax.ShapeDtypeStruct((), jnp.float32)).shape
        values = [] if shape else [float(function(jnp.float32(now))) for now in (0, steps / 2, steps)]
    except Exception as error:  # of the user's function
        return (
            f"{setting}={name!r} {fails(error)}; it must take environment steps, a traced number, and return a number"
        )
    if shape:
        return f"{setting}={name!r} returns an array of shape {shape}; it must return one number"
    wrong = [value for value in values if limit is not None and not limit.admits(value)]
    return f"{setting}={name!r} returns {wrong[0]:g}, which must be {limit.demand(wrong[0])}" if wrong and limit else ""


# -- as programs have them


def followed(setting: str, every: Sequence[str], own: Sequence[str]) -> Schedule:
    """The schedules of members, `[members, points]`: `every` holds all that there may be, `own` that of each."""
    length = max((len(points(text)) for text in every if not is_function(text)), default=1)
    names = list(dict.fromkeys(text for text in every if is_function(text)))

    def padded(text: str) -> list[Point]:
        table = [(0.0, 0.0)] if is_function(text) else points(text)
        return table + table[-1:] * (length - len(table))

    steps, values = np.moveaxis(np.array([padded(text) for text in own], np.float32), -1, 0)
    which = np.array([names.index(text) + 1 if is_function(text) else 0 for text in own], np.int32)
    functions = tuple(Function(setting, name) for name in names)
    return Schedule(jnp.asarray(steps), jnp.asarray(values), jnp.asarray(which) if names else None, functions)


def value_at(setting: str, text: str, env_steps: float) -> float:
    """The value of one schedule after so many environment steps, outside of a program."""
    one = jax.tree.map(lambda leaf: leaf[0], followed(setting, [text], [text]))
    return float(one.at(env_steps))
