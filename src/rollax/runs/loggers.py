"""Where rows go beside the run folder's tables: JSON lines, TensorBoard, Weights & Biases, a function of one's own.

Nothing here can change a run: a logger that fails causes one warning and is not called again.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rollax.errors import ConfigError, missing, told, users_line, warn
from rollax.runs.files import digests, write_text
from rollax.runs.folder import RunFolder
from rollax.runs.rows import json_step
from rollax.runs.trackers import Kind, Row, TensorBoard, WeightsAndBiases

# Takes a kind, and rows as in metrics.csv ("train") or evaluations.csv ("eval"); what it returns may be `STOP`.
OnRows = Callable[[str, list[Row]], Any]
NEEDED = {"tensorboard": "tensorboardX", "wandb": "wandb"}


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

    def __init__(
        self,
        names: Iterable[str],
        folder: RunFolder,
        config: Row,
        step: int,
        own: OnRows | None = None,
        members: Sequence[Row] = (),
    ):
        """`step` is where the run goes on: what a log holds from later is taken back where it can be.

        `members` are the settings of each by their names, all of them single values.
        """
        self.running: dict[str, Logger] = {}
        if not folder.writes:  # of several processes one tells
            return
        if own is not None:
            self.running["on_rows"] = OwnFunction(own)
        if lines := problems(names):
            raise ConfigError(lines)
        for name in names:
            self.attempt(
                name, lambda name=name: self.running.__setitem__(name, KINDS[name](folder, config, step, members))
            )

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

    def show(self, film: Callable[[], bytes | None], step: int) -> None:
        """A film of an episode, a GIF, for those that show films; it is made only for these."""
        shows = self.running.get("tensorboard")
        if isinstance(shows, TensorBoard):
            try:
                picture = film()
            except Exception as error:  # an environment's, or of who draws
                warn(f"tensorboard gets no film: {users_line(error) or told(error)}")
            else:
                if picture is not None:
                    self.attempt("tensorboard", lambda: shows.show(picture, step))

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

    def __init__(self, folder: RunFolder, config: Row, step: int, members: Sequence[Row]):
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


KINDS: dict[str, Callable[[RunFolder, Row, int, Sequence[Row]], Logger]] = {
    "jsonl": JsonLines,
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}
