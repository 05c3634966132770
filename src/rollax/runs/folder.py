"""A run folder: its files, and their formats.  Other tools rely on the names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from rollax.errors import CheckpointError, ConfigError, NewerFormatError, RollaxError, warn
from rollax.experiment.experiment import Experiment
from rollax.experiment.looking import looked_at
from rollax.runs import checkpoint
from rollax.runs.files import Table, set_aside
from rollax.runs.reader import (
    MOST_TABLE_BYTES,
    check_format,
    check_shape,
    kind_of,
    read_bytes,
    read_json,
    real_folder,
)
from rollax.runs.rows import Rows, csv_step, fitted, rows_of, rows_until
from rollax.runs.seals import Seals
from rollax.runs.trust import demand_trust, experiment_in
from rollax.settings import check_text

STEP = "0|[1-9][0-9]{0,17}"  # the name of a checkpoint
MAYBE = (int, float, type(None))
SUMMARY_SHAPE = {
    "status": str,
    "total_steps": int,
    "wall_seconds": (int, float),
    "compile_seconds": (int, float),
    "train_seconds": (int, float),
    "steps_per_second": MAYBE,
    "device": str,
    "versions": dict,
    "members": [
        {
            "member": int,
            "seed": int,
            "hparams": dict,
            "status": str,
            "eval_return_mean": MAYBE,
            "eval_return_std": MAYBE,
        }
    ],
}


class RunFolder:
    """The files of one run.  One that does not write leaves all of it to another process, and only reads."""

    def __init__(self, path: Path | str, *, writes: bool = True):
        self.path, self.writes = Path(path), writes
        check_text("run_dir", str(path))
        if not str(path).strip():
            raise ConfigError(f"run_dir={str(path)!r} must be the name of a folder")
        if kind_of(self.path) == "a link":  # a person may name a link; it is followed once, and inside there are none
            self.path = self.path.resolve()
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.csv"
        self.evaluations = self.path / "evaluations.csv"
        self.summary = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoints"
        self.curve = self.path / "curve.png"
        self.lock = self.path / ".lock"
        self.seals = Seals(self.path)
        self.recorded: dict[str, Any] = {}  # what the checkpoint that a run goes on from says of the tables
        self.told: set[str] = set()  # what was said of the folder already

    def make(self) -> None:
        if not self.writes:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run_dir={self.path} cannot be made: {error.strerror}") from error

    def create(self, config: dict[str, Any]) -> None:
        """Starts a run in the folder, which must not hold one, nor anything under the names of its files."""
        if self.writes and kind_of(self.config):
            raise ConfigError(
                f"run_dir={self.path} holds a run already; continue it with `rollax resume {self.path}` "
                "or name another folder"
            )
        for path in (self.metrics, self.evaluations, self.summary, self.checkpoints):
            if self.writes and kind_of(path):
                raise ConfigError(f"run_dir={self.path} holds {path.name} already, of no run; name another folder")
        self.write_config(config)

    def write_config(self, config: dict[str, Any]) -> None:
        if self.writes:
            self.seals.write(self.config, json.dumps(config, indent=1) + "\n")

    def read_config(self) -> Any:
        """The data of config.json.  ConfigError where this is no run folder at all."""
        if kind_of(self.checkpoints) and not kind_of(self.config):
            raise CheckpointError(f"{self.config} is missing; a checkpoint's meta.json holds a copy, as `config`")
        missing = "it has no config.json" if kind_of(self.path) else "nothing is there"
        data = read_json(self.config, f"{self.path} is no run folder: {missing}")
        if not self.as_written(self.config):
            self.tell(f"{self.config} is not as rollax wrote it, and is used as it is now")
        return data

    def as_written(self, path: Path) -> bool:
        """Whether a file is as `hashes.json` says; if that is damaged, it warns once and trusts every file."""
        try:
            known = self.seals.read()
            if known is None and self.has_format():
                raise CheckpointError(f"{self.seals.path} is missing")
        except NewerFormatError:
            raise
        except CheckpointError as error:
            self.tell(f"{error}; what is in the folder cannot be compared with it")
            return True
        return self.seals.examined(path)[2]

    def has_format(self) -> bool:
        """Whether the run was written by a version that leaves hashes."""
        try:
            return "format" in read_json(self.summary)
        except (RollaxError, TypeError):
            return False

    def tell(self, line: str) -> None:
        """Says something of the folder, once."""
        if line not in self.told and self.writes:
            warn(line)
        self.told.add(line)

    def read_experiment(self, *, trust: bool) -> Experiment:
        """What was run, with the modules that it names imported.

        ConfigError where these are not trusted, CheckpointError with the file where the configuration is none.
        """
        config = self.read_config()
        demand_trust(config, self.config, trust=trust)
        return self._understood(config, lambda data: experiment_in(data, self.config, trust=True))

    def read_description(self) -> Experiment:
        """The same for looking only: nothing is imported, and plain data stands in for what is of the user's own."""
        return self._understood(self.read_config(), looked_at)

    def _understood(self, config: Any, make: Callable[[Any], Experiment]) -> Experiment:
        try:
            return make(config)
        except ConfigError as error:
            raise CheckpointError("\n".join(f"{self.config}: {line}" for line in error.problems)) from error

    def read_summary(self) -> dict[str, Any]:
        """The data of summary.json.  CheckpointError where it is damaged, ConfigError where there never was one."""
        whole = self.as_written(self.summary) if kind_of(self.summary) in ("", "a file") else True
        if not whole and not kind_of(self.summary):
            raise CheckpointError(f"{self.summary} is missing")
        summary = read_json(self.summary, f"{self.path} has no summary.json: the run never started")
        if not whole:
            raise CheckpointError(f"{self.summary} is damaged")
        check_format(summary, self.summary)
        check_shape(summary, SUMMARY_SHAPE, str(self.summary))
        return summary

    def outcome(self) -> dict[str, Any] | None:
        """The summary of a run that has ended; None of one that goes on.  A damaged one is said and set aside."""
        try:
            summary = self.read_summary()
            return summary if summary["status"] in ("finished", "failed") else None
        except NewerFormatError:
            raise
        except CheckpointError as error:
            self.put_aside(self.summary, str(error), copy=False)
        except ConfigError:
            pass
        return None

    def put_aside(self, path: Path, problem: str, *, copy: bool = True) -> None:
        """Says what is wrong with a file that will be written anew, and keeps it as it is under another name."""
        if not self.writes:
            return
        kept = f"; it is kept as {set_aside(path, copy=copy).name}" if kind_of(path) else ""
        self.tell(f"{problem}{kept}")

    def repair(self) -> None:
        """Sets aside a `hashes.json` that is damaged; it will be written anew."""
        try:
            self.seals.read()
        except NewerFormatError:
            raise
        except CheckpointError as error:
            self.put_aside(self.seals.path, str(error), copy=False)

    def read_table(self, path: Path) -> tuple[list[dict[str, str]], str]:
        """The rows of a table that can be trusted, and what is wrong with it, in words."""
        try:
            self.as_written(path)
            header, lines, problem = rows_of(path, self.seals)
        except NewerFormatError:
            raise
        except CheckpointError as error:
            return [], str(error)
        names = header.split(",")
        return [dict(zip(names, line.split(","), strict=False)) for line in lines], problem

    def look_at_tables(self) -> None:
        """Says what is wrong with them."""
        for path in (self.metrics, self.evaluations):
            if problem := self.read_table(path)[1]:
                self.tell(problem)

    def table(self, path: Path, columns: Iterable[str], step: int, grid: int, last: int) -> Table:
        """A table with the rows up to `step` that lie on the grid or at the last step of the run."""
        names = tuple(columns)
        found = fitted(self.rows_before(path, step), names)
        rows = [row for row in found if csv_step(row) % grid == 0 or csv_step(row) == last]
        return Table(path, names, rows, self.seals.write if self.writes else None)

    def rows_before(self, path: Path, step: int, **form: Any) -> Rows:
        """The rows up to a step that are as they were written; damage is said, and the damaged file set aside."""
        if not step and kind_of(path) in ("", "a file"):  # the run begins, and all rows come again
            return Rows("", [])
        rows = rows_until(path, self.seals, self.recorded.get(path.name), step, **form)
        if rows.problem:
            self.put_aside(path, rows.problem)
        return rows

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a checkpoint, the newest first."""
        return sorted((int(name) for name in self.entries() if re.fullmatch(STEP, name)), reverse=True)

    def damaged_checkpoints(self) -> list[str]:
        """The names of those that were set aside."""
        return sorted(name for name in self.entries() if re.fullmatch(rf"(?:{STEP})\.damaged(?:-[0-9]+)?", name))

    def entries(self) -> list[str]:
        """Whatever is in the folder of checkpoints, which must be a real one."""
        return [entry.name for entry in self.checkpoints.iterdir()] if real_folder(self.checkpoints) else []

    def write_checkpoint(self, step: int, arrays: dict[str, np.ndarray], meta: dict[str, Any], keep: int) -> None:
        """Writes a checkpoint and drops old ones."""
        if not real_folder(self.checkpoints):
            self.checkpoints.mkdir()
        self.sweep_checkpoints()
        checkpoint.write(self.checkpoints / str(step), arrays, meta)
        for old in self.checkpoint_steps()[keep:]:
            path = self.checkpoints / str(old)
            if kind_of(path) == "a folder":
                path.rename(path.with_name(f".{old}.{os.getpid()}"))  # it is there whole, or not at all
        self.sweep_checkpoints()

    def sweep_checkpoints(self) -> None:
        """Deletes what was not finished when a process was killed, and what is no longer kept."""
        for name in self.entries():
            if re.fullmatch(rf"\.(?:{STEP})\.[0-9]+", name):
                checkpoint.remove(self.checkpoints / name)

    def drop_checkpoints(self) -> None:
        """Deletes all checkpoints, of what has ended and is kept otherwise."""
        for step in self.checkpoint_steps():
            checkpoint.remove(self.checkpoints / str(step))
        self.sweep_checkpoints()
        with suppress(OSError):  # where there is none, or something else is in it
            self.checkpoints.rmdir()

    def newest_good_checkpoint(self, *, aside: bool = False) -> tuple[Path | None, dict[str, Any]]:
        """The newest checkpoint whose files are whole, and what was said of it; None where there is none at all.

        Says what was wrong with newer ones, and with `aside` renames them, so that they are not
        counted among those that are kept.  CheckpointError where there are only damaged ones.
        """
        damaged: list[str] = []
        for step in self.checkpoint_steps():
            path = self.checkpoints / str(step)
            try:
                meta = checkpoint.verify(path)
            except NewerFormatError:
                raise
            except CheckpointError as error:
                if not kind_of(path):  # its writer has replaced it by a newer one meanwhile
                    continue
                damaged.append(str(error))
                if aside:
                    set_aside(path)
                continue
            for line in damaged:
                warn(f"{line}; the checkpoint of step {step} is used")
            return path, meta
        if damaged:
            raise CheckpointError("; ".join([*damaged, f"no checkpoint in {self.checkpoints} is whole"]))
        return None, {}

    def has_rows(self) -> bool:
        """Whether a table has more than its header, or something else is in its place."""
        kinds = [kind_of(path) for path in (self.metrics, self.evaluations)]
        if set(kinds) - {"", "a file"}:
            return True
        tables = [path for path, kind in zip((self.metrics, self.evaluations), kinds, strict=True) if kind]
        return any(len(read_bytes(path, most=MOST_TABLE_BYTES).splitlines()) > 1 for path in tables)

    def never_saved(self) -> bool:
        """Whether the summary says that there has been no checkpoint so far, so that every row will come again."""
        try:
            return self.read_summary().get("total_steps") == 0
        except RollaxError:
            return False

    def begin_again(self) -> None:
        """Gives all that the run has left a number, as in `metrics.1.csv`, and says so."""
        if not self.writes:
            return
        files = [
            self.metrics,
            self.evaluations,
            self.path / "log.jsonl",
            self.checkpoints,
            self.summary,
            self.seals.path,
        ]
        number = 1
        while any(map(kind_of, (numbered(path, number) for path in files))):
            number += 1
        moved = [(path, numbered(path, number)) for path in files if kind_of(path)]
        for old, new in moved:
            old.rename(new)
        if moved:
            warn(f"{self.path} begins again; kept beside: {', '.join(new.name for _, new in moved)}")

    def write_summary(self, summary: dict[str, Any]) -> None:
        if self.writes:
            self.seals.write(self.summary, json.dumps(summary, indent=1) + "\n")


def numbered(path: Path, number: int) -> Path:
    """`metrics.csv` as `metrics.1.csv`."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def plain_name(name: str) -> str:
    """A name that can be a folder's."""
    return name.replace("/", "-").replace(":", "-")


def unused_folder(name: str) -> Path:
    """`runs/NAME_K` with the first free number."""
    name = plain_name(name)
    number = 1
    while (Path("runs") / f"{name}_{number}").exists():
        number += 1
    return Path("runs") / f"{name}_{number}"
