"""A tree of dataclasses whose leaves are settings: their names, their values, and the tree as plain data.

A setting is named by an ending of its path: `choices.torso.hidden` is also `torso.hidden` and `hidden`.  An ending that
several share names none of them, and is refused where it is used.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from flax import linen as nn

from rollax.agents.names import AGENTS
from rollax.errors import ConfigError, did_you_mean, shown
from rollax.experiment import scheduled
from rollax.experiment.foreign import told_here
from rollax.experiment.parts import OWN_PARTS, PART_ABOUT, PARTS, fit_for, other_part, part_fields, part_name, part_of
from rollax.experiment.values import coerce
from rollax.rules.schedules import Scheduled
from rollax.settings import About, Limit, abouts, is_own, out_of_range

Path = tuple[str, ...]


class Leaf(NamedTuple):
    """One setting of an experiment."""

    name: str  # the shortest ending of its path that is no other's
    path: Path
    annotation: Any
    value: Any
    about: About

    @property
    def help(self) -> str:
        return self.about.help

    @property
    def limit(self) -> Limit | None:
        return self.about.limit

    @property
    def traced(self) -> bool:
        """Whether it is an input of the compiled program, so that several values make a population."""
        return self.about.population and (self.annotation in (int, float, bool) or self.scheduled)

    @property
    def scheduled(self) -> bool:
        """Whether it is a schedule.  A file may name code in it, which is looked for under such names alone."""
        return self.annotation == Scheduled and self.path[-1].endswith(scheduled.ENDING)

    @property
    def numbers(self) -> tuple[Any, ...]:
        """All values of a leaf; of schedules the numbers of their tables."""
        values = numbers_of(self)
        return scheduled.numbers_in(values) if self.scheduled else values

    def coerced(self, value: Any) -> Any:
        """A value as it may stand here.  Raises TypeError or ValueError with what is wrong with its type."""
        if self.scheduled:
            return scheduled.texts_of(self.name, value)
        return coerce(self.annotation, value, several=self.traced)


def leaves(tree: Any) -> list[Leaf]:
    """All leaves of a tree in the order of their declaration.  Their names are unique."""
    branches = list(_leaves(tree, (), About()))
    names = shortest_names([leaf.path for leaf in branches] + list(places(tree)))
    return [leaf._replace(name=names[leaf.path]) for leaf in branches]


def _leaves(tree: Any, path: Path, above: About) -> Iterator[Leaf]:
    hints, about = type_hints(type(tree)), abouts(type(tree))
    for name in part_fields(tree):
        value, here = getattr(tree, name), about[name]
        here = here._replace(group=here.group or above.group, population=here.population or above.population)
        if dataclasses.is_dataclass(value):
            group = PART_ABOUT[name].group if name in PARTS else here.group
            yield from _leaves(value, (*path, name), here._replace(group=group))
        else:
            yield Leaf(name, (*path, name), hints[name], value, here)


type_hints = functools.cache(typing.get_type_hints)


def places(tree: Any, path: Path = ()) -> dict[Path, str]:
    """Where a tree holds a part that may be another, wherever it lies, and the names of those parts."""
    held: dict[Path, str] = {}
    for name in part_fields(tree):
        value, here = getattr(tree, name), (*path, name)
        if dataclasses.is_dataclass(value):
            held |= ({here: part_name(name, value)} if name in PARTS else {}) | places(value, here)
    return held


def parts_of(tree: Any) -> dict[str, str]:
    """The parts of a tree that may be others: the name of the place, and the name of the part."""
    held = places(tree)
    names = shortest_names([leaf.path for leaf in leaves(tree)] + list(held))
    return {names[path]: part for path, part in held.items()}


# -- names


def shortest_names(paths: Iterable[Path]) -> dict[Path, str]:
    """For each path its shortest ending that is not also another's; a whole path is always its own."""
    known = list(paths)
    uses = Counter(path[start:] for path in known for start in range(len(path)))
    return {
        path: ".".join(next((path[start:] for start in reversed(range(len(path))) if uses[path[start:]] == 1), path))
        for path in known
    }


def matching(name: str, paths: Iterable[Path]) -> list[Path]:
    """The paths that have this ending; the whole path where there is one."""
    ending, known = tuple(name.split(".")), list(paths)
    return [ending] if ending in known else [path for path in known if path[-len(ending) :] == ending]


