"""Signals that end a run, heard between two chunks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rollax.errors import INTERRUPTED, PREEMPTED, warn


@contextmanager
def signals() -> Generator[list[int]]:
    """Collects SIGTERM and the first Ctrl-C; a second Ctrl-C ends at once."""
    caught: list[int] = []

    def note(number: int, _: Any) -> None:
        if caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        caught.append(number)
        warn(f"{signal.Signals(number).name}: saving after the running chunk ...")

    if threading.current_thread() is not threading.main_thread():
        yield caught  # only the main thread may listen
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def first_signal(caught: list[int]) -> int:
    """The first signal that was caught; 0 for none."""
    return caught[0] if caught else 0


def exit_code(number: int) -> int:
    """What a run that a signal has ended returns."""
    return PREEMPTED if number == signal.SIGTERM else INTERRUPTED
