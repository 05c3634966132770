"""Answers that depend on what is installed alone, kept on disk: they are there at once, without JAX being imported."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path

import rollax
from rollax.errors import installed
from rollax.runs.files import write_text
from rollax.settings import cache_folder, is_own

HELP = {"-h", "--help", "--help-all"}
LISTING = {"list"}  # commands that always answer the same
MOST = 200  # answers that are kept; then all are forgotten


def with_kept_answers(command: str, arguments: Sequence[str], run: Callable[[], int]) -> int:
    """Runs a command; one that lists, or is asked for its help, answers as it did the last time.

    What names a module or a file of the user's is always asked anew.
    """
    of_the_user = any(is_own(word) or word.startswith("--config") for word in arguments)
    if of_the_user or not (command in LISTING or HELP.intersection(arguments)):
        return run()
    try:
        kept = cache_folder() / "answers" / digest(command, arguments)
        if kept.is_file():
            print(kept.read_text(), end="")
            return 0
    except (OSError, RuntimeError):  # as where the user has no home
        return run()
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            code = run()
    except SystemExit as ended:  # as after its help
        code = ended.code if isinstance(ended.code, int) else 0
    print(said.getvalue(), end="")
    if code == 0:
        with suppress(OSError):
            keep(kept, said.getvalue())
    return code


def keep(path: Path, text: str) -> None:
    """Writes an answer down, and forgets all of them first where there are too many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(there := list(path.parent.iterdir())) >= MOST:
        for old in there:
            old.unlink(missing_ok=True)
    write_text(path, text)


def digest(command: str, arguments: Sequence[str]) -> str:
    """Of all that an answer depends on: the question, the terminal's width, every file of the source, and packages."""
    source = Path(rollax.__file__).parent
    files = [(str(path), stat.st_mtime_ns, stat.st_size) for path in source.rglob("*.py") if (stat := os.stat(path))]
    width = shutil.get_terminal_size().columns
    packages = [installed(module) for module in ("ale_py", "gymnasium", "gymnax")]
    asked = (rollax.__version__, sys.version, packages, command, list(arguments), width, sorted(files))
    return hashlib.sha256(repr(asked).encode()).hexdigest()
