"""Signals that end a search: it is given up at once, and the same command goes on from what it knows."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rollax.errors import RollaxError
from rollax.runs.signals import Ear, Heard, exit_code, signals


class SearchStopped(RollaxError):
    """A search that a signal has ended.  What it knows is kept."""

    def __init__(self, number: int, folder: Path):
        self.exit_code = exit_code(number)
        name = signal.Signals(number).name
        super().__init__(f"{name} has ended the search; the same command goes on with --out {folder}")


@contextmanager
def stoppable(folder: Path) -> Generator[Ear]:
    """Listens for Ctrl-C and SIGTERM.  Raises SearchStopped where one has ended what is done in it."""
    with signals() as ear:
        try:
            yield ear
        except Heard as heard:
            raise SearchStopped(heard.number, folder) from None
