"""Faults, and how rollax answers them: a command, its exit code, its lines, and a verdict on the whole."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import subprocess
import threading
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from process_tools import HANGING, rollax, surroundings
from safetensors.numpy import load_file

from rollax.__main__ import main
from rollax.errors import OWN_SOURCE
from rollax.runs import checkpoint
from rollax.runs.folder import RunFolder

Verdict = Literal["answered", "silent", "lost", "hung", "traceback"]
VERDICTS: tuple[Verdict, ...] = ("answered", "silent", "lost", "hung", "traceback")
# A run of a few seconds.  Every way to break something begins with a copy of one.
TINY = [
    *("double", "--preset", "none", "--steps", "800", "--num-envs", "8", "--hidden", "8", "--capacity", "400"),
    *(
        "--batch-size",
        "8",
        "--warm-up-steps",
        "80",
        "--log-steps",
        "160",
        "--eval-steps",
        "400",
        "--eval-episodes",
        "2",
    ),
]


class Answer(NamedTuple):
    """What a command said, and how it ended."""

    code: int | None  # None for one that hung
    out: str
    err: str
    failure: str = ""  # the traceback of what was raised through the command

    @property
    def lines(self) -> list[str]:
        """What it said of the fault."""
        return [line for line in self.err.splitlines() if line.startswith("rollax: ")]

    @property
    def verdict(self) -> Verdict:
        """By what it shows a person: whether something was lost only a test can tell."""
        if self.code is None:
            return "hung"
        if self.failure or "Traceback (most recent call last)" in self.err + self.out:
            return "traceback"
        return "answered" if self.lines else "silent"


class Hung(BaseException):
    """A command that does not end."""


def ask(*arguments: Any, seconds: float = HANGING) -> Answer:
    """The answer of `rollax ARGUMENTS` in this process: what a fault needs no process of its own for."""
    out, err, failure = io.StringIO(), io.StringIO(), ""
    code: int | None = 1
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with within(seconds):
                code = main([str(argument) for argument in arguments])
        except Hung:
            code = None
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            failure = traceback.format_exc()
    return Answer(code, out.getvalue(), err.getvalue(), failure)


def ask_process(*arguments: Any, seconds: float = HANGING, **variables: str) -> Answer:
    """The answer of the command in a process of its own, with these variables around it."""
    try:
        done = subprocess.run(
            rollax(*arguments),
            capture_output=True,
            text=True,
            env=surroundings(**variables),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        shown = [text.decode() if isinstance(text, bytes) else text or "" for text in (error.stdout, error.stderr)]
        return Answer(None, *shown)
    return Answer(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def within(seconds: float) -> Generator[None]:
    """Raises Hung after so many seconds; only the main thread can be told."""

    def give_up(*_: Any) -> None:
        raise Hung

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judge(request: pytest.FixtureRequest, answer: Answer, code: int, *words: str, most: int = 3) -> Answer:
    """Counts the verdict, and demands the right exit code, few lines, and these words in them."""
    verdict: Verdict = answer.verdict
    if verdict == "silent" and code == 0 and not words:
        verdict = "answered"  # nothing had to be said
    note(request, verdict)
    shown = f"{answer}"
    assert verdict == "answered", shown
    assert answer.code == code, shown
    assert len(answer.lines) <= most, shown
    said = " ".join(answer.lines)
    for word in words:
        assert word in said, f"{word!r} is not in: {said}"
    return answer


def note(request: pytest.FixtureRequest, verdict: Verdict) -> None:
    """Counts a verdict; the summary of the tests shows how many there were of each."""
    request.node.user_properties.append(("verdict", verdict))


def ours(function: Any) -> Any:
    """A function that seems to be of the library, so that nobody is blamed for what it raises."""
    function.__code__ = function.__code__.replace(co_filename=str(OWN_SOURCE / "commands" / "failing.py"))
    return function


def copied(run: Path, to: Path) -> Path:
    """A run folder that may be broken."""
    return Path(shutil.copytree(run, to / "run", symlinks=True))


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def hashes_of(run: Path) -> list[str]:
    """Of every member's weights."""
    return [member["params_sha256"] for member in summary_of(run)["members"]]


def contents_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def recast(run: Path, config: dict[str, Any]) -> None:
    """Makes a run folder that of another experiment throughout, as somebody would who knows how it is sealed."""
    RunFolder(run).write_config(config)
    for step in RunFolder(run).checkpoint_steps():
        path = run / "checkpoints" / str(step)
        checkpoint.write(path, load_file(path / checkpoint.ARRAYS), checkpoint.verify(path) | {"config": config})
