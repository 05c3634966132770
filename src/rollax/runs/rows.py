"""The rows of a run folder's tables, read back: those that are as they were written, and what is wrong with others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rollax.errors import CheckpointError
from rollax.runs.files import WIDTH
from rollax.runs.reader import kind_of
from rollax.runs.seals import Seals, known_rows

NUMBER = re.compile("0|[1-9][0-9]{0,17}")


class Rows(NamedTuple):
    """What can be trusted of a table, and what is wrong with it, in words; nothing where it is whole."""

    header: str
    lines: list[str]
    problem: str = ""


def csv_step(line: str) -> float:
    """The step of a row; what has none is later than all."""
    first = line.split(",", 1)[0]
    return int(first) if NUMBER.fullmatch(first) else math.inf


def json_step(line: str) -> float:
    """The same of a line of JSON, such as one that a kill has cut short."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return math.inf
    return step if isinstance(step, int) else math.inf


def rows_until(
    path: Path,
    seals: Seals,
    recorded: dict[str, Any] | None,
    step: int,
    *,
    header: bool = True,
    step_of: Callable[[str], float] = csv_step,
) -> Rows:
    """The rows of a table up to the step of a checkpoint, which has recorded what they were.

    A checkpoint of a version that did not, and a table that is as `hashes.json` says, are taken at their word.
    """
    if not kind_of(path):
        lost = bool(recorded and recorded["rows"])
        return Rows("", [], f"{path} is missing" if lost else "")
    try:
        content, entry, whole = seals.examined(path)
    except CheckpointError as error:
        return Rows("", [], str(error))
    first, lines = in_lines(content or b"", header)
    early = [line for line in lines if step_of(line) <= step]
    if (entry is not None and whole) or recorded is None:
        return Rows(first, early)
    kept, total = known_rows(lines, recorded["rows"]), len(recorded["rows"]) // WIDTH
    if kept == early and len(kept) == total and first == recorded.get("header", first):
        return Rows(first, kept)
    some = f"{len(kept)} of {total} rows up to step {step} are as they were written"
    return Rows(recorded.get("header", first), kept, f"{path} is damaged: {some}")


def rows_of(path: Path, seals: Seals) -> Rows:
    """All rows of a table, as somebody sees them who only looks.  Raises CheckpointError where it is no file."""
    content, entry, whole = seals.examined(path)
    if content is None:
        return Rows("", [], "" if whole else f"{path} is missing")
    first, lines = in_lines(content, True)
    if whole and entry is not None:
        return Rows(first, lines)
    if entry is None:
        good = [line for line in lines if readable(line, first)]
        bad = len(lines) - len(good)
        return Rows(first, good, f"{path} is damaged: {bad} of its {len(lines)} rows cannot be read" if bad else "")
    kept, total = known_rows(lines, entry.get("rows", "")), len(entry.get("rows", "")) // WIDTH
    problem = f"{path} is damaged: {len(kept)} of its {total} rows are as they were written"
    return Rows(entry.get("header", first), kept, problem)


def in_lines(content: bytes, header: bool) -> tuple[str, list[str]]:
    """The header and the lines of a table; what is no UTF-8 becomes what no row holds."""
    lines = content.decode("utf-8", "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return (lines[0], lines[1:]) if header and lines else ("", lines)


def readable(line: str, header: str) -> bool:
    """Whether a row has a number, or nothing, in every cell."""
    cells = line.split(",")
    return len(cells) == len(header.split(",")) and csv_step(line) < math.inf and all(map(is_number, cells))


def is_number(cell: str) -> bool:
    try:
        return not cell or bool(float(cell) or True)
    except ValueError:
        return False


def fitted(rows: Rows, columns: Sequence[str]) -> list[str]:
    """The rows in these columns, by their names: a version may have had others."""
    names = rows.header.split(",")
    if names == list(columns):
        return rows.lines
    cells = [dict(zip(names, line.split(","), strict=False)) for line in rows.lines]
    return [",".join(own.get(name, "") for name in columns) for own in cells]
