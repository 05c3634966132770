"""`hashes.json`: what the files of a run folder were when they were last written, so that a changed byte is noticed.

Before a file is replaced, its new hash is written beside that of the one that is still there.  So a kill at any moment
leaves a file that is as one of the two says.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rollax.errors import CheckpointError, NewerFormatError
from rollax.runs.files import WIDTH, digests, write_text
from rollax.runs.reader import (
    FORMAT,
    MOST_TABLE_BYTES,
    check_format,
    check_shape,
    kind_of,
    parsed,
    read_bytes,
    read_text,
    sha256_of,
)

NAME = "hashes.json"
ATTEMPTS = 40  # to read a file and its hash from between two writes of a run that goes on
SHAPE = {"sha256": list, "header?": str, "rows?": str}


class Seals:
    """The hashes of a run folder's files, by their names."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / NAME
        self.files: dict[str, Any] | None = None  # as this process has written them
        self.last: dict[str, str] = {}  # the hashes of what it has written last

    def read(self) -> dict[str, Any] | None:
        """What was written; None where there is nothing, CheckpointError where it is damaged."""
        if not kind_of(self.path):
            return None
        text = read_text(self.path, most=MOST_TABLE_BYTES)
        data = parsed(text, str(self.path))
        if not isinstance(data, dict) or text != sealed({key: data[key] for key in data if key != "sha256"}):
            raise CheckpointError(f"{self.path} is damaged")
        check_format(data, self.path)
        check_shape(data, {"files": dict}, str(self.path))
        for name, entry in data["files"].items():
            check_shape(entry, SHAPE, f"{self.path}: {name}")
        return data["files"]

    def write(self, path: Path, text: str, beside: dict[str, str] | None = None) -> None:
        """Replaces a file of the folder, with its hash; of a table, `beside` has the header and the rows' digests."""
        if self.files is None:
            self.files = self.known()
        new, old = hash_of(text.encode()), self.last.get(path.name)
        if old is None and kind_of(path) == "a file":
            old = sha256_of(path)
        self.files[path.name] = {"sha256": [old, new]} | (beside or {})
        write_text(self.path, sealed({"format": FORMAT, "files": self.files}))
        write_text(path, text)
        self.last[path.name] = new

    def known(self) -> dict[str, Any]:
        """What was written, as far as it can be read."""
        try:
            return self.read() or {}
        except NewerFormatError:
            raise
        except CheckpointError:  # which `as_written` of the folder says
            return {}

    def examined(self, path: Path, most: int = MOST_TABLE_BYTES) -> tuple[bytes | None, dict[str, Any] | None, bool]:
        """A file's content, what is known of it, and whether it is as it was written, as far as can be known.

        The content is None where there is nothing.  CheckpointError where it is no file.
        """
        for _ in range(ATTEMPTS):
            entry = self.known().get(path.name)
            content = read_bytes(path, most=most) if kind_of(path) else None
            found = None if content is None else hash_of(content)
            if entry is None or found in entry["sha256"]:
                return content, entry, True
            if self.known().get(path.name) == entry:
                break
            time.sleep(0.05)  # its writer is at work
        return content, entry, False


def sealed(data: dict[str, Any]) -> str:
    """Plain data as a text that holds its own hash."""
    return json.dumps(data | {"sha256": hash_of(json.dumps(data).encode())}, indent=1) + "\n"


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def known_rows(lines: Iterable[str], rows: str) -> list[str]:
    """Of these lines those that were written, in the order in which they were."""
    places = {rows[start : start + WIDTH]: start for start in range(0, len(rows), WIDTH)}
    found = {places[own]: line for line in lines if (own := digests([line])) in places}
    return [found[place] for place in sorted(found)]
