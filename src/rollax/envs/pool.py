"""Environments of Gymnasium, each in a process of its own: what ends unbidden is named, and started anew."""

from __future__ import annotations

import atexit
import multiprocessing
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, NamedTuple

import numpy as np

from rollax.envs.examined import Facts, Leaf
from rollax.envs.host import CLOSING_SECONDS, OPENING_SECONDS, HostStep
from rollax.envs.worker import HEARD_BY_ALL, Raised, Shared, serve
from rollax.errors import EnvError, RollaxError, warn

STARTING_SECONDS = 300.0  # for a process to start, in which nothing of the user's runs
KILLED_SECONDS = 5.0  # for one that was killed to be gone


@dataclass
class Restarts:
    """How often workers may be started anew, over all batches of a run, and how often they were."""

    limit: int
    done: int = 0


class Failure(NamedTuple):
    """Why a worker has not done what it was asked."""

    reason: str


class Worker:
    """A process with one environment, and the pipe to it."""

    def __init__(self, name: str, number: int, bounded: bool, shared: tuple[Shared, Shared] | None):
        context = multiprocessing.get_context("spawn")  # a fork of a process with JAX's threads would hang
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, name, number, bounded, shared)
        self.process = context.Process(target=serve, args=arguments, daemon=True, name=f"{name} {number}")
        resource_tracker.ensure_running()  # to start it would let signals through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD_BY_ALL)  # until the worker has learnt to ignore them
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # so that the pipe ends with the process
        self.poll = select.poll()
        self.poll.register(self.pipe.fileno(), select.POLLIN)

    def ask(self, call: str, argument: Any = None) -> None:
        with suppress(OSError):  # of one that is gone, as its answer will show
            self.pipe.send((call, argument))

    def is_ready(self, seconds: float) -> bool:
        """Whether there is an answer, or the end of its process, within so many seconds."""
        return bool(self.poll.poll(max(0.0, seconds) * 1_000))

    def answer(self, call: str) -> Any:
        """What it has answered; a Failure for the end of its process, or for what its environment raised."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            return Failure(f"{self.ending()} in {call}")
        return Failure(f"{answer.line}, in {call}") if isinstance(answer, Raised) else answer

    def ending(self) -> str:
        """How its process ended."""
        self.process.join(KILLED_SECONDS)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        if code >= 0:
            return f"ended its process with exit code {code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"was killed by {names.get(-code, f'signal {-code}')}"

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self.pipe.close()
        self.process.kill()
        self.process.join(KILLED_SECONDS)


def gather(workers: dict[int, Worker], call: str, seconds: float) -> dict[int, Any]:
    """What each of these workers answers to a call; a Failure for those that do not within so many seconds."""
    end = time.monotonic() + seconds
    late = Failure(f"has not answered for {seconds:g} s in {call}; if it is only slow, raise --env-seconds")
    # One after the other: whoever is not waited for yet has its answer ready by then, and wakes nobody.
    return {
        number: worker.answer(call) if worker.is_ready(end - time.monotonic()) else late
        for number, worker in workers.items()
    }


def facts_in_a_process(name: str, seconds: float) -> Facts:
    """What an environment says of itself, made in a process that it may end."""
    worker = Worker(name, 0, True, None)
    try:
        for call in ("", "make", "facts", "close"):
            limit = seconds + OPENING_SECONDS if call else STARTING_SECONDS
            if call:
                worker.ask(call)
            answer = gather({0: worker}, call or "its start", limit)[0]
            if isinstance(answer, RollaxError):
                raise answer
            if isinstance(answer, Failure):
                raise EnvError(f"{name}: {answer.reason}")
            if call == "facts":
                facts = answer
    finally:
        worker.end()
    return facts


class Pool:
    """A batch of environments, each in a process of its own.

    One that ends, raises or hangs is started anew, and its episode lost, as often as `restarts` allows; then EnvError.
    """

    def __init__(
        self,
        name: str,
        count: int,
        leaves: list[Leaf],
        tree: Callable[[list[np.ndarray]], Any],
        actions: Callable[[np.ndarray], list],
        seconds: float,
        restarts: Restarts,
        bounded: bool,
    ):
        self.name, self.tree, self.actions, self.bounded = name, tree, actions, bounded
        self.seconds, self.opening = seconds, seconds + count * OPENING_SECONDS
        self.restarts = restarts
        self.broken = False  # it has been given up
        context = multiprocessing.get_context("spawn")
        self.shared = Shared(context, leaves, count), Shared(context, leaves, count)
        self.shown, self.last = (store.arrays() for store in self.shared)
        self.seeds = np.zeros(count, np.int64)
        self.workers: dict[int, Worker] = {}
        atexit.register(self.end)  # before multiprocessing waits for them
        try:
            for number in range(count):
                self.workers[number] = self.start(number)
            for number, answer in self.prepare(self.workers).items():
                if isinstance(answer, Failure):
                    raise EnvError(f"{name}: environment {number} {answer.reason}")
        except BaseException:
            self.end()
            raise

    def start(self, number: int) -> Worker:
        return Worker(self.name, number, self.bounded, self.shared)

    def prepare(self, workers: dict[int, Worker]) -> dict[int, Any]:
        """Makes the environments of workers that have just been started."""
        started = gather(workers, "its start", STARTING_SECONDS)
        ready = {number: worker for number, worker in workers.items() if not isinstance(started[number], Failure)}
        return started | self.call("make", dict.fromkeys(ready), self.opening, workers)

    def call(
        self, call: str, arguments: dict[int, Any], seconds: float, workers: dict[int, Worker] | None = None
    ) -> dict[int, Any]:
        """What workers answer, each to an argument of its own.  Raises what is no failure but a breach of protocol."""
        asked = {number: (workers or self.workers)[number] for number in arguments}
        for number, worker in asked.items():
            worker.ask(call, arguments[number])
        answers = gather(asked, call, seconds)
        for answer in answers.values():
            if isinstance(answer, RollaxError):
                self.broken = True
                raise answer
        return answers

    def reset(self, seeds: np.ndarray) -> Any:
        self.seeds = seeds.astype(np.int64)
        answers = self.call("reset", {number: int(seed) for number, seed in enumerate(seeds)}, self.opening)
        for number, answer in answers.items():
            if isinstance(answer, Failure):
                self.revive(number, answer.reason)
        return self.tree([rows.copy() for rows in self.shown])

    def step(self, action: np.ndarray) -> HostStep:
        answers = self.call("step", dict(enumerate(self.actions(action))), self.seconds)
        reward = np.zeros(len(answers), np.float32)
        terminated, truncated, lost = (np.zeros(len(answers), bool) for _ in range(3))
        for number, answer in answers.items():
            if isinstance(answer, Failure):
                self.revive(number, answer.reason)
                lost[number] = True
            else:
                reward[number], terminated[number], truncated[number] = answer
        ended = terminated | truncated
        shown = self.tree([rows.copy() for rows in self.shown])
        last = self.tree([rows.copy() for rows in self.last]) if ended.any() else None
        return HostStep(shown, reward, terminated, truncated, ended, last, lost if lost.any() else None)

    def revive(self, number: int, reason: str) -> None:
        """Starts a worker anew, at the beginning of an episode.  Raises EnvError where that was done often enough."""
        while True:
            what = f"{self.name}: environment {number} {reason}"
            self.workers[number].end()
            limit = self.restarts.limit
            if self.restarts.done >= limit:
                self.broken = True
                raise EnvError(f"{what}; --env-restarts allows {limit} restart{'s' if limit != 1 else ''} in all")
            self.restarts.done += 1
            warn(f"{what}; its episode is discarded, and it is restarted ({self.restarts.done} of {limit})")
            self.workers[number] = self.start(number)
            alone = {number: self.workers[number]}
            seed = int(np.random.SeedSequence([int(self.seeds[number]), self.restarts.done]).generate_state(1)[0] >> 1)
            answer = self.prepare(alone)[number]
            if not isinstance(answer, Failure):
                answer = self.call("reset", {number: seed}, self.opening)[number]
            if not isinstance(answer, Failure):
                return
            reason = answer.reason

    def close(self) -> None:
        """Closes all environments; a process that does not end is killed, and so are those of a broken batch."""
        if self.broken:
            self.end()
            return
        try:
            answers = self.call("close", dict.fromkeys(self.workers), min(self.seconds, CLOSING_SECONDS))
            failed = {number: answer for number, answer in answers.items() if isinstance(answer, Failure)}
            for number, failure in sorted(failed.items())[:1]:
                more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
                warn(f"{self.name}: environment {number} {failure.reason}{more}; it is left alone")
        finally:
            self.end()

    def end(self) -> None:
        for worker in self.workers.values():
            worker.end()
        atexit.unregister(self.end)