def named(name: str, paths: Iterable[Path]) -> Path | None:
    """The path that has this ending, None where there is none.  Raises ConfigError where several have it."""
    known = list(paths)
    match matching(name, known):
        case []:
            return None
        case [path]:
            return path
        case several:
            qualified = shortest_names(known)
            raise ConfigError(f"{name} is ambiguous; say {' or '.join(qualified[path] for path in several)}")


def unknown(name: str, known: Iterable[str], owner: str = "") -> str:
    """Why a name is no setting: what it is called here, or what it is near to."""
    names = list(known)
    if told := told_here(name, names, owner or "this agent"):
        return f"{name} is no field; it {told}"
    if parts := parts_with(name):
        return f"{name} is no field here; it goes with {' or '.join(f'{slot}={part}' for slot, part in parts)}"
    return f"{name} is no field; {did_you_mean(name, names)}"


def parts_with(name: str) -> list[tuple[str, str]]:
    """The places and names of the parts that have such a field."""
    return [(slot, part) for slot, kinds in PARTS.items() for part, kind in kinds.items() if name in part_fields(kind)]


# -- values


def replace_at(tree: Any, path: Path, value: Any) -> Any:
    """The tree with another value at that path."""
    head, *rest = path
    if rest:
        value = replace_at(getattr(tree, head), tuple(rest), value)
    if isinstance(tree, nn.Module):
        return tree.clone(**{head: value})
    return dataclasses.replace(tree, **{head: value})


def value_at(tree: Any, path: Path) -> Any:
    """What stands at that path."""
    for name in path:
        tree = getattr(tree, name)
    return tree


