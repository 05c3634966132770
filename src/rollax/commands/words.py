"""What stands on a command line: flags, and whether the words after each can be its values."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Union

from rollax.commands.help import Flag, negated
from rollax.errors import ConfigError, shortened, shown
from rollax.settings import text_problem


def grouped(flags: Sequence[str]) -> Iterable[list[str]]:
    """The words before the first flag, if there are any, and then each flag with the words after it."""
    group: list[str] = []
    for word in flags:
        if word.startswith("--") and group:
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def canonical(flags: Sequence[str], known: Sequence[Flag], paths: list[tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """The flags by the names that the parser knows, and a line for each that is wrong: ambiguous, unknown, no value.

    Settings may be given by any ending of these paths.  What is wrong is left out of the flags.
    """
    kinds = {flag.text: flag.kind for flag in known if not flag.positional}
    switches = {negated(flag.text) for flag in known if flag.kind is bool}
    result: list[str] = []
    problems: list[str] = []
    spelled: dict[str, str] = {}
    for group in grouped(flags):
        flag, equals, value = group[0].partition("=")
        if not flag.startswith("--") or group[0] == "--":
            result += group
            continue
        text = flag.removeprefix("--").replace("_", "-")
        try:
            text = text if text in kinds or text in switches else qualified(text, known, paths)
        except ConfigError as error:
            problems += error.problems
            continue
        if spelled.setdefault(text, flag.replace("_", "-")) != flag.replace("_", "-"):
            problems.append(f"{spelled[text]} and {flag} are the same setting; give it once")
        words = [value, *group[1:]] if equals else group[1:]
        wrong = [] if text in switches else wrong_words(text, kinds[text], words)
        problems += wrong
        if not wrong:
            result += [f"--{text}{equals}{value}", *group[1:]]
    return result, problems


def qualified(text: str, known: Sequence[Flag], paths: list[tuple[str, ...]]) -> str:
    """The flag that the parser knows for one that it does not.  Raises ConfigError where there is none, or several.

    The first of the known flags are those of the settings at these paths.
    """
    from rollax.experiment.foreign import told_here
    from rollax.experiment.tree import matching, parts_with

    text = shortened(text)
    off = text.startswith("no-") or ".no-" in text
    name = (text.removeprefix("no-").replace(".no-", ".") if off else text).replace("-", "_")
    flags = [known[paths.index(path)] for path in matching(name, paths)]
    meant = [negated(flag.text) if off else flag.text for flag in flags if flag.kind is bool or not off]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError(f"--{text} is ambiguous; say {' or '.join(f'--{other}' for other in meant)}")
    texts = [flag.text for flag in known if not flag.positional]
    ours = {other.replace("-", "_") for other in texts}
    told = told_here(name, ours, "this agent", lambda here: f"--{here.replace('_', '-')}")
    if told and (paths or not told.endswith("has not")):
        raise ConfigError(f"--{text} {told}")
    if paths and (parts := parts_with(name)):
        raise ConfigError(f"--{text} goes with {' or '.join(f'--{slot} {part}' for slot, part in parts)}")
    near = difflib.get_close_matches(text, texts, cutoff=0.4)
    hint = f"did you mean {' or '.join(f'--{other}' for other in near)}?" if near else "--help-all shows all"
    raise ConfigError(f"--{text} is no flag; {hint}")


def wrong_words(text: str, kind: Any, words: Sequence[str]) -> list[str]:
    """Whether these words can be values of that type; further ones may be arguments of the command."""
    if kind is bool:
        return []
    several = typing.get_origin(kind) is tuple
    if not words and not several:
        return [f"--{text} needs a value"]
    kind = typing.get_args(kind)[0] if several else kind
    wrong = ((word, word_problem(kind, word)) for word in (words if several else words[:1]))
    return [f"--{text} {shown(word)} {problem}" for word, problem in wrong if problem][:1]


def word_problem(kind: Any, word: str) -> str:
    """Why a word is no value of that type; empty where it is one."""
    options = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return "" if word in options else f"must be one of {', '.join(options)}"
    if typing.get_origin(kind) in (types.UnionType, Union):
        rest = next(option for option in options if option is not type(None))
        return "" if word == "None" else word_problem(rest, word)
    if kind not in (int, float):
        return text_problem(word)
    try:
        kind(word)
    except ValueError:
        return "must be a whole number" if kind is int else "must be a number"
    return ""
