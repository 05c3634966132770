"""Whose line an error comes from: the user's own, if it is theirs, among all that JAX and others put around it."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from rollax.errors import ConfigError, EnvError, RollaxError

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
