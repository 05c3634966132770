"""A process with one environment of Gymnasium: it does what it is told through a pipe.  It does not need JAX."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np

from rollax.envs.examined import Examined, Leaf, put, settle
from rollax.errors import RollaxError, fails

# Signals that a terminal or a scheduler sends to all processes.  What follows is for the run to decide.
HEARD_BY_ALL = (signal.SIGINT, signal.SIGTERM)


class Raised(NamedTuple):
    """What the environment raised, in words."""

    line: str


class Shared:
    """Arrays `[N, ...]` in memory that processes share: what environments show, each in a row of its own."""

    def __init__(self, context: Any, leaves: list[Leaf], count: int):
        self.outlines = [((count, *leaf.shape), leaf.kept) for leaf in leaves]
        sizes = [int(np.prod(shape)) * kept.itemsize for shape, kept in self.outlines]
        self.memory = [context.RawArray("b", max(size, 1)) for size in sizes]

    def arrays(self) -> list[np.ndarray]:
        return [
            np.frombuffer(memory, kept, int(np.prod(shape))).reshape(shape)
            for memory, (shape, kept) in zip(self.memory, self.outlines, strict=True)
        ]


def serve(pipe: Connection, name: str, number: int, bounded: bool, shared: tuple[Shared, Shared] | None) -> None:
    """Answers calls until it is told to close, or whoever calls is gone: that is when no process may stay behind.

    A call is answered by what it returns, by `Raised`, or by an error of ours.
    """
    for one in HEARD_BY_ALL:
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD_BY_ALL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    shown, last = (store.arrays() for store in shared) if shared else ([], [])
    pipe.send("started")
    env: Any = None

    def tell(store: list[np.ndarray], leaves: list[np.ndarray], call: str) -> None:
        put(store, number, leaves)
        settle(env.leaves, [rows[number : number + 1] for rows in store], call, bounded)

    def answer(call: str, argument: Any) -> Any:
        nonlocal env
        if call == "make":
            env = Examined(name)
            return None
        if call == "facts":
            return env.facts()
        if call == "close":
            return env.close() if env is not None else None
        if call == "reset":
            tell(shown, env.reset(argument), call)
            return None
        outcome = env.step(argument)
        tell(shown, outcome.shown, call)
        if outcome.last is not None:
            tell(last, outcome.last, call)
        return outcome.reward, outcome.terminated, outcome.truncated

    call = ""
    while call != "close":
        try:
            call, argument = pipe.recv()
            result = answer(call, argument)
        except EOFError:
            break
        except RollaxError as error:
            result = type(error)(str(error))  # without what it was raised from, which may not travel
        except BaseException as error:  # whatever it is, it must reach who asked
            result = Raised(fails(error))
        try:
            pipe.send(result)
        except (BrokenPipeError, ConnectionResetError):  # who asked was killed meanwhile
            break


def end_with_parent() -> None:
    """Ends this process with the one that started it, whatever the environment is doing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
