"""A run folder: its files, their formats, and who may write to it.  Other tools rely on the names."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

from rollax.errors import CheckpointError, ConfigError, RollaxError, warn
from rollax.experiment.experiment import Experiment, from_json
from rollax.runs import checkpoint
from rollax.runs.files import write_text
from rollax.runs.reader import kind_of, read_json


class RunFolder:
    """The files of one run.  One that does not write leaves all of it to another process, and only reads."""

    def __init__(self, path: Path | str, *, writes: bool = True):
        self.path, self.writes = Path(path), writes
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.csv"
        self.evaluations = self.path / "evaluations.csv"
        self.summary = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoints"
        self.curve = self.path / "curve.png"
        self.lock = self.path / ".lock"

    def make(self) -> None:
        if not self.writes:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run_dir={self.path} cannot be made: {error.strerror}") from error

    def create(self, config: dict[str, Any]) -> None:
        """Starts a run in the folder, which must not hold one."""
        if self.writes and self.config.exists():
            raise ConfigError(
                f"run_dir={self.path} holds a run already; continue it with `rollax resume {self.path}` "
                "or name another folder"
            )
        self.write_config(config)

    def write_config(self, config: dict[str, Any]) -> None:
        if self.writes:
            write_text(self.config, json.dumps(config, indent=1) + "\n")

    def read_config(self) -> Any:
        """The data of config.json.  ConfigError where this is no run folder at all."""
        if kind_of(self.checkpoints) and not kind_of(self.config):
            raise CheckpointError(f"{self.config} is missing; a checkpoint's meta.json holds a copy, as `config`")
        return read_json(self.config, f"{self.path} is no run folder: it has no config.json")

    def read_experiment(self) -> Experiment:
        """What was run.  CheckpointError with the file where the configuration is none."""
        try:
            return from_json(self.read_config())
        except ConfigError as error:
            if not kind_of(self.config):
                raise
            raise CheckpointError("\n".join(f"{self.config}: {line}" for line in error.problems)) from error

    def read_summary(self) -> dict[str, Any]:
        return read_json(self.summary, f"{self.path} has no summary.json: the run never started")

    def outcome(self) -> dict[str, Any] | None:
        """The summary of a run that has ended; None of one that goes on, or whose summary cannot be read."""
        try:
            summary = self.read_summary()
            return summary if summary["status"] in ("finished", "failed") else None
        except (RollaxError, KeyError, TypeError):
            return None

    def read_table(self, path: Path) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(path.read_text()))) if path.exists() else []

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a checkpoint, the newest first."""
        if not self.checkpoints.is_dir():
            return []
        found = [int(entry.name) for entry in self.checkpoints.iterdir() if re.fullmatch(r"\d+", entry.name)]
        return sorted(found, reverse=True)

    def save_checkpoint(self, step: int, tree: Any, meta: dict[str, Any], keep: int) -> None:
        """Writes a checkpoint and drops old ones.  With several processes, all must call it."""
        arrays = checkpoint.flatten(tree, keep=self.writes)
        if not self.writes:
            return
        self.checkpoints.mkdir(exist_ok=True)
        for leftover in self.checkpoints.glob(".*"):
            _remove(leftover)
        checkpoint.write(self.checkpoints / str(step), arrays, meta)
        for old in self.checkpoint_steps()[keep:]:
            _remove(self.checkpoints / str(old))

    def newest_good_checkpoint(self, *, set_aside: bool = False) -> tuple[Path | None, dict[str, Any]]:
        """The newest checkpoint whose files are whole, and what was said of it; None where there is none at all.

        Says what was wrong with newer ones, and with `set_aside` renames them, so that they are not
        counted among those that are kept.  CheckpointError where there are only damaged ones.
        """
        damaged: list[str] = []
        for step in self.checkpoint_steps():
            path = self.checkpoints / str(step)
            try:
                meta = checkpoint.verify(path)
            except CheckpointError as error:
                if not path.exists():  # its writer has replaced it by a newer one meanwhile
                    continue
                damaged.append(str(error))
                if set_aside:
                    path.rename(path.with_name(f"{step}.damaged"))
                continue
            for line in damaged:
                warn(f"{line}; the checkpoint of step {step} is used")
            return path, meta
        if damaged:
            raise CheckpointError("; ".join([*damaged, f"no checkpoint in {self.checkpoints} is whole"]))
        return None, {}

    def write_summary(self, summary: dict[str, Any]) -> None:
        if self.writes:
            write_text(self.summary, json.dumps(summary, indent=1) + "\n")


class Lock:
    """Holds a run folder for this process.  The system gives it up when the process ends, however it ends."""

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.file: Any = None

    def __enter__(self) -> Lock:
        import fcntl

        if not self.folder.writes:
            return self
        try:
            self.file = self.folder.lock.open("a+")
        except OSError as error:
            raise ConfigError(f"run_dir={self.folder.path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.file.seek(0)
            holder = self.file.read().strip() or "another process"
            self.file.close()
            raise ConfigError(
                f"run_dir={self.folder.path} is in use by {holder}; wait for it or name another"
            ) from error
        self.file.truncate(0)
        self.file.write(f"process {os.getpid()}")
        self.file.flush()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.file is None:
            return
        self.file.truncate(0)
        self.file.close()


def _remove(path: Path) -> None:
    import shutil

    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
