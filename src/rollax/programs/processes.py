"""All processes of a run with actors but the learner's, as Ray starts and watches them."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

import jax
import numpy as np

from rollax.agents.dqn import DQNConfig
from rollax.errors import ResourceError, demand, warn
from rollax.experiment.experiment import Experiment
from rollax.experiment.tree import to_json
from rollax.programs.actors import Actor, Board, Shard, remote

MOMENT = 0.2  # seconds that one waits for an answer before looking elsewhere


class Fleet:
    """All processes but the learner's."""

    def __init__(self, experiment: Experiment, start: int):
        """Starts them, for a run that goes on after so many gradient steps."""
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what it cannot do is raised, and said once
        demand("ray", f"actors={experiment.loop.actors}")
        import ray

        self.ray, loop, choices = ray, experiment.loop, cast(DQNConfig, experiment.choices)
        with warnings.catch_warnings(), listening_as_before():
            warnings.filterwarnings("ignore", message="os.fork")  # Ray's processes are programs of their own at once
            start_ray(ray)
        own = {"runtime_env": {"env_vars": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}}}
        capacity = choices.replay.capacity // loop.replay_shards
        exponent = float(experiment.hparams.priority_exponent)
        self.board = remote(Board, **own).remote(start)
        self.shards = [
            remote(Shard, **own).remote(capacity, exponent, [experiment.seed, start, number])
            for number in range(loop.replay_shards)
        ]
        config = to_json(experiment)
        self.actors = [
            (remote(Actor, **own).remote(config, number), self.shards[number % loop.replay_shards])
            for number in range(loop.actors)
        ]
        self.running = [actor.run.remote(self.board, shard) for actor, shard in self.actors]
        self.lost = 0
        self.published: Any = None

    def publish(self, version: int, params: Any) -> None:
        """Puts weights on the board, once the last have arrived there; counts the actors that had to begin again."""
        if self.published is not None:
            again = max(0, self.ray.get(self.published) - len(self.actors))
            if again > self.lost:
                warn(f"an actor was lost, {again} so far; another has taken its place")
            self.lost = max(self.lost, again)
        self.published = self.board.publish.remote(version, jax.tree.map(np.asarray, params))

    def ready(self, future: Any) -> bool:
        """Whether something that was asked for is there, after a moment."""
        return bool(self.ray.wait([future], timeout=MOMENT)[0])

    def look_after(self) -> None:
        """Raises what an actor could not cope with: one that is lost comes back, one that fails does not."""
        ended, _ = self.ray.wait(self.running, timeout=0)
        self.ray.get(ended)

    def close(self) -> None:
        self.ray.shutdown()


def start_ray(ray: Any) -> None:
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # it has no class of its own for this
        reason = next(iter(str(error).splitlines()), "")
        raise ResourceError(f"Ray cannot start, which runs the actors: {type(error).__name__}: {reason}") from error


@contextmanager
def listening_as_before() -> Generator[None]:
    """Within it Ray begins to listen to signals; within it and afterwards they are heard by who heard them before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from ray._private import utils

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def pass_on(number: int, frame: Any) -> None:
        signal.alarm(0)  # with which Ray's own handler, below Python's, would abort the process after three seconds
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, handler)
            signal.raise_signal(number)

    with mock.patch.object(utils, "set_sigterm_handler"):  # Ray's would end the process, from the first moment on
        for number in before:
            signal.signal(number, pass_on)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
