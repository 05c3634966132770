"""Work in a process of its own: one JSON object a line to it, and one back.

Memory, threads, devices and imports are then nobody else's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, TextIO

from rollax.errors import ResourceError


class Child:
    """A process that runs a module of the library and answers every line with a line."""

    def __init__(self, module: str, name: str) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is closed with the child
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
        )

    def tell(self, message: dict[str, Any]) -> Any:
        """What it answers.  Raises ResourceError with its last words if it does not."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            last = [*(line for line in self.errors.read().splitlines() if line.strip()), "no reason given"]
            said = last[-2] if last[-1] == "no reason given" and len(last) > 1 else last[-1]
            raise ResourceError(f"{self.name} ended: {said}")
        return json.loads(line)

    def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def answers() -> TextIO:
    """In a child: where its answers go.  What libraries print, which must not come between them, goes to the errors."""
    kept = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return kept
