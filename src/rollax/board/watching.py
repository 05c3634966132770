"""The runs below a folder, looked at again and again: which are there, and which have changed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rollax.board.rows import GOING_ON, Row, row_of
from rollax.reports.page import FILMS
from rollax.runs.folder import RunFolder
from rollax.runs.lock import is_held

DEEPEST = 3  # folders between the board's and a run's
MARKS = {"config.json", "summary.json", "metrics.csv"}  # a folder that holds one of these files is a run's
LOOKED_AT = ("config.json", "summary.json", "metrics.csv", "evaluations.csv", ".lock", *(f"watch{x}" for x in FILMS))

Signature = tuple


class Known(NamedTuple):
    """A run that is on the board."""

    path: Path
    row: Row
    version: int  # how often it has changed
    signature: Signature


class Changes(NamedTuple):
    """What a look has found."""

    changed: list[str]  # the keys of runs that are new, or not as they were
    gone: list[str]
    whole: bool  # all has been looked at; else there is more to see at once


class Watch:
    """The runs below a folder, each under a key that says nothing of its path.

    A browser names runs by these keys alone, so that no request can lead to any other file.
    """

    def __init__(self, root: Path):
        self.root = root
        self.runs: dict[str, Known] = {}

    def look(self, seconds: float = 0.2) -> Changes:
        """Looks at all folders, and reads those that have changed for about so long, the new ones first."""
        end = time.monotonic() + seconds
        found = {key_of(name): (path, name) for path, name in run_folders(self.root)}
        gone = [key for key in self.runs if key not in found]
        for key in gone:
            del self.runs[key]
        changed: list[str] = []
        for key in sorted(found, key=lambda key: key in self.runs):
            path, name = found[key]
            known = self.runs.get(key)
            signature = signature_of(path, known)
            if known is not None and known.signature == signature:
                continue
            if changed and time.monotonic() > end:
                return Changes(changed, gone, whole=False)
            row = row_of(path, name)
            if known is None or known.row.status != row.status:
                signature = (*signature[:-1], life_of(path, row.status))
            self.runs[key] = Known(path, row, known.version + 1 if known else 1, signature)
            changed.append(key)
        return Changes(changed, gone, whole=True)


def run_folders(root: Path) -> Iterator[tuple[Path, str]]:
    """The run folders at and below a folder, with their paths from there; links are not followed."""
    waiting = [(root, "", 0)]
    while waiting:
        folder, name, depth = waiting.pop()
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except OSError:  # it has vanished, or is not ours to read
            continue
        if any(entry.name in MARKS and not is_folder(entry) for entry in entries):
            yield folder, name or folder.resolve().name
            continue
        if depth < DEEPEST:
            below = [entry.name for entry in entries if not entry.name.startswith(".") and is_folder(entry)]
            waiting += [(folder / one, f"{name}/{one}".lstrip("/"), depth + 1) for one in sorted(below, reverse=True)]


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def key_of(name: str) -> str:
    """What the browser calls a run."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def signature_of(path: Path, known: Known | None) -> Signature:
    """What is other whenever a run's row may be other: its files, and whether its process lives."""
    files = []
    for name in LOOKED_AT:
        try:
            found = os.lstat(path / name)
            files.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            files.append(None)
    return (*files, life_of(path, known.row.status if known else ""))


def life_of(path: Path, status: str) -> bool | int | None:
    """Whether the process of a run lives that goes on; on another machine a new number every few seconds."""
    if status not in GOING_ON:
        return None
    held = is_held(RunFolder(path, writes=False))
    return int(time.monotonic() / 5) if held is None else held
