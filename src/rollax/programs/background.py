"""What a process is, and work in threads that it does not wait for when it must end: above all the compiler's."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
WORKERS = 4
_started: set[Future[Any]] = set()
_abandoned: list[bool] = []
_command: list[bool] = []
UNWRITTEN = 120  # the exit code of Python where what was printed cannot be written


@contextmanager
def crew() -> Generator[Callable[..., Future[Any]]]:
    """A `submit(function, *arguments)` for work side by side, which may outlast the context.

    Where something is raised in the context, what has not begun is given up, and what has is left alone.
    """
    pool = ThreadPoolExecutor(max_workers=WORKERS)

    def submit(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = pool.submit(function, *arguments)
        _started.add(future)
        future.add_done_callback(_started.discard)
        return future

    try:
        yield submit
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown(wait=False)


def beside(function: Callable[..., T], *arguments: Any) -> T:
    """What the function returns.  It runs in a thread, so that a signal can be heard in the one that waits."""
    with crew() as submit:
        return submit(function, *arguments).result()


def abandon() -> None:
    """Something is half done that cannot be brought to an end: the process must leave it as it is."""
    _abandoned.append(True)


def begin_command() -> None:
    """Says that this process is a command and nothing else: nothing of the library has been changed in it.

    XLA's own log is off, as of "constant folding" that takes long, unless the user has set its level.  What fails is
    an exception in any case.  Comes before JAX is imported.
    """
    _command.append(True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def is_command() -> bool:
    """Whether that was said."""
    return bool(_command)


def leave(code: int) -> NoReturn:
    """Ends the process at once, after what was to be done at its exit.

    Python would wait for threads that nobody needs any more, and then take everything apart piece by piece, which takes
    JAX half a second.  Where something is half done, nothing else is done.
    """
    try:
        if not (_started or _abandoned):
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or UNWRITTEN
    os._exit(code)
