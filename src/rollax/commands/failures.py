"""What any failure means to a person: one line and an exit code.  Nothing heavy is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from typing import Any

from rollax.commands.kept import keep, note_of
from rollax.errors import ConfigError, ResourceError, RollaxError, blamed, told

TRACEBACK = "--traceback"
TRACEBACK_HELP = f"{TRACEBACK} after any command shows where an error came from."
# Parses the variable as JAX will, which ends the process where it cannot; nothing else of JAX is started.
PARSE_XLA_FLAGS = "import jaxlib._jax as jax; jax.CompileOptions()"


def explained(error: BaseException) -> RollaxError:
    """The error of ours that says in one line what this one means; itself where it is one of ours."""
    raised_by_ray = comes_from(error, "ray")
    if raised_by_ray and isinstance(cause := getattr(error, "cause", None), Exception):
        return explained(cause)  # what an actor could not cope with
    if isinstance(error, RollaxError):
        return error
    if raised_by_ray:
        return ResourceError(f"Ray failed, which runs the actors: {told(error)}")
    if comes_from(error, "jax", "jaxlib"):
        return of_jax(error)
    if isinstance(error, (RuntimeError, AssertionError)) and (reason := backend_failure()):
        asked = os.environ.get("JAX_PLATFORMS", "")
        fix = f" with JAX_PLATFORMS={asked}; leave it out for what is there" if asked else ""
        return ResourceError(f"JAX cannot start its backend{fix}: {reason}")
    if isinstance(error, MemoryError):
        return ResourceError("the machine ran out of memory; `rollax plan` shows what a run needs")
    if isinstance(error, RecursionError) and passed_through(error, "json"):
        return ConfigError("a JSON file is nested too deeply to be read; no file of rollax's own is")
    if isinstance(error, OSError) and not blamed(error):
        name = f"{error.filename}: " if error.filename else ""
        return ResourceError(f"{name}{error.strerror or told(error)}")
    return blamed(error) or bug(error)


def of_jax(error: BaseException) -> RollaxError:
    """What an error of JAX's own means."""
    text = str(error)
    if "RESOURCE_EXHAUSTED" in text:
        return ResourceError(f"the device ran out of memory: {told(error)}; `rollax plan` shows what a run needs")
    if type(error).__name__ == "JaxRuntimeError":
        return blamed(error) or ResourceError(f"the device failed: {told(error)}")
    return blamed(error) or bug(error)


def bug(error: BaseException) -> RollaxError:
    """For what nobody expected."""
    return RollaxError(f"a bug in rollax, please report it: {told(error)}; {TRACEBACK} shows where")


def comes_from(error: BaseException, *packages: str) -> bool:
    """Whether the class of an exception, or one that it is made of, belongs to one of these packages."""
    return any(kind.__module__.split(".")[0] in packages for kind in type(error).__mro__)


def passed_through(error: BaseException, module: str) -> bool:
    """Whether a function of that module, or of one in that package, was running."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(f"{frame.f_globals.get('__name__', '')}.".startswith(f"{module}.") for frame, _ in frames)


def backend_failure() -> str:
    """Why JAX cannot start, found by trying; empty where it can, or nobody asked it to."""
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return ""
    try:
        jax.default_backend()
    except AssertionError:
        return "there is no plugin for it"
    except RuntimeError as error:
        return told(error)
    return ""


def check_xla_flags() -> None:
    """Refuses a variable XLA_FLAGS that XLA would end the process for, in another process that it may end.

    What it has understood once it understands the next time too.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if not flags.strip() or "jax" in sys.modules or (note := note_of("XLA_FLAGS", flags, "jaxlib")).is_file():
        return
    tried = subprocess.run([sys.executable, "-c", PARSE_XLA_FLAGS], capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        keep(note, flags)
    if tried.returncode == 0 or "parse_flags_from_env" not in tried.stderr:
        return
    said = re.search("(Unknown flag|Couldn't interpret value|Could not open file).*", tried.stderr)
    raise ConfigError(f"XLA_FLAGS={flags!r} is not understood{f': {said[0]}'.rstrip('.') if said else ''}")
