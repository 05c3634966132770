"""What a person sees while a run goes on."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 40  # characters of a sparkline
MOST_LINES = 16  # of members in the live view


class Standing(NamedTuple):
    """Where a run stands."""

    step: int
    total: int
    rate: float  # steps of all members in a second
    seconds_left: float
    members: Sequence[str]  # what each is called
    returns: Sequence[Sequence[float]]  # of each member, row by row
    mean: float | None  # of the last row

    @property
    def line(self) -> str:
        shown = "-" if self.mean is None else f"{self.mean:.1f}"
        return (
            f"step {self.step:,} / {self.total:,} | {self.rate:,.0f} steps/s"
            f" | return {shown} | {duration(self.seconds_left)} left"
        )


class Console:
    """A live view in a terminal, plain lines elsewhere, nothing when quiet."""

    def __init__(self, quiet: bool = False, out: TextIO | None = None, every: float = 5.0):
        self.out = out or sys.stdout
        self.quiet = quiet
        self.every = every  # seconds between plain progress lines
        self.shown = 0.0
        self.live: Any = None
        self.terminal = self.out.isatty() and not quiet

    def say(self, line: str) -> None:
        if self.live is not None:
            self.live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        elif not self.quiet:
            self._print(line)

    def wait(self, phase: str) -> None:
        """Says what is going on while there is no progress to show; a terminal counts the seconds."""
        if self.terminal:
            self._show(waiting_view(phase))
        elif not self.quiet:
            self._print(f"{phase} ...")

    def progress(self, standing: Standing, last: bool = False) -> None:
        """Shows where the run stands; a terminal's view takes the place of the one before."""
        if self.terminal:
            self._show(standing_view(standing))
        elif not self.quiet and (last or time.monotonic() - self.shown >= self.every):
            self.shown = time.monotonic()
            self._print(standing.line)

    @contextmanager
    def open(self):
        """Whatever way the block ends, the terminal is given back."""
        try:
            yield self
        finally:
            self.close()

    def close(self) -> None:
        """Leaves the last view where it is; lines come below it."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _show(self, view: Any) -> None:
        if self.live is None:
            from rich.console import Console as Terminal
            from rich.live import Live

            # A warning goes above the view, unless somebody collects warnings elsewhere.
            together = sys.stderr.isatty()
            self.live = Live(view, console=Terminal(file=self.out), refresh_per_second=8, redirect_stderr=together)
            self.live.start()
        self.live.update(view)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self.out, flush=True)
        except BrokenPipeError:  # whoever read along has gone; the run goes on
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def waiting_view(phase: str) -> Any:
    """A phase without an end in sight: what it is, and for how long already."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    view = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), auto_refresh=False)
    view.add_task(phase, total=None)
    return view


def standing_view(standing: Standing) -> Any:
    """A bar, the numbers, and a sparkline of returns for each member, all on one scale."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2))
    share = standing.step / standing.total
    bar = ProgressBar(total=standing.total, completed=standing.step, width=30)
    numbers = f"{standing.rate:,.0f} steps/s   {duration(standing.seconds_left)} left"
    head.add_row(bar, f"{share:4.0%}", f"step {standing.step:,} of {standing.total:,}", numbers)
    seen = [value for own in standing.returns for value in own]
    if not seen:
        return Group(head, Text("no episode has ended yet", style="dim"))
    low, high = min(seen), max(seen)
    rows = Table.grid(padding=(0, 2))
    chosen = list(zip(standing.members, standing.returns, strict=True))[:MOST_LINES]
    for name, own in chosen:
        last = f"{own[-1]:,.1f}" if own else "-"
        rows.add_row(
            Text(name, style="dim"), Text(sparkline(own, low, high), style="cyan"), Text(last, justify="right")
        )
    left = len(standing.members) - len(chosen)
    mean = "-" if standing.mean is None else f"{standing.mean:,.1f}"
    tail = f"return {mean}, mean of {len(standing.members)}" + (f", of which {left} are not shown" if left else "")
    return Group(head, rows, Text(tail, style="bold"))


def sparkline(values: Sequence[float], low: float, high: float, width: int = SPARKS) -> str:
    """Values as a row of blocks, each the mean of its share, between two bounds."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((mean - low) / (high - low) * top) if high > low else top] for mean in means)


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
