"""Who may write to a run folder: one process."""

from __future__ import annotations

import errno
import os
from typing import Any

from rollax.errors import CheckpointError, ConfigError
from rollax.runs.files import sweep
from rollax.runs.folder import RunFolder
from rollax.runs.reader import kind_of

OWN_FILES = (
    "config.json", "metrics.csv", "evaluations.csv", "summary.json", "hashes.json", "log.jsonl", "wandb-id.txt",
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
        os.pwrite(file, f"process {os.getpid()}".encode(), 0)
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
