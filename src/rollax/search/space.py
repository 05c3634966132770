"""What is searched: a range for a number, or a list of choices, under the name of a leaf of an experiment."""

from __future__ import annotations

import math
import typing
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from rollax.errors import ConfigError, shown
from rollax.experiment.experiment import Experiment, with_values
from rollax.experiment.tree import Leaf, leaves, named, places, range_problems, shortest_names, unknown
from rollax.runs.reader import read_json
from rollax.settings import out_of_range

Kind = Literal["uniform", "log", "int", "choice"]
KINDS = typing.get_args(Kind)
SYNTAX = "uniform:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH or choice:A,B,C"
PERTURBED = (0.8, 1.25)  # what a number is multiplied with, one of the two


class Dimension(NamedTuple):
    """One leaf, and the values that it may take."""

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    options: tuple[Any, ...] = ()
    traced: bool = False  # a hyper-parameter of the compiled program; another value of anything else is another program
    whole: bool = False

    def at(self, share: float) -> Any:
        """The value at that share of the range, from 0 to 1."""
        if self.kind == "choice":
            return self.options[min(int(share * len(self.options)), len(self.options) - 1)]
        if self.kind == "log":
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else value

    def perturbed(self, value: Any, random: np.random.Generator) -> Any:
        """A value near by, within the range."""
        if self.kind == "choice":
            return self.options[int(random.integers(len(self.options)))] if random.random() < 0.25 else value
        near = min(max(value * PERTURBED[int(random.integers(2))], self.low), self.high)
        return round(near) if self.whole else near


class Space(NamedTuple):
    """All that is searched, in the order in which it was named."""

    dimensions: tuple[Dimension, ...]

    @property
    def traced(self) -> tuple[Dimension, ...]:
        return tuple(dimension for dimension in self.dimensions if dimension.traced)

    @property
    def fixed(self) -> tuple[Dimension, ...]:
        """Those that need a program of their own for each value."""
        return tuple(dimension for dimension in self.dimensions if not dimension.traced)

    def draw(self, random: np.random.Generator, count: int) -> list[dict[str, Any]]:
        """Random settings, each dimension spread evenly over them."""
        shares = (random.permuted(np.tile(np.arange(count), (len(self.dimensions), 1)), axis=1).T + 0.5) / count
        return [
            {dimension.name: dimension.at(float(share)) for dimension, share in zip(self.dimensions, row, strict=True)}
            for row in shares
        ]


def read_space(experiment: Experiment, searches: typing.Sequence[str], path: str = "") -> Space:
    """The space of `name=kind:...` texts, or of a JSON file with such texts by name.  Raises ConfigError."""
    texts: list[tuple[str, str]] = []
    if path:
        data = read_json(Path(path), f"space={path} does not exist", fail=ConfigError, links=True)
        if not isinstance(data, dict):
            raise ConfigError(f'space={path} must be an object such as {{"learning_rate": "log:1e-4:1e-2"}}')
        texts += [(str(name), str(text)) for name, text in data.items()]
    problems = [f"search={shown(search)} must be NAME={SYNTAX}" for search in searches if "=" not in search]
    texts += [(name, text) for name, equals, text in (search.partition("=") for search in searches) if equals]
    if not texts and not problems:
        problems.append(f"nothing to search; name it as in --search learning-rate=log:1e-4:1e-2 ({SYNTAX})")
    dimensions: list[Dimension] = []
    for name, text in texts:
        try:
            dimension = read_dimension(experiment, name.strip().replace("-", "_"), text.strip())
            if any(dimension.name == other.name for other in dimensions):
                raise ConfigError(f"search: {dimension.name} is named twice; leave one out")
            dimensions.append(dimension)
        except ConfigError as error:
            problems += error.problems
    if not problems:
        problems += corner_problems(experiment, dimensions)
    if problems:
        raise ConfigError(problems)
    return Space(tuple(dimensions))


def corner_problems(experiment: Experiment, dimensions: list[Dimension]) -> list[str]:
    """Whether some values of the space do not go together, as an end that may lie above its start."""
    ends = {each.name: each.options or (each.at(0.0), each.at(1.0)) for each in dimensions if each.traced}
    return [f"search: {problem}" for problem in range_problems(with_values(experiment, ends))]


def read_dimension(experiment: Experiment, name: str, text: str) -> Dimension:
    """One dimension, whose ends or options the experiment has been seen to take."""
    kind, _, rest = text.partition(":")
    name, leaf = searched(experiment, name)
    if kind not in KINDS:
        raise ConfigError(f"search: {name}={text!r} must be {SYNTAX}")
    if leaf is None or kind == "choice":
        return _choices(experiment, name, leaf, kind, rest)
    try:
        low, high = (float(end) for end in rest.split(":"))
    except ValueError:
        raise ConfigError(f"search: {name}={text!r} must be {kind}:LOW:HIGH") from None
    if not low < high or (kind == "log" and low <= 0):
        raise ConfigError(
            f"search: {name}={text!r} must have LOW below HIGH{', both above 0' if kind == 'log' else ''}"
        )
    whole = kind == "int" or leaf.annotation is int
    for end in (low, high):
        _checked(experiment, name, int(end) if whole and math.isfinite(end) else end)
    return Dimension(name, cast(Kind, kind), low, high, traced=leaf.traced, whole=whole)


def searched(experiment: Experiment, name: str) -> tuple[str, Leaf | None]:
    """What is searched under that name: its shortest name, and the leaf, or None where it is the place of a part."""
    known = {leaf.path: leaf for leaf in leaves(experiment)}
    names = shortest_names([*known, *places(experiment)])
    try:
        path = named(name, names)
    except ConfigError as error:
        raise ConfigError(f"search: {error}") from None
    if path is None:
        raise ConfigError(f"search: {unknown(name, names.values(), experiment.agent)}")
    leaf = known.get(path)
    if leaf is not None and not leaf.about.searchable:
        raise ConfigError(f"search: {name} cannot be searched; run the search once for each")
    return names[path], leaf


def _choices(experiment: Experiment, name: str, leaf: Leaf | None, kind: str, rest: str) -> Dimension:
    if kind != "choice" or not rest:
        raise ConfigError(f"search: {name} is no number; name its values as in {name}=choice:A,B")
    words = rest.split(",")
    options = tuple(words) if leaf is None else tuple(_plain(word) for word in words)
    if len(set(options)) < len(options):
        raise ConfigError(f"search: {name}={shown(rest)} names a value twice; leave one out")
    for option in options:
        _checked(experiment, name, option)
    return Dimension(name, "choice", options=options, traced=leaf is not None and leaf.traced)


def _checked(experiment: Experiment, name: str, value: Any) -> None:
    """Raises ConfigError where the experiment cannot take the value."""
    for leaf in leaves(with_values(experiment, {name: value})):
        if leaf.name == name and (problems := out_of_range(name, leaf.annotation, leaf.limit, leaf.value)):
            raise ConfigError([f"search: {problem}" for problem in problems])


def _plain(text: str) -> Any:
    """A number or a truth, if it is one."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
