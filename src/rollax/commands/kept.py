"""Answers that depend on what is installed alone, kept on disk: they are there at once, without JAX being imported."""

from __future__ import annotations

import hashlib
import importlib.util
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
from rollax.settings import cache_folder, is_own, source_of

HELP = {"-h", "--help", "--help-all"}
LISTING = {"list"}  # commands that always answer the same
MATTERING = ("ale_py", "gymnasium", "gymnax")  # packages that a list depends on
MOST = 200  # answers that are kept; then all are forgotten


def with_kept_answers(command: str, function: str, arguments: Sequence[str], run: Callable[[], int]) -> int:
    """Runs a command; one that lists, or is asked for its help, answers as that function of it did the last time.

    What names a module or a file of the user's is always asked anew.  After its help a command exits.
    """
    helps = bool(HELP.intersection(arguments))
    if not (helps or command in LISTING) or any(is_own(word) or word.startswith("--config") for word in arguments):
        return run()
    width, packages = shutil.get_terminal_size().columns, [installed(module) for module in MATTERING]
    versions = str((rollax.__version__, sys.version, width, packages))
    kept = note_of(command, function, *arguments, versions, "rollax")
    with suppress(OSError):
        if kept.is_file():
            print(kept.read_text(), end="")
            return done(helps)
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            code = run()
    except SystemExit as ended:
        print(said.getvalue(), end="")
        if helps and said.getvalue() and not ended.code:
            keep(kept, said.getvalue())
        raise
    print(said.getvalue(), end="")
    if code == 0:
        keep(kept, said.getvalue())
    return code


def done(helps: bool) -> int:
    """How a command ends that has answered: after its help it exits."""
    if helps:
        raise SystemExit(0)
    return 0


def keep(path: Path, text: str) -> None:
    """Writes an answer down where that is possible, and forgets all of them first where there are too many."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if len(there := list(path.parent.iterdir())) >= MOST:
            for old in there:
                old.unlink(missing_ok=True)
        write_text(path, text)


def note_of(*question: str) -> Path:
    """Where the answer to a question is kept, if there is one; the last word is the package that it was asked of."""
    spec = importlib.util.find_spec(question[-1])
    origin = Path(spec.origin).parent if spec and spec.origin else Path()
    return answers() / hashlib.sha256(repr((question, str(origin), source_of(origin))).encode()).hexdigest()


def answers() -> Path:
    """The folder of all answers; one that cannot be where the user has no home."""
    try:
        return cache_folder() / "answers"
    except RuntimeError:
        return Path(os.devnull) / "answers"
