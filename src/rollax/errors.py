"""What can go wrong, the exit code that each leaves the command with, and warnings."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


class RollaxError(Exception):
    """An error that is answered with its message alone, without a traceback."""

    exit_code = 1
    together = False  # whether every process of a run raises it


class ConfigError(RollaxError, ValueError):
    """A wrong experiment: every problem found, each with its fix."""

    exit_code = 2

    def __init__(self, problems: str | Sequence[str]):
        listed = [problems] if isinstance(problems, str) else problems
        self.problems = [shortened(problem, LONGEST_LINE) for problem in listed]
        super().__init__("\n".join(self.problems))


class CheckpointError(RollaxError):
    """A checkpoint that is damaged, foreign or missing."""

    exit_code = 3


class NewerFormatError(CheckpointError):
    """A file of a version of rollax that is newer than this one: whole, but not to be read here."""


class NumericError(RollaxError):
    """A number that stopped being finite."""

    exit_code = 4


class EnvError(RollaxError):
    """An environment that cannot be made, or breaks the protocol."""

    exit_code = 5


class ResourceError(RollaxError):
    """A run that the machine cannot hold."""

    exit_code = 6


PREEMPTED = 75
INTERRUPTED = 130
LONGEST_LINE, LONGEST_VALUE = 2_000, 80  # characters that are shown of a problem, and of a value


def shortened(text: str, most: int = LONGEST_VALUE) -> str:
    """The text; of one that is too long to be read, its beginning and its end."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[len(text) - most // 2 :]}"


def shown(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, str | bytes):
        long = len(value) > LONGEST_VALUE
        return f"{value[: LONGEST_VALUE // 2]!r}... ({len(value):,} characters)" if long else repr(value)
    if isinstance(value, list | tuple) and len(value) > LONGEST_VALUE:
        return f"{shortened(repr(value[:LONGEST_VALUE]))} ({len(value):,} long)"
    try:
        return shortened(repr(value))
    except ValueError:  # Python writes no number of so many digits
        return "a number of thousands of digits"


class Stopped(RollaxError):
    """A run that a signal has ended before its end, and that is saved: `rollax.resume(error.run_dir)` goes on."""

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir
        super().__init__(run_dir)

    def __str__(self) -> str:
        return f"the run was stopped by a signal and is saved; continue with `rollax resume {self.run_dir}`"


class Interrupted(Stopped):
    """A run that Ctrl-C has ended; it is saved in `run_dir`."""

    exit_code = INTERRUPTED


class Preempted(Stopped):
    """A run that SIGTERM has ended, as a scheduler sends it; it is saved in `run_dir`."""

    exit_code = PREEMPTED


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest right names, or all of them where none is near."""
    names = list(known)
    near = difflib.get_close_matches(shortened(name).replace("-", "_"), names, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(names))}"


def warn(line: str) -> None:
    """Something that a person should know, even of a quiet run."""
    print(f"rollax: {line}", file=sys.stderr, flush=True)
