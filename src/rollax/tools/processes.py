"""An object in a process of its own: memory, threads, devices and imports are then nobody else's.

`Remote` starts this module as a program, which makes the object and then calls its methods: one JSON object a line
to it, and one back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Self

from rollax.errors import ResourceError
from rollax.settings import find


class Remote:
    """What `maker`, a `package.module:name`, returns for the arguments, made in a new process.

    Arguments and what methods return are plain data.  As a context it ends its process.
    """

    def __init__(self, name: str, maker: str, **arguments: Any) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is closed with the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rollax.tools.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
        )
        try:
            self.tell({"maker": maker, "arguments": arguments})
        except ResourceError:
            self.stop()
            raise

    def ask(self, method: str, **arguments: Any) -> Any:
        """What the method returns.  Raises ResourceError with the process's last words if it has ended."""
        return self.tell({"method": method, "arguments": arguments})

    def tell(self, message: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.errors.seek(0)
            words = [line for line in self.errors.read().splitlines() if line.strip()]
            raise ResourceError(f"{self.name} ended: {words[-1] if words else 'no reason given'}")
        return json.loads(line)

    def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()
        self.errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> None:
    # What libraries print must not come between the answers: it goes to the errors.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.loads(sys.stdin.readline())
    made = find("maker", order["maker"])(**order["arguments"])
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        call = json.loads(line)
        print(json.dumps(getattr(made, call["method"])(**call["arguments"])), file=answers)


if __name__ == "__main__":
    main()
