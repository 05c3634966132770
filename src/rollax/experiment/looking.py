"""An experiment as a file describes it, for looking only: nothing that the file names is imported.

Where a name is of the user's own, `package.module:name`, a dataclass with the fields that the file has stands in.
"""

from __future__ import annotations

import dataclasses
import functools
import keyword
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from rollax.envs import registry
from rollax.errors import ConfigError
from rollax.experiment.experiment import MAIN_AGENT, MAIN_ENV, Experiment, from_json, in_environment
from rollax.experiment.parts import OWN_PARTS, PARTS
from rollax.experiment.scheduled import ENDING, compact, is_function
from rollax.experiment.tree import Path, places, read_into, replace_at
from rollax.rules.schedules import Scheduled
from rollax.settings import GIVEN, is_own, module_of


def modules_in(data: Any) -> dict[str, str]:
    """The modules that making the experiment of plain data, and playing it, would import; each with what names it."""
    found = {}
    for path, name in names_in(data):
        own = is_own(name) and not name.startswith(GIVEN)
        module = registry.own_module(name) if path == ("env",) else module_of(name) if own else None
        if module is not None:
            found.setdefault(module, f"{'.'.join(path)}={name!r}")
    return found


def names_in(data: Any) -> Iterator[tuple[Path, str]]:
    """Every place of plain data that may name something of the user's own.

    These are the agent, the environment, and at any depth parts and schedules that are functions.

    What is no text there is taken as the text that a reader would make of it.
    """
    if not isinstance(data, Mapping):
        return
    for name in ("agent", "env"):
        if name in data:
            yield (name,), str(data[name])
    rest: list[tuple[Path, Mapping[str, Any]]] = [((), data)]
    while rest:
        path, branch = rest.pop()
        for name, value in branch.items():
            if isinstance(value, Mapping):
                rest.append(((*path, str(name)), value))
            elif name == "part":
                yield path, str(value)
            elif str(name).endswith(ENDING):
                texts = [compact(str(text)) for text in (value if isinstance(value, list) else [value])]
                yield from (((*path, str(name)), text) for text in texts if is_function(text))


def looked_at(data: Any) -> Experiment:
    """The experiment of plain data as `from_json` makes it, but for what would have to be imported.

    Settings, parts and populations have their names and values; what is of the user's own has no help, and can be
    neither built nor run.  Raises ConfigError with all that is wrong.
    """
    if not isinstance(data, dict):
        return from_json(data)
    agent = str(data.get("agent", MAIN_AGENT))
    if not is_own(agent):
        return with_stand_ins(from_json, data, numbers=False)
    tree = in_environment(Experiment(agent=agent), str(data.get("env", MAIN_ENV)))
    for name in ("choices", "hparams"):
        tree = replace_at(tree, (name,), stand_in(agent, data.get(name, {}), name == "hparams", (name,)))
    known = {name: value for name, value in data.items() if name not in ("choices", "hparams")}
    return with_stand_ins(functools.partial(read_onto, tree), known, numbers=False)


def with_stand_ins(read: Callable[[dict[str, Any]], Any], data: dict[str, Any], numbers: bool, path: Path = ()) -> Any:
    """What `read` makes of data that names no part of the user's own, with stand-ins where the data does."""
    theirs = own_parts(data)
    tree = read(without(data, theirs))
    for place, branch in theirs.items():
        if place[-1] not in OWN_PARTS or place not in places(tree):
            raise ConfigError(f"{'.'.join((*path, *place))}.part={branch['part']!r} does not fit here")
        part = stand_in(branch["part"], branch, numbers or place[0] == "hparams", (*path, *place))
        tree = replace_at(tree, place, part)
    return tree


def read_onto(tree: Any, data: dict[str, Any]) -> Any:
    """The tree with what plain data says of it."""
    problems: list[str] = []
    tree = read_into(tree, data, problems)
    if problems:
        raise ConfigError(problems)
    return tree


def own_parts(data: dict[str, Any], here: Path = ()) -> dict[Path, dict[str, Any]]:
    """The outermost branches of plain data that are parts of the user's own, by their paths."""
    found: dict[Path, dict[str, Any]] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            own = isinstance(value.get("part"), str) and is_own(value["part"])
            found |= {(*here, name): value} if own else own_parts(value, (*here, name))
    return found


def without(data: dict[str, Any], paths: Collection[Path], here: Path = ()) -> dict[str, Any]:
    """Plain data without the branches at these paths."""
    return {
        name: without(value, paths, (*here, name)) if isinstance(value, dict) else value
        for name, value in data.items()
        if (*here, name) not in paths
    }


def stand_in(name: str, data: Any, numbers: bool, path: Path) -> Any:
    """A frozen dataclass under that name with the fields of plain data; lists of `numbers` are those of populations."""
    if not isinstance(data, dict):
        raise ConfigError(f"{'.'.join(path)}={data!r} must be an object")
    fields: list[tuple[str, Any, Any]] = []
    for field, value in data.items():
        if field == "part":
            continue
        if not field.isidentifier() or keyword.iskeyword(field) or field.startswith("_"):
            raise ConfigError(f"{'.'.join((*path, field))!r} is no name of a field")
        if isinstance(value, dict):
            part = part_in(field, value, numbers, (*path, field))
            fields.append((field, type(part), part))
        else:
            fields.append((field, *held(field, value, numbers)))
    module, _, kind = name.partition(":")
    made = dataclasses.make_dataclass("Own", fields, frozen=True)
    made.__module__, made.__qualname__ = module, kind
    return made()


def part_in(slot: str, data: dict[str, Any], numbers: bool, path: Path) -> Any:
    """A part inside of a stand-in: the library's own where it is one, else a stand-in too."""
    name = data.get("part")
    if slot not in PARTS or not isinstance(name, str) or name not in PARTS[slot]:
        return stand_in(str(name or slot), data, numbers, path)
    rest = {key: value for key, value in data.items() if key != "part"}
    return with_stand_ins(functools.partial(read_onto, PARTS[slot][name]()), rest, numbers, path)


def held(name: str, value: Any, numbers: bool) -> tuple[Any, Any]:
    """The type of a field that holds plain data, and its value as a setting has it."""
    if numbers and name.endswith(ENDING):
        return Scheduled, tuple(value) if isinstance(value, list) else value
    if not isinstance(value, list):
        return type(value), value
    kinds = {type(item) for item in value} or {str}
    kind = float if kinds == {int, float} else kinds.pop() if len(kinds) == 1 else object
    return (kind if numbers and kind in (int, float, bool) else tuple), tuple(value)
