"""The command: `rollax`, or `python -m rollax`.  What needs JAX is imported once it is known to be needed."""

from __future__ import annotations

import sys
from typing import NoReturn

from rollax import __version__
from rollax.commands.cli import run_command, usage
from rollax.programs.background import begin_command, leave


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"rollax {__version__}")
        return 0
    return run_command(arguments[0], arguments[1:])


def enter() -> NoReturn:
    """The command as a process of its own, which a compiler that nobody waits for does not keep from ending."""
    begin_command()
    code = main()
    leave(code)


if __name__ == "__main__":
    enter()
