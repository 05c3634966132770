"""When checkpoints are written, and by whom: small ones by the run itself, large ones beside it from a copy."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from rollax.programs.machine import host_bytes, own_cores
from rollax.runs import checkpoint
from rollax.runs.folder import RunFolder

SHARE = 0.02  # of a run's time that checkpoints may cost
USUAL_RATE = 2**30  # bytes of a checkpoint for each second by which it delays the run
LARGE = 64 * 2**20  # bytes from which on a checkpoint is written beside the run


class Saver:
    """Writes the checkpoints of a run, one at a time.

    What failed beside the run is raised at the next question.  With several processes all must call `save`; the first
    of them writes.
    """

    def __init__(self, folder: RunFolder, seconds: float, keep: int, size: int = 0):
        """Of a run whose state has so many bytes, which tells what the first will cost about."""
        self.folder, self.keep = folder, keep
        self.seconds = seconds  # between checkpoints, at the least; 0 writes one whenever it is asked
        self.saved_step: int | None = None  # of the newest checkpoint that is complete
        self.cost = size / USUAL_RATE  # of the last one, in seconds by which the run ended later
        self.ended = time.monotonic()
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def start(self) -> None:
        """The run begins now: what came before is none of its time."""
        self.ended = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time for another, and none is under way.  The next waits until the last one's cost is small."""
        self.look()
        if not self.folder.writes or self.thread is not None:
            return False
        least = max(self.seconds, self.cost / SHARE) if self.seconds else 0.0
        return time.monotonic() - self.ended >= least

    def save(self, step: int, tree: Any, meta: dict[str, Any], *, wait: bool) -> None:
        """Writes a checkpoint, beside the run if it is large, there is room for a copy, and nobody waits for it."""
        self.wait()
        began = time.monotonic()
        arrays = checkpoint.flatten(tree, keep=self.folder.writes)
        if not self.folder.writes:
            self.saved_step = step
            return
        size = sum(array.nbytes for array in arrays.values())
        if wait or size < LARGE or size > host_bytes() / 2:
            self.folder.write_checkpoint(step, arrays, meta, self.keep)
            self.saved_step, self.ended = step, time.monotonic()
            self.cost = self.ended - began
            return
        # The next chunk overwrites its arguments in place.
        arrays = {name: array if array.flags.owndata else array.copy() for name, array in arrays.items()}
        copied = time.monotonic() - began
        self.thread = threading.Thread(target=self.write, args=(step, arrays, meta, copied), daemon=True)
        self.thread.start()

    def write(self, step: int, arrays: dict[str, np.ndarray], meta: dict[str, Any], copied: float) -> None:
        """Beside the run: what it computes here, the run's cores do not."""
        try:
            self.folder.write_checkpoint(step, arrays, meta, self.keep)
            self.cost = copied + time.thread_time() / own_cores()
            self.saved_step = step
        except BaseException as error:
            self.failure = error
        self.ended = time.monotonic()

    def look(self) -> None:
        """Raises what went wrong beside the run."""
        if self.thread is not None and not self.thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Until nothing is under way."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
