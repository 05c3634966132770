"""What a person sees while a run goes on."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO


class Console:
    """A live line in a terminal, plain lines elsewhere, nothing when quiet."""

    def __init__(self, quiet: bool = False, out: TextIO | None = None, every: float = 5.0):
        self.out = out or sys.stdout
        self.quiet = quiet
        self.live = self.out.isatty()
        self.every = every  # seconds between plain progress lines
        self.shown = 0.0
        self.width = 0

    def say(self, line: str) -> None:
        if not self.quiet:
            self._print(("\r" + " " * self.width + "\r" if self.live and self.width else "") + line)
            self.width = 0

    def progress(self, line: str, last: bool = False) -> None:
        """Shows where the run stands; a terminal's line is written over by the next."""
        if self.quiet:
            return
        if self.live:
            self._print("\r" + line.ljust(self.width), end="")
            self.width = len(line)
        elif last or time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            self._print(line)

    def _print(self, text: str, end: str = "\n") -> None:
        try:
            print(text, end=end, file=self.out, flush=True)
        except BrokenPipeError:  # whoever read along has gone; the run goes on
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(line: str) -> None:
    """Something that a person should know, even of a quiet run."""
    print(f"rollax: {line}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns of text, the numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
