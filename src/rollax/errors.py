"""What can go wrong: errors and their exit codes, warnings, whose line is to blame, and what is not installed."""

from __future__ import annotations

import difflib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


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


# Whose line an error comes from: the user's own, if it is theirs, among all that JAX and others put around it.

OWN_SOURCE = Path(__file__).parent
LONGEST = 300  # characters of a message that is not ours
# Installed packages that rollax works with.  A line of any other may be that of an environment.
_COMPUTING = {"chex", "distrax", "flax", "jax", "jaxlib", "numpy", "optax", "orbax", "rlax", "scipy", "torch"}
_AROUND = {"absl", "cloudpickle", "matplotlib", "onnx", "optuna", "PIL", "ray", "safetensors", "tqdm", "tyro", "wandb"}
_WORLDS = {"ale_py", "gymnasium", "gymnax", "sbx", "stable_baselines3", "tensorboardX", "pluggy", "_pytest", "pytest"}
LIBRARIES = _COMPUTING | _AROUND | _WORLDS
INSTALLED = {"site-packages", "dist-packages"}

Frame = traceback.FrameSummary


def users_line(error: BaseException) -> str:
    """As in `corridor.py:8: KeyError: 'att'`: the innermost line of the user's that led to it; empty if none did."""
    root = behind(error)
    if isinstance(root, SyntaxError) and root.filename and not is_ours(root.filename):
        return f"{short(root.filename)}:{root.lineno}: {told(root)}"
    frame = users_frame(frames_of(root))
    return f"{short(frame.filename)}:{frame.lineno}: {told(root)}" if frame else ""


def fails(error: BaseException) -> str:
    """How something of the user's fails: `fails at corridor.py:8: KeyError: 'att'`, or `fails with KeyError: 'att'`."""
    line = users_line(error)
    return f"fails at {line}" if line else f"fails with {told(behind(error))}"


def blamed(error: BaseException) -> RollaxError | None:
    """The error in one line if a line of the user's led to it: EnvError for an environment, else ConfigError."""
    line, frames = users_line(error), frames_of(behind(error))
    if not line:
        return None
    callers = [frame for frame in before_users(frames) if is_ours(frame.filename)]
    in_environment = bool(callers) and Path(callers[-1].filename).is_relative_to(OWN_SOURCE / "envs")
    return EnvError(line) if in_environment else ConfigError(line)


def told(error: BaseException) -> str:
    """An exception in one line: its type, and the first line of what it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def behind(error: BaseException) -> BaseException:
    """What an error of ours was raised from; any other is itself."""
    while isinstance(error, RollaxError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def frames_of(error: BaseException) -> list[Frame]:
    """Where an error and those behind it come from, the innermost last."""
    found: list[Frame] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        frames = traceback.extract_tb(current.__traceback__)
        if users_frame(found) is None:
            found += frames
        current = current.__cause__ or current.__context__
    return found


def users_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost line of the user's, in a file of theirs rather than in a package that they have installed."""
    below = below_ours(frames)
    files = [frame for frame in below if not INSTALLED & set(Path(frame.filename).parts)]
    return (files or below or [None])[-1]


def below_ours(frames: Iterable[Frame]) -> list[Frame]:
    """Lines of others that the library has called; those above it only called it."""
    called, found = False, []
    for frame in frames:
        if is_ours(frame.filename):
            called = True
        elif called and not is_library(frame.filename):
            found.append(frame)
    return found


def before_users(frames: Iterable[Frame]) -> Iterator[Frame]:
    """What was running when the user's line was reached."""
    frames = list(frames)
    users = users_frame(frames)
    for frame in frames:
        if frame is users:
            return
        yield frame


def is_ours(path: str) -> bool:
    return Path(path).is_relative_to(OWN_SOURCE)


def is_library(path: str) -> bool:
    """Whether a file belongs to Python itself, or to an installed package that rollax works with."""
    parts = Path(path).parts
    if path.startswith("<"):
        return True
    for place in INSTALLED & set(parts):
        return Path(parts[parts.index(place) + 1]).stem in LIBRARIES
    return any(Path(path).is_relative_to(folder) for folder in standard_folders())


@cache
def standard_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (paths["stdlib"], paths["platstdlib"])


def short(path: str) -> str:
    """A path as short as it can be found by: from the working directory, or from the package on."""
    for base in (Path.cwd(), OWN_SOURCE.parent):
        if Path(path).is_relative_to(base):
            return str(Path(path).relative_to(base))
    return path


# What need not be installed: modules, and the extras of `pip install 'rollax[...]'` that bring them.


class Extra(NamedTuple):
    """Where a module comes from."""

    name: str  # of the extra
    title: str  # of what it brings
    remark: str = ""


EXTRAS: dict[str, Extra] = {
    "ale_py": Extra("atari", "ale-py", " (GPL-2.0-only, games included)"),
    "gymnasium": Extra("atari", "Gymnasium"),
    "starlette": Extra("board", "Starlette"),
    "uvicorn": Extra("board", "Uvicorn"),
    "ray": Extra("ray", "Ray"),
    "optuna": Extra("tune", "Optuna"),
    "tensorboardX": Extra("log", "tensorboardX"),
    "wandb": Extra("log", "wandb"),
    "imageio_ffmpeg": Extra("video", "a video encoder"),
    "flatbuffers": Extra("export", "flatbuffers"),
    "jax2onnx": Extra("onnx", "a converter"),
    "torch": Extra("torch", "PyTorch"),
    "stable_baselines3": Extra("sb3", "Stable-Baselines3"),
    "sbx": Extra("sbx", "SBX"),
    "jumanji": Extra("jumanji", "Jumanji"),
    "pgx": Extra("pgx", "Pgx"),
    "xminigrid": Extra("xminigrid", "XLand-MiniGrid"),
    "navix": Extra("navix", "Navix", " (it brings some sixty packages)"),
    "craftax": Extra("craftax", "Craftax"),
    "octax": Extra("octax", "Octax", " (its games come with it, of several authors)"),
    "brax": Extra("brax", "Brax"),
}


def installed(module: str) -> bool:
    """Whether a module is there; nothing is imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # half of it is there
        return False


def missing(module: str, wanted: str, otherwise: str = "") -> list[str]:
    """That `wanted` needs the module, if it is not there: a line with its fix, and how else one may go on."""
    if installed(module):
        return []
    extra = EXTRAS[module]
    return [f"{wanted} needs {extra.title}: pip install 'rollax[{extra.name}]'{extra.remark}{otherwise}"]


def demand(module: str, wanted: str, otherwise: str = "") -> None:
    """Raises ConfigError where `wanted` needs a module that is not there."""
    if problems := missing(module, wanted, otherwise):
        raise ConfigError(problems)
