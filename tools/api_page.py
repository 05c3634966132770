"""Rewrites the lists of names in docs/api.md from the code: `make api`.

What stands between two marks of the page is made here; all else there is written by hand.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ForwardRef

import rollax
from rollax.settings import Limit

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
SECTION = re.compile(r"(<!-- names: (\w+) -->\n).*?(<!-- end of names -->)", flags=re.DOTALL)
# What each list of the page holds: modules, and names in them.
CONTENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "public": {"rollax": tuple(rollax.__all__)},
    "errors": {
        "rollax.errors": (
            *("ConfigError", "CheckpointError", "NewerFormatError", "NumericError", "EnvError", "ResourceError"),
            *("Stopped", "Interrupted", "Preempted"),
        ),
    },
    "files": {"rollax.reports.export": ("export", "ExportedPolicy")},
    "parts": {
        "rollax.types": ("Transition", "Decision", "EnvSpec", "Discrete", "Box"),
        "rollax.settings": ("setting", "Limit", "POSITIVE", "NOT_NEGATIVE", "SHARE", "COUNT", "COUNT_OR_NONE"),
        "rollax.agents.base": ("Agent", "Stepwise", "Lessons", "AgentConfig", "Recipe"),
        "rollax.agents.dqn": ("DQN", "DQNConfig", "DQNHParams"),
        "rollax.networks.torsos": ("Torso",),
        "rollax.networks.heads": ("Head",),
        "rollax.memory.replay": ("Replay", "Buffer", "Request", "Sample"),
        "rollax.rules.backups": ("GreedyBackup",),
        "rollax.rules.schedules": ("Exploration", "PeriodicTarget"),
    },
    "blocks": {
        "rollax.agents.base": ("OptimizerHParams", "make_optimizer", "apply_gradients", "blank_features", "own_axes"),
        "rollax.networks.torsos": ("MLP", "flatten_features"),
        "rollax.networks.heads": ("Streams", "ScalarHead", "QNetwork", "ActorCritic"),
        "rollax.memory.uniform": ("UniformReplay",),
        "rollax.memory.ring": ("Batch",),
        "rollax.rules.distributions": ("masked_categorical",),
        "rollax.rules.policies": ("greedy", "epsilon_greedy"),
        "rollax.rules.returns": ("Scalar",),
        "rollax.rules.schedules": ("linear",),
        "rollax.rules.targets": ("n_step", "lambda_returns"),
        "rollax.tracing": ("mean_over",),
    },
}
BOOKKEEPING = {"parent", "name"}  # arguments of flax modules that are not the caller's
PLAIN = int | float | str | bool | tuple | None


def rewritten(page: str) -> str:
    """The page with its lists as the code gives them."""
    return SECTION.sub(
        lambda match: f"{match[1]}\n{listing(CONTENTS[match[2]], members=match[2] != 'blocks')}\n{match[3]}", page
    )


def listing(contents: dict[str, tuple[str, ...]], *, members: bool) -> str:
    """All names, under their modules; with what classes offer, or without."""
    lines: list[str] = []
    for module, names in contents.items():
        lines += [f"`{module}`", ""]
        for name in names:
            lines += entry(name, getattr(importlib.import_module(module), name), members=members)
        lines.append("")
    return "\n".join(lines)


def entry(name: str, thing: Any, *, members: bool) -> Iterator[str]:
    """A name with its signature, what it is, and what its users may ask of it."""
    if isinstance(thing, Limit):
        yield from item(f"{name}: Limit", f"A number {thing.demand(thing.low - 1)}.")
        return
    if isinstance(thing, str):
        yield from item(f"{name}: str", f"Another name of the agent `{thing}`.")
        return
    if isinstance(thing, enum.Enum):
        yield from item(name, type(thing))
        return
    if isinstance(thing, type) and issubclass(thing, rollax.RollaxError):  # nobody calls it
        yield from item(f"{name}, exit_code {thing.exit_code}", thing)
        return
    yield from item(f"{name}{signature(thing)}", thing)
    for member, value in own_members(thing) if members and isinstance(thing, type) else ():
        if isinstance(value, property | cached_property):
            getter: Any = value.fget if isinstance(value, property) else value.func
            yield from item(f".{member}: {annotation(inspect.signature(getter).return_annotation)}", getter, "    ")
        else:
            yield from item(f"{'' if member == '__call__' else f'.{member}'}{signature(value)}", value, "    ")


def item(code: str, about: Any, indent: str = "") -> Iterator[str]:
    """An item of a list, with a sentence or with the first one of what documents itself."""
    text = about if isinstance(about, str) else re.split(r"(?<=\.)\s", inspect.getdoc(about) or "")[0]
    yield f"{indent}- `{code}`<br>"
    yield f"{indent}  {' '.join(text.split())}"


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties that a class itself defines for its users."""
    for name, value in vars(kind).items():
        public = name == "__call__" or not name.startswith("_")
        written = inspect.isfunction(value) and value.__module__ == kind.__module__
        if public and (written or isinstance(value, property | cached_property)):
            yield name, value


def signature(thing: Any) -> str:
    """The arguments that a caller gives, and what comes back."""
    found, arguments = inspect.signature(thing), []
    for argument in found.parameters.values():
        if argument.name == "self" or (isinstance(thing, type) and argument.name in BOOKKEEPING):
            continue
        if argument.kind is argument.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        stars = "**" if argument.kind is argument.VAR_KEYWORD else ""
        arguments.append(f"{stars}{argument.name}: {annotation(argument.annotation)}{default(argument)}")
    back = "" if isinstance(thing, type) else f" -> {annotation(found.return_annotation)}"
    return f"({', '.join(arguments)}){back}"


def default(argument: inspect.Parameter) -> str:
    """What an argument is without being given; `...` where that is long."""
    if argument.default is argument.empty:
        return ""
    return f" = {argument.default!r}" if isinstance(argument.default, PLAIN) else " = ..."


def annotation(kind: Any) -> str:
    """A type as the code writes it."""
    if isinstance(kind, ForwardRef):
        return kind.__forward_arg__
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
