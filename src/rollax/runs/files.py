"""Files that survive a kill: replaced whole, or tables that only grow."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rollax.runs.reader import kind_of

EVALUATION_COLUMNS = (
    "step", "member", "seed", "episodes", "truncated",
    "return_mean", "return_std", "return_min", "return_max", "length_mean",
)  # fmt: skip
METRIC_COLUMNS = (
    "step", "member", "seed", "wall_seconds", "steps_per_second",
    "episodes", "episode_return_mean", "episode_length_mean",
)  # fmt: skip

WIDTH = 16  # characters of a row's digest
Replace = Callable[[Path, str, dict[str, str]], None]  # path, text, and by what its rows are known


class Table:
    """A CSV file that only grows.  It is replaced whole, so a kill at any moment leaves a file that parses."""

    def __init__(self, path: Path, columns: Iterable[str], rows: Iterable[str], replace: Replace | None):
        """Starts from these rows; without `replace`, which writes a file, it is kept in memory alone."""
        self.path, self.replace = path, replace
        self.columns = tuple(columns)
        self.lines = [",".join(self.columns), *rows]
        self.digests = digests(self.lines[1:])
        self.on_disk = 0  # lines of the file
        self.write()

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        new = [",".join(_cell(row[name]) for name in self.columns) for row in rows]
        self.lines += new
        self.digests += digests(new)

    @property
    def last_step(self) -> int:
        """That of the last row; -1 where there is none."""
        return int(self.lines[-1].split(",", 1)[0]) if len(self.lines) > 1 else -1

    def write(self) -> None:
        began = time.monotonic()
        if self.replace is not None and self.on_disk != len(self.lines):
            self.replace(
                self.path, "".join(f"{line}\n" for line in self.lines), {"header": self.lines[0], "rows": self.digests}
            )
            self.on_disk = len(self.lines)
        self.written, self.cost = time.monotonic(), time.monotonic() - began

    def rows(self) -> list[dict[str, str]]:
        """All of them, cells by the names of their columns."""
        return [dict(zip(self.columns, line.split(","), strict=False)) for line in self.lines[1:]]

    def write_if_due(self) -> None:
        """Writes about once a second, and less often where writing takes long."""
        if time.monotonic() - self.written >= max(1.0, 50 * self.cost):
            self.write()


def digests(rows: Iterable[str]) -> str:
    """A few characters for each row, by which it is known again."""
    return "".join(hashlib.sha256(row.encode()).hexdigest()[:WIDTH] for row in rows)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def write_text(path: Path, text: str) -> None:
    """Replaces a file in one step: a reader sees the old text or the new one.  No link is followed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    flush(path.parent)


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Deletes what `write_text` of a killed process has left of files of these names."""
    ours = re.compile(rf"\.(?:{'|'.join(map(re.escape, names))})\.[0-9]+")
    for entry in folder.iterdir():
        if ours.fullmatch(entry.name) and kind_of(entry) == "a file":
            entry.unlink(missing_ok=True)


def beside(path: Path, ending: str) -> Path:
    """The first free name of `NAME.ENDING`, `NAME.ENDING-2`, ..."""
    names = itertools.chain([f"{path.name}.{ending}"], (f"{path.name}.{ending}-{n}" for n in itertools.count(2)))
    return next(there for there in map(path.with_name, names) if not kind_of(there))


def set_aside(path: Path, *, copy: bool = False) -> Path:
    """Gives what is damaged a name of its own, `NAME.damaged`; with `copy` a file also stays where it is."""
    there = beside(path, "damaged")
    if copy and kind_of(path) == "a file":
        try:
            os.link(path, there, follow_symlinks=False)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, there, follow_symlinks=False)
    else:
        path.rename(there)
    return there


def flush(path: Path) -> None:
    """Makes a file, or a folder's list of names, survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
