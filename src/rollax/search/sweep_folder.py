"""The folder of a sweep: whose it is, how far it has come, and what it has found."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rollax import __version__
from rollax.errors import CheckpointError, ConfigError
from rollax.experiment.experiment import Experiment
from rollax.runs import checkpoint
from rollax.runs.files import write_text
from rollax.runs.folder import RunFolder
from rollax.runs.reader import check_shape, kind_of, read_json
from rollax.search.arena import Arena
from rollax.search.origin import Origin, check_origin
from rollax.search.space import Space

KEPT = 2  # checkpoints
ROW = {"step": int, "setting": int, "numbers": dict, "score": (int, float), "status": str}
PROGRESS = {"running": [int], "numbers": [dict], "rows": [ROW], "random": dict}


class Row(NamedTuple):
    """What became of a setting by one rung."""

    step: int
    setting: int
    numbers: dict[str, Any]
    score: float  # mean over its seeds; not a number where one of them failed
    status: str


class Progress(NamedTuple):
    """How far a sweep has come, beside what its members have learnt."""

    running: list[int]  # the settings that go on
    numbers: list[dict[str, Any]]  # their values
    rows: list[Row]

    @property
    def best(self) -> Row | None:
        """The best of the last rung; None where all have failed."""
        last = [row for row in self.rows if row.step == self.rows[-1].step and not np.isnan(row.score)]
        return max(last, key=lambda row: row.score) if last else None


class SweepFolder:
    """The files of one sweep; the caller holds the folder's lock."""

    def __init__(self, path: Path):
        self.path, self.run = path, RunFolder(path)
        self.card, self.table = path / "sweep.json", path / "trials.csv"

    def begin(self, origin: Origin, experiment: Experiment) -> Progress | None:
        """Writes whose the folder is, or finds it to be of the same sweep; what that has found, if it has finished."""
        if not kind_of(self.card):
            taken = [path for path in (self.run.config, self.table, self.run.checkpoints) if kind_of(path)]
            if taken:
                raise ConfigError(f"out={self.path} holds {taken[0].name} of something else; name another folder")
            write_text(self.card, json.dumps(origin, indent=1) + "\n")
            return None
        recorded = read_json(self.card)
        check_origin(self.card, recorded, origin, experiment)
        if "found" not in recorded:
            return None
        check_shape(recorded["found"], {"running": [int], "numbers": [dict], "rows": [ROW]}, f"{self.card} is damaged")
        return progress_of(recorded["found"])

    def last_rung(self, origin: Origin, experiment: Experiment) -> tuple[Path | None, dict[str, Any]]:
        """The checkpoint to go on from, and what was said of it; None for a sweep that has not come to a rung."""
        path, meta = self.run.newest_good_checkpoint()
        if path is None and kind_of(self.table):
            raise CheckpointError(f"{self.path} has rows but no checkpoint; name another folder")
        if path is not None:
            check_origin(path, meta.get("origin"), origin, experiment)
            check_shape(meta, PROGRESS, f"{path} is damaged")
        return path, meta

    def save(
        self, origin: Origin, space: Space, step: int, arena: Arena, progress: Progress, random: np.random.Generator
    ) -> None:
        """Writes what a sweep needs to go on from here, and then its rows."""
        meta = {"step": step, "rollax": __version__, "origin": origin, "random": random.bit_generator.state}
        self.run.write_checkpoint(step, checkpoint.flatten(arena.saved()), meta | plain(progress), KEPT)
        self.write_rows(space, progress.rows)

    def end(self, origin: Origin, space: Space, progress: Progress) -> None:
        """Writes what a sweep has found, which needs no checkpoint any more."""
        self.write_rows(space, progress.rows)
        write_text(self.card, json.dumps(origin | {"found": plain(progress)}, indent=1) + "\n")
        self.run.drop_checkpoints()

    def write_rows(self, space: Space, rows: list[Row]) -> None:
        names = [dimension.name for dimension in space.dimensions]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", "setting", *names, "score", "status"])
        for row in rows:
            writer.writerow([row.step, row.setting, *(row.numbers[name] for name in names), row.score, row.status])
        write_text(self.table, text.getvalue())


def plain(progress: Progress) -> dict[str, Any]:
    return progress._asdict() | {"rows": [row._asdict() for row in progress.rows]}


def progress_of(data: dict[str, Any]) -> Progress:
    rows = [Row(*(row[name] for name in Row._fields)) for row in data["rows"]]
    return Progress(data["running"], data["numbers"], rows)