def with_parts(tree: Any, values: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The tree with the parts that values name or hold, and the values that are left.

    Raises ConfigError with all that is wrong, the values that are left included.
    """
    problems: list[str] = []
    rest = dict(values)
    for name, part in values.items():
        slot = name.split(".")[-1]
        if slot not in PARTS:
            continue
        try:
            held = places(tree)
            path = named(name, [*held, *(leaf.path for leaf in leaves(tree))])
            if path is not None and path not in held:
                continue  # a leaf that is named like a place elsewhere
            del rest[name]
            if path is None:
                having = [agent for agent, recipe in AGENTS.items() if hasattr(recipe.choices, slot)]
                who = f"; {', '.join(having)} have one" if 1 < len(having) < 6 else ""
                problems.append(f"{name}: {getattr(tree, 'agent', 'the agent')} has no {name}{who}")
            elif isinstance(part, str):
                tree = replace_at(tree, path, other_part(value_at(tree, path), part_of(slot, part)))
            else:
                fit_for(slot, type(part))
                tree = replace_at(tree, path, part)
        except ConfigError as error:
            problems += error.problems
    if problems:  # what is no field now may be one of the part that was meant
        fields = [leaf.path for leaf in leaves(tree)]
        known = {name: value for name, value in rest.items() if matching(name, fields)}
        try:
            problems += range_problems(with_leaves(tree, known))
        except ConfigError as error:
            problems += error.problems
        raise ConfigError(problems)
    return tree, rest


def with_leaves(tree: Any, values: Mapping[str, Any]) -> Any:
    """The tree with leaves replaced by name.  Raises ConfigError with all that is wrong.

    What is only out of its range is no error of the tree, and is told beside others: see `range_problems`.
    """
    known = {leaf.path: leaf for leaf in leaves(tree)}
    problems: list[str] = []
    given: dict[Path, str] = {}
    for name, value in values.items():
        try:
            path = named(name, known)
            if path in given:
                problems.append(f"{given[path]} and {name} are the same setting; give it once")
            elif path is None:
                short = {leaf.name for leaf in known.values()}
                problems.append(unknown(name, short, getattr(tree, "agent", "")))
            else:
                given[path] = name
                tree = replace_at(tree, path, known[path].coerced(value))
        except ConfigError as error:
            problems += error.problems
        except (TypeError, ValueError) as error:
            problems.append(f"{name}={shown(value)} {error}")
    if problems:
        raise ConfigError(problems + range_problems(tree))
    return tree


def range_problems(tree: Any) -> list[str]:
    """Every number that is out of its range, or on the wrong side of one beside it."""
    known = {leaf.path: leaf for leaf in leaves(tree)}
    problems = []
    for leaf in known.values():
        wrong = out_of_range(leaf.name, leaf.annotation, leaf.limit, leaf.numbers if leaf.scheduled else leaf.value)
        other = known.get((*leaf.path[:-1], leaf.about.at_most))
        if other is not None and not wrong:
            largest, least = max(numbers_of(leaf)), min(numbers_of(other))
            if largest > least:
                wrong = [f"{leaf.name}={largest:g} must be at most {other.name}={least:g}"]
        problems += wrong
    return problems


def hand_over_schedules(tree: Any, functions: Mapping[str, Any]) -> None:
    """Gives functions by the names of settings to a run, in whose tree they were known to another program alone."""
    known = {leaf.path: leaf for leaf in leaves(tree)}
    for name, given in functions.items():
        path = named(name, known)
        if path is None or not known[path].scheduled:
            have = [leaf.name for leaf in known.values() if leaf.scheduled]
            raise ConfigError(f"schedules: {name} is no schedule; {did_you_mean(name, have)}")
        scheduled.hand_over(known[path].name, known[path].value, given)


def numbers_of(leaf: Leaf) -> tuple[Any, ...]:
    """All values of a leaf."""
    return leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)


# -- plain data


def to_json(tree: Any, slot: str = "") -> Any:
    """A tree as plain data."""
    if dataclasses.is_dataclass(tree):
        part = {"part": part_name(slot, tree)} if slot in PARTS else {}
        return part | {name: to_json(getattr(tree, name), name) for name in part_fields(tree)}
    return list(tree) if isinstance(tree, tuple) else tree


def read_into(tree: Any, data: Mapping[str, Any], problems: list[str], path: Path = ()) -> Any:
    """The tree with what plain data says of its branch at that path; adds to `problems` what is wrong.

    A name that is no field there may be one further down, or one of another part that fits there, so that a file
    outlives a field that has moved into a part: where it says more than nothing, it asks for that part.
    """
    where = "".join(f"{name}." for name in path)
    if "part" in data:
        tree = _read_part(tree, data["part"], problems, path)
    branch = value_at(tree, path)
    holders = [name for name in part_fields(branch) if dataclasses.is_dataclass(getattr(branch, name))]
    for name in (name for name in holders if name in data):
        if isinstance(data[name], dict):
            tree = read_into(tree, data[name], problems, (*path, name))
        else:
            problems.append(f"{where}{name}={shown(data[name])} must be an object")
    known = {leaf.path: leaf for leaf in leaves(tree) if leaf.path[: len(path)] == path}
    for name, value in data.items():
        if name == "part" or name in holders:
            continue
        try:
            place = (*path, name) if (*path, name) in known else named(name, known)
            if place is None and (other := _part_with(branch, name)):
                slot, kind = other
                if value and value != getattr(kind(), name):
                    tree = replace_at(tree, (*path, slot), other_part(value_at(tree, (*path, slot)), kind))
                    (leaf,) = (leaf for leaf in leaves(tree) if leaf.path == (*path, slot, name))
                    tree = replace_at(tree, leaf.path, leaf.coerced(value))
            elif place is None:
                problems.append(f"{where}{unknown(name, part_fields(branch))}")
            else:
                tree = replace_at(tree, place, known[place].coerced(value))
        except ConfigError as error:
            problems += [f"{where}{problem}" for problem in error.problems]
        except (TypeError, ValueError) as error:
            problems.append(f"{where}{name}={shown(value)} {error}")
    return tree


def _part_with(branch: Any, name: str) -> tuple[str, Any] | None:
    """A slot of the branch, and a kind of part that fits there and has such a field; None where there is none."""
    kinds = ((slot, kind) for slot in part_fields(branch) for kind in PARTS.get(slot, {}).values())
    return next(((slot, kind) for slot, kind in kinds if name in part_fields(kind)), None)


def _read_part(tree: Any, part: Any, problems: list[str], path: Path) -> Any:
    """The tree with the part at that path that a file names."""
    slot = path[-1] if path else ""
    fitting = PARTS.get(slot, {})
    of_the_user = isinstance(part, str) and is_own(part) and slot in OWN_PARTS
    if not of_the_user and (not isinstance(part, str) or part not in fitting):
        fix = did_you_mean(str(part), fitting) if fitting else "leave it out, nothing else fits there"
        problems.append(f"{'.'.join((*path, 'part'))}={shown(part)} does not fit here; {fix}")
        return tree
    try:
        return replace_at(tree, path, other_part(value_at(tree, path), part_of(slot, part)))
    except ConfigError as error:
        problems += error.problems
        return tree


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two trees as plain data differ, as `hparams.learning_rate: 0.001 -> 0.01`."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(name for name in new if name not in old)]
        return [
            line for name in names for line in differences(old.get(name), new.get(name), f"{path}.{name}".strip("."))
        ]
    return [] if old == new else [f"{path}: {old} -> {new}"]
