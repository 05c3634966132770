"""Commands as processes of their own.  However slow the machine, they are waited for; only what hangs is given up."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
HANGING = 1_200.0  # seconds after which a process hangs on any machine: no test says how fast something must be


def surroundings(**variables: str) -> dict[str, str]:
    """The variables of a process that has this checkout and the tests' environments on its path, and a CPU."""
    return os.environ | {"PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "JAX_PLATFORMS": "cpu"} | variables


def rollax(*arguments: Any) -> list[str]:
    """The command `rollax ARGUMENTS`, for this interpreter."""
    return [sys.executable, "-m", "rollax", *map(str, arguments)]


def command(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """Runs `rollax ARGUMENTS` to its end."""
    return run(rollax(*arguments))


def run(words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    env = surroundings(**variables)
    return subprocess.run(words, capture_output=True, text=True, env=env, timeout=HANGING, check=False)


def launch(*arguments: Any, **variables: str) -> subprocess.Popen[str]:
    """Starts `rollax ARGUMENTS`; whatever becomes of the test, it does not outlive it for long."""
    process = subprocess.Popen(
        rollax(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings(**variables)
    )
    atexit.register(process.kill)
    return process


def output_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process has printed by its end: as output, and as errors."""
    return process.communicate(timeout=HANGING)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    """Waits until something is so, as long as the process runs that is to bring it about."""
    end = time.monotonic() + HANGING
    while not condition():
        assert process.poll() is None, f"the process ended with {process.returncode} before it happened"
        assert time.monotonic() < end, "the process hangs"
        time.sleep(0.02)
