"""Where rows go beside the run folder's tables: JSON lines, TensorBoard, Weights & Biases, a function of one's own.

Nothing here can change a run: a logger that fails causes one warning and is not called again.
"""

from __future__ import annotations

import enum
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from rollax.errors import CheckpointError, ConfigError, missing, told, users_line, warn
from rollax.runs.files import digests, write_text
from rollax.runs.folder import RunFolder
from rollax.runs.reader import kind_of, read_text, real_folder
from rollax.runs.rows import json_step

Row = dict[str, Any]
Kind = Literal["train", "eval"]
# Takes a kind, and rows as in metrics.csv ("train") or evaluations.csv ("eval"); what it returns may be `STOP`.
OnRows = Callable[[str, list[Row]], Any]
NEEDED = {"tensorboard": "tensorboardX", "wandb": "wandb"}
NOT_LOGGED = ("step", "member", "seed")


class Stop(enum.Enum):
    """What a function of one's own returns to end its run."""

    STOP = "stop"

    def __repr__(self) -> str:
        return "rollax.STOP"


STOP = Stop.STOP


class Logger(Protocol):
    def add(self, kind: Kind, rows: list[Row]) -> None:
        """Takes rows of one table, in the order of their steps."""
        ...

    def close(self, status: str) -> None: ...


def problems(names: Iterable[str]) -> list[str]:
    """What is not installed, each with its fix."""
    return [line for name in names if name in NEEDED for line in missing(NEEDED[name], f"log_to={name}")]


class Loggers:
    """All of a run's loggers.  None can break it; a function of one's own may ask for its end."""

    def __init__(self, names: Iterable[str], folder: RunFolder, config: Row, step: int, own: OnRows | None = None):
        """`step` is where the run goes on: what a log holds from later is taken back where it can be."""
        self.running: dict[str, Logger] = {}
        if not folder.writes:  # of several processes one tells
            return
        if own is not None:
            self.running["on_rows"] = OwnFunction(own)
        if lines := problems(names):
            raise ConfigError(lines)
        for name in names:
            self.attempt(name, lambda name=name: self.running.__setitem__(name, KINDS[name](folder, config, step)))

    def add(self, kind: Kind, rows: list[Row]) -> None:
        if rows:
            for name, logger in list(self.running.items()):
                self.attempt(name, lambda logger=logger: logger.add(kind, rows))

    def recorded(self) -> dict[str, Any]:
        """What files that are read back hold by now."""
        found = [logger.recorded() for logger in self.running.values() if isinstance(logger, JsonLines)]
        return {name: entry for one in found for name, entry in one.items()}

    @property
    def asked_to_stop(self) -> bool:
        """Whether the run is to end, for a function of one's own has said so."""
        own = self.running.get("on_rows")
        return isinstance(own, OwnFunction) and own.asked_to_stop

    def close(self, status: str) -> None:
        for name, logger in list(self.running.items()):
            self.attempt(name, lambda logger=logger: logger.close(status))
        self.running.clear()

    def attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (Exception, SystemExit) as error:  # whatever it is, it is not the run's
            failed = self.running.pop(name, None)
            if failed is not None:
                with suppress(Exception, SystemExit):
                    failed.close("failed")
            reason = users_line(error) or told(error)
            warn(f"{name} has failed and is left out from here on; the run goes on: {reason}")


class OwnFunction:
    def __init__(self, function: OnRows):
        self.function = function
        self.asked_to_stop = False

    def add(self, kind: Kind, rows: list[Row]) -> None:
        self.asked_to_stop |= self.function(kind, rows) is STOP

    def close(self, status: str) -> None:
        pass


class JsonLines:
    """`log.jsonl`: an object for each row, with its `kind`."""

    def __init__(self, folder: RunFolder, config: Row, step: int):
        path = folder.path / "log.jsonl"
        before = folder.rows_before(path, step, header=False, step_of=json_step).lines
        write_text(path, "".join(f"{line}\n" for line in before))
        self.digests = digests(before)
        self.file = path.open("a")

    def add(self, kind: Kind, rows: list[Row]) -> None:
        lines = [json.dumps({"kind": kind, **row}, default=float) for row in rows]
        self.file.writelines(f"{line}\n" for line in lines)
        self.file.flush()
        self.digests += digests(lines)

    def recorded(self) -> dict[str, Any]:
        """What the file holds, for a checkpoint."""
        return {Path(self.file.name).name: {"rows": self.digests}}

    def close(self, status: str) -> None:
        self.file.close()


