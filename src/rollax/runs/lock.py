"""Who may write to a run folder: one process."""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollax.errors import CheckpointError, ConfigError, RollaxError
from rollax.runs.files import sweep
from rollax.runs.folder import RunFolder
from rollax.runs.reader import kind_of, read_text

HOLDER = re.compile(r"process ([0-9]{1,10})(?: on (.+))?")
CLOCK_SECONDS = 10.0  # by which the start of a process and the time of a file may disagree

OWN_FILES = (
    "config.json", "metrics.csv", "evaluations.csv", "summary.json", "hashes.json", "log.jsonl", "wandb-id.txt",
    "wandb-steps.json",
)  # fmt: skip


class Lock:
    """Holds a run folder for this process.  The system gives it up when the process ends, however it ends."""

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.handles: list[int] = []  # the folder, and its file .lock

    def __enter__(self) -> Lock:
        import fcntl

        if not self.folder.writes:
            return self
        path = self.folder.lock
        if kind_of(path) not in ("", "a file"):
            raise CheckpointError(f"{path} is {kind_of(path)}, where a real file must be")
        try:
            # The folder itself, since a file in it can be deleted while it is held; and the file, since some
            # file systems cannot lock a folder.
            self.handles.append(os.open(self.folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self.handles.append(os.open(path, flags, 0o666))
        except OSError as error:
            self.close()
            raise ConfigError(f"run_dir={self.folder.path} cannot be written: {error.strerror}") from error
        folder, file = self.handles
        for handle in (folder, file):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if handle == folder and error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    continue
                holder = os.pread(file, 100, 0).decode("utf-8", "replace").strip() or "another process"
                self.close()
                raise ConfigError(
                    f"run_dir={self.folder.path} is in use by {holder}; wait for it or name another"
                ) from error
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        sweep(self.folder.path, OWN_FILES)
        return self

    def __exit__(self, *_: Any) -> None:
        if len(self.handles) == 2:
            os.ftruncate(self.handles[1], 0)
        self.close()

    def close(self) -> None:
        """Gives up what was opened so far."""
        while self.handles:
            os.close(self.handles.pop())


def is_held(folder: RunFolder) -> bool | None:
    """Whether the process that has written itself into a folder's lock still runs; None for one on another machine.

    Nothing is locked, so that a run which begins meanwhile is not in the way of who asks.
    """
    try:
        holder = HOLDER.fullmatch(read_text(folder.lock, most=300).strip())
        if holder is None:
            return False
        if holder[2] not in (None, socket.gethostname()):
            return None
        return has_run_since(int(holder[1]), os.lstat(folder.lock).st_mtime)
    except (RollaxError, OSError):
        return False


def has_run_since(process: int, moment: float) -> bool:
    """Whether the process of that number runs and began before that moment: numbers are given again."""
    try:
        os.kill(process, 0)
    except PermissionError:
        pass
    except (OSError, OverflowError):
        return False
    with suppress(OSError, ValueError, IndexError):  # where the system has no such files, its word is taken
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if fields[0] in "ZX":  # it has ended, and nobody has asked how
            return False
        running = float(Path("/proc/uptime").read_text().split()[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.time() - running < moment + CLOCK_SECONDS
    return True
