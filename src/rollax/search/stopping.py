"""Signals that end a search: heard between two chunks, after which the same command goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rollax.errors import RollaxError
from rollax.runs.signals import exit_code, first_signal, signals

Check = Callable[[], None]  # raises SearchStopped once a signal has come


class SearchStopped(RollaxError):
    """A search that a signal has ended.  What it knows is kept."""

    def __init__(self, number: int, folder: Path):
        self.exit_code = exit_code(number)
        name = signal.Signals(number).name
        super().__init__(f"{name} has ended the search; the same command goes on with --out {folder}")


@contextmanager
def stoppable(folder: Path) -> Generator[Check]:
    """Listens for Ctrl-C and SIGTERM, and hands out what raises SearchStopped once one has come."""
    with signals() as caught:

        def check() -> None:
            if number := first_signal(caught):
                raise SearchStopped(number, folder)

        yield check


def never() -> None:
    """For searches that nothing stops."""