class TensorBoard:
    """`tensorboard/`: a curve for each member, and one for their mean."""

    def __init__(self, folder: RunFolder, config: Row, step: int):
        from tensorboardX import SummaryWriter

        self.path: Path = folder.path / "tensorboard"
        real_folder(self.path)
        # What an earlier part of the run wrote from this step on is hidden by TensorBoard.
        self.make = lambda name: SummaryWriter(str(self.path / name), purge_step=step + 1)
        self.writers: dict[str, Any] = {"mean": self.make("mean")}
        if not step:
            self.writers["mean"].add_text("config", f"```json\n{json.dumps(config, indent=1)}\n```")

    def add(self, kind: Kind, rows: list[Row]) -> None:
        for row in rows:
            self.put(f"member_{row['member']}", kind, row)
        for row in means(rows):
            self.put("mean", kind, row)
        for writer in self.writers.values():
            writer.flush()

    def put(self, name: str, kind: Kind, row: Row) -> None:
        if name not in self.writers:
            self.writers[name] = self.make(name)
        for tag, value in numbers(row).items():
            self.writers[name].add_scalar(f"{kind}/{tag}", value, row["step"])

    def close(self, status: str) -> None:
        for writer in self.writers.values():
            writer.close()


class WeightsAndBiases:
    """One run of Weights & Biases, with the means and each member's own numbers; resumed under the same identity.

    `WANDB_MODE=offline` keeps it on the disk, `WANDB_PROJECT` names the project.
    """

    def __init__(self, folder: RunFolder, config: Row, step: int):
        import wandb

        real_folder(folder.path / "wandb")
        remembered = folder.path / "wandb-id.txt"
        identity = known_identity(folder, remembered) or secrets.token_hex(4)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "rollax"),
            id=identity,
            name=folder.path.name,
            config=config,
            dir=str(folder.path),
            resume="allow",
        )
        folder.seals.write(remembered, identity + "\n")
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def add(self, kind: Kind, rows: list[Row]) -> None:
        for mean in means(rows):
            own = {
                f"{kind}/member_{row['member']}/{tag}": value
                for row in rows
                if row["step"] == mean["step"]
                for tag, value in numbers(row).items()
            }
            self.run.log({"step": mean["step"]} | {f"{kind}/{tag}": v for tag, v in numbers(mean).items()} | own)

    def close(self, status: str) -> None:
        self.run.summary["status"] = status
        self.run.finish(exit_code=0 if status == "finished" else 1)


def known_identity(folder: RunFolder, path: Path) -> str:
    """Under which a run was logged so far; a file that is damaged is set aside, and tells none."""
    if not kind_of(path):
        return ""
    try:
        identity = read_text(path, most=1_000).strip()
        if not folder.as_written(path) or not re.fullmatch(r"[\w-]{1,64}", identity, re.ASCII):
            raise CheckpointError(f"{path} is damaged")
    except CheckpointError as error:
        folder.put_aside(path, f"{error}; a new run of Weights & Biases begins")
        return ""
    return identity


def means(rows: list[Row]) -> list[Row]:
    """For each step one row, with the means over members; what only some have, over those."""
    found = []
    for step in dict.fromkeys(row["step"] for row in rows):
        own = [numbers(row) for row in rows if row["step"] == step]
        tags = dict.fromkeys(tag for row in own for tag in row)
        values = {tag: [row[tag] for row in own if tag in row] for tag in tags}
        found.append({"step": step} | {tag: sum(value) / len(value) for tag, value in values.items()})
    return found


def numbers(row: Row) -> dict[str, float]:
    """What there is to draw of a row."""
    return {tag: float(value) for tag, value in row.items() if tag not in NOT_LOGGED and value is not None}


KINDS: dict[str, Callable[[RunFolder, Row, int], Logger]] = {
    "jsonl": JsonLines,
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}
