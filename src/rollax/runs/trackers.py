"""TensorBoard and Weights & Biases: where rows are looked at in other programs than ours."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rollax.errors import CheckpointError
from rollax.runs.folder import RunFolder
from rollax.runs.reader import kind_of, parsed, read_text, real_folder

Row = dict[str, Any]
Kind = Literal["train", "eval"]
NOT_LOGGED = ("step", "member", "seed")
SCORE = "eval/return_mean"  # of TensorBoard's table of settings


class TensorBoard:
    """`tensorboard/`: a curve for each member, and one for their mean; at the end the settings and score of each."""

    def __init__(self, folder: RunFolder, config: Row, step: int, members: Sequence[Row]):
        from tensorboardX import SummaryWriter

        self.path: Path = folder.path / "tensorboard"
        self.members = members
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
        for tag, value in numbers(row).items():
            self.writer(name).add_scalar(f"{kind}/{tag}", value, row["step"])

    def writer(self, name: str) -> Any:
        """Who writes that curve."""
        if name not in self.writers:
            self.writers[name] = self.make(name)
        return self.writers[name]

    def show(self, film: bytes, step: int) -> None:
        """A GIF, among the images."""
        from tensorboardX.proto import summary_pb2

        messages: Any = summary_pb2
        width, height = (int.from_bytes(film[place : place + 2], "little") for place in (6, 8))
        image = messages.Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=film)
        self.writers["mean"].file_writer.add_summary(
            messages.Summary(value=[messages.Summary.Value(tag="film", image=image)]), step
        )

    def close(self, status: str) -> None:
        if status in ("finished", "stopped"):
            self.tabulate()
        for writer in self.writers.values():
            writer.close()

    def tabulate(self) -> None:
        """A line for each member in the table of settings, whose score is that of its last evaluation."""
        from tensorboardX.summary import hparams

        for member, settings in enumerate(self.members):
            writer = self.writer(f"member_{member}")
            for summary in hparams(settings, {SCORE: 0.0}):  # the score itself is the last of the curve of that name
                writer.file_writer.add_summary(summary)


class WeightsAndBiases:
    """One run of Weights & Biases, with the means and each member's own numbers; resumed under the same identity.

    `WANDB_MODE=offline` keeps it on the disk, `WANDB_PROJECT` names the project.
    """

    def __init__(self, folder: RunFolder, config: Row, step: int, members: Sequence[Row]):
        import wandb

        self.folder, self.sent = folder, folder.path / "wandb-steps.json"
        real_folder(folder.path / "wandb")
        remembered = folder.path / "wandb-id.txt"
        known = known_identity(folder, remembered)
        self.last = known_steps(folder, self.sent) if known else {}  # a new run there has no rows
        identity = known or secrets.token_hex(4)
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
        """Sends rows, but for those that an earlier part of the run has sent already."""
        new = [row for row in rows if row["step"] > self.last.get(kind, -1)]
        self.send(kind, new)
        if new:
            self.last[kind] = new[-1]["step"]
            self.folder.seals.write(self.sent, json.dumps(self.last) + "\n")

    def send(self, kind: Kind, rows: list[Row]) -> None:
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
        self.run.finish(exit_code=0 if status in ("finished", "stopped") else 1)


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


def known_steps(folder: RunFolder, path: Path) -> dict[str, int]:
    """The last step of each table that was sent; nothing of a file that is damaged, which is said and set aside."""
    if not kind_of(path):
        return {}
    try:
        steps = parsed(read_text(path, most=1_000), str(path))
        if not folder.as_written(path) or not isinstance(steps, dict):
            raise CheckpointError(f"{path} is damaged")
        return {kind: step for kind, step in steps.items() if isinstance(step, int)}
    except CheckpointError as error:
        folder.put_aside(path, f"{error}; rows since the checkpoint are sent again")
        return {}


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
