"""Signals that end a run: heard between two chunks, or at once where nothing is lost by it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax

from rollax.errors import INTERRUPTED, PREEMPTED, warn
from rollax.programs import cluster
from rollax.programs.background import is_command

ENDING = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 5.0  # that somebody outside has to answer after a signal
AGAIN_SECONDS = 0.5  # after which what is to be given up at once is interrupted again
PATIENCE_SECONDS = 7.0  # that a compiled program has to return after a signal


class Heard(BaseException):
    """A signal, raised in the middle of something that is given up for it: nobody on the way takes it for an error."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Ear:
    """What has been heard, and what may be given up for it."""

    def __init__(self) -> None:
        self.caught: list[int] = []
        self.impatient = False  # what is done now is given up at once
        self.grace: float | None = None  # or after so many seconds
        self.alarm: threading.Timer | None = None
        self.overdue = False  # that time is up
        self.reminding = threading.Lock()  # held by who sends a signal again
        self.noted = threading.Event()  # Python has told of a signal: the main thread is not lost in a compiled program
        self.leave: Callable[[int], None] | None = None  # what ends the process where it is

    @property
    def first(self) -> int:
        """The first signal that was caught; 0 for none."""
        return self.caught[0] if self.caught else 0

    def note(self, number: int, _: Any = None) -> None:
        """A signal arrives.  A second Ctrl-C ends at once."""
        self.noted.set()
        if self.overdue and number == signal.SIGTERM:
            if self.waiting:
                raise Heard(self.first)
            return
        if self.caught and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught.append(number)
        name = signal.Signals(number).name
        if self.impatient:
            warn(f"{name}: stopping ...")
            self.set_alarm(AGAIN_SECONDS)
            raise Heard(self.first)
        warn(f"{name}: saving after the running chunk ...")
        if self.grace is not None and self.alarm is None:
            self.set_alarm(self.grace)

    @property
    def waiting(self) -> bool:
        """Whether something is being done that is given up for a signal."""
        return self.impatient or self.grace is not None

    def set_alarm(self, seconds: float) -> None:
        """Calls `remind` after so many seconds."""
        self.alarm = threading.Timer(seconds, self.remind)
        self.alarm.daemon = True
        self.alarm.start()

    def remind(self) -> None:
        """Wakes the main thread, if it still waits, and goes on until it does not.

        Once is not enough: what is raised while Python runs a finalizer or a callback of a weak reference, as JAX has
        many, is printed and forgotten.
        """
        with self.reminding:
            if self.waiting:
                self.overdue = True
                self.set_alarm(AGAIN_SECONDS)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def silence_alarm(self) -> None:
        """Nothing is waited for any more: after this no signal is sent again."""
        with self.reminding:
            if self.alarm is not None:
                self.alarm.cancel()
                self.alarm = None

    @contextmanager
    def at_once(self) -> Generator[None]:
        """What is done in it is given up when a signal arrives: `Heard` is raised.

        Several processes must make the same calls, so one of them alone gives up nothing.
        """
        if jax.process_count() > 1:
            yield
            return
        self.impatient = True
        try:
            if self.caught:
                raise Heard(self.first)
            yield
        finally:
            self.impatient = False
            self.silence_alarm()

    @contextmanager
    def within(self, seconds: float) -> Generator[None]:
        """What is done in it is given up so many seconds after a signal has arrived."""
        self.grace = seconds
        try:
            yield
        finally:
            self.grace = None
            self.silence_alarm()

    @contextmanager
    def or_leave(self, leave: Callable[[int], None]) -> Generator[None]:
        """What is done in it may be a compiled program that never returns, as that of an endless loop.

        Python tells of a signal only between two of its own steps, so where such a program keeps the main thread,
        `leave(number)` is called in another thread, some seconds after the signal.  It must not return.  One of
        several processes waits for the others, and leaves nothing by itself.
        """
        if jax.process_count() > 1:
            yield
            return
        self.leave = leave
        try:
            yield
        finally:
            self.leave = None

    def overhear(self, pipe: int) -> None:
        """Reads signals from where the system writes them at once, and leaves where nobody is told of them."""
        while number := os.read(pipe, 1):
            while number[0] in ENDING and not self.noted.wait(PATIENCE_SECONDS):
                if self.leave is not None:
                    self.leave(number[0])
        os.close(pipe)

    def together(self) -> None:
        """Raises `Heard` if any process has heard a signal.  All must ask."""
        (heard,) = cluster.agree(self.first)
        if heard:
            raise Heard(int(heard))


@contextmanager
def signals() -> Generator[Ear]:
    """Listens for SIGTERM and Ctrl-C."""
    ear = Ear()
    if threading.current_thread() is not threading.main_thread():
        yield ear  # only the main thread may listen
        return
    before = {number: signal.signal(number, ear.note) for number in ENDING}
    try:
        with overheard(ear) if is_command() else nullcontext():
            yield ear
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def overheard(ear: Ear) -> Generator[None]:
    """Lets a thread hear the signals too.  Only for a command: a process of the user's is not ours to end."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    previous = signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    threading.Thread(target=ear.overhear, args=(out,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        ear.noted.set()
        os.close(into)  # the thread reads the end of it, and ends


def exit_code(number: int) -> int:
    """What a run that a signal has ended returns."""
    return PREEMPTED if number == signal.SIGTERM else INTERRUPTED
