"""What `--help` prints: settings in groups, the common ones first, each with a sentence and its default."""

from __future__ import annotations

import shutil
import textwrap
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from rollax.commands.failures import TRACEBACK_HELP
from rollax.settings import About

# The order of the groups; those of a user's own come after the agent's.
GROUPS = (
    "arguments", "flags", "search", "experiment", "run", "environment", "agent", "network", "exploration",
    "continuous actions", "replay", "targets", "optimizer", "ppo", "rollouts", "evaluation and logging",
    "devices and processes", "debugging",
)  # fmt: skip
TITLES = {"ppo": "PPO"}
WIDEST, COLUMN = 100, 32
UNBROKEN = "\u00a0"  # a space at which no line ends
WORDS = {int: "INT", float: "FLOAT", str: "TEXT"}


class Flag(NamedTuple):
    """One flag of a command, or one of its arguments."""

    name: str  # as in `learning_rate` or `torso.hidden`
    kind: Any  # the type of its value
    default: Any
    about: About
    positional: bool = False

    @property
    def text(self) -> str:
        """As it is typed, without dashes in front."""
        return self.name.replace("_", "-")

    @property
    def usage(self) -> str:
        """How it is given, with what follows."""
        if self.positional:
            return f"{self.text.upper()}{' ...' if typing.get_origin(self.kind) is tuple else ''}"
        if self.kind is bool:
            return f"--{self.text}, --{negated(self.text)}"
        return f"--{self.text} {placeholder(self.kind)}"


def negated(text: str) -> str:
    """The flag that switches another off: `no-double`, `torso.no-layer-norm`."""
    place, dot, name = text.rpartition(".")
    return f"{place}{dot}no-{name}"


def placeholder(kind: Any) -> str:
    """What stands for a value of that type."""
    if typing.get_origin(kind) is tuple:
        return f"{placeholder(typing.get_args(kind)[0])} ..."
    if typing.get_origin(kind) is Literal:
        return "{" + ",".join(map(str, typing.get_args(kind))) + "}"
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return placeholder(typing.get_args(kind)[0])
    return WORDS.get(kind, "VALUE")


def help_text(program: str, text: str, flags: Sequence[Flag], *, everything: bool) -> str:
    """The help of a command; without `everything`, rare flags are only counted."""
    width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
    seen = [flag for flag in flags if everything or not flag.about.rare]
    groups: dict[str, list[Flag]] = {}
    for flag in seen:
        groups.setdefault(flag.about.group or ("arguments" if flag.positional else "flags"), []).append(flag)
    known = [*GROUPS[: GROUPS.index("agent") + 1], *sorted(groups.keys() - set(GROUPS)), *GROUPS]
    arguments = [flag.usage for flag in flags if flag.positional]
    lines = [" ".join(["usage:", program, *arguments, "[flags]"]), "", *textwrap.wrap(text, width)]
    for group in dict.fromkeys(name for name in known if name in groups):
        lines += ["", TITLES.get(group, group.capitalize())]
        lines += [line for flag in groups[group] for line in flag_lines(flag, width)]
    if len(seen) < len(flags):
        lines += ["", *textwrap.wrap(f"--help-all shows {len(flags) - len(seen)} more flags.", width)]
    return "\n".join([*lines, "", TRACEBACK_HELP])


def flag_lines(flag: Flag, width: int) -> list[str]:
    """A flag and its sentence beside it, or below where the flag is long."""
    usage = f"  {flag.usage}"
    default = default_text(flag).replace(" ", UNBROKEN)
    wrapped = textwrap.wrap(f"{flag.about.help} {default}".strip(), width - COLUMN) or [""]
    beside = [line.replace(UNBROKEN, " ") for line in wrapped]
    indent = " " * COLUMN
    if len(usage) < COLUMN:
        return [f"{usage:<{COLUMN}}{beside[0]}", *(indent + line for line in beside[1:])]
    return [usage, *(indent + line for line in beside)]


def default_text(flag: Flag) -> str:
    """The default in brackets; nothing where there is none."""
    value = flag.default
    if isinstance(value, bool):
        return f"(default: {'on' if value else 'off'})"
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    return "" if flag.positional or value is None or value == "" else f"(default: {value})"
