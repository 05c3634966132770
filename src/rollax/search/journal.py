"""The journal of a study: lines of JSON that only grow, and a seal over those that are known to be whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from rollax.errors import CheckpointError, warn
from rollax.runs.files import write_text
from rollax.runs.reader import check_shape, kind_of, parsed, read_bytes, read_json

JOURNAL, SEAL = "study.journal", "study.seal.json"
MOST_BYTES = 2**30
LINE = {"op_code": int, "worker_id": str}  # what every line of Optuna's has


def seal(folder: Path) -> None:
    """Notes what the journal holds now; whatever is lost or changed of it later is noticed."""
    data = read_bytes(folder / JOURNAL, most=MOST_BYTES)
    data = data[: data.rfind(b"\n") + 1]  # another worker may be writing a line
    write_text(folder / SEAL, json.dumps({"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}) + "\n")


def check_journal(folder: Path) -> None:
    """Raises CheckpointError for a journal that is not as it was written.

    A last line that a killed process has not finished holds nothing yet: it is cut off, and that is said.
    """
    path = folder / JOURNAL
    sealed: dict[str, Any] = {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}
    if kind_of(folder / SEAL):
        sealed = read_json(folder / SEAL)
        check_shape(sealed, {"bytes": int, "sha256": str}, f"{folder / SEAL} is damaged")
    if not kind_of(path) and not sealed["bytes"]:
        return
    data = read_bytes(path, most=MOST_BYTES)
    if hashlib.sha256(data[: sealed["bytes"]]).hexdigest() != sealed["sha256"]:
        raise CheckpointError(f"{path} is damaged: it does not begin as it was written; name another folder")
    whole = data.rfind(b"\n") + 1
    for number, line in enumerate(data[:whole].splitlines(), 1):
        where = f"{path} is damaged in line {number}"
        check_shape(parsed(line.decode("utf-8", "replace"), where), LINE, where)
    if whole < len(data):
        warn(f"{path}: its last line was never finished, and is left out")
        os.truncate(path, whole)
