"""What every way of running a population has in common: before it is compiled, and once it is."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, Learner, own_axes
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.programs.evaluate import Best, Evaluation, nothing
from rollax.programs.loop import Loop, TrainState
from rollax.programs.shelf import Shelf
from rollax.tracing import fetch
from rollax.types import Array, Key

LOG_ROWS = 64  # log windows that one call of a compiled program can finish


class Schedule(NamedTuple):
    """When things happen, in iterations."""

    total: int = 0
    warm_up: int = 0  # the first so many collect and do not learn
    log: int = 1  # between two rows of the log
    evaluation: int = 1  # between two evaluations


class Window(NamedTuple):
    """A row of the log: sums over a stretch of iterations."""

    end: int  # the iteration that it ends with
    step: int  # environment steps of each member by then
    sums: np.ndarray  # [members, columns]: `WINDOW_COLUMNS`, and then the agent's metrics
    remarks: dict[str, Any] = {}  # the program's own columns


class Chunk(NamedTuple):
    """How far a run has been advanced."""

    state: Any
    windows: list[Window]  # that ended on the way
    reached: int  # the iteration at which it stands


class Running(ABC):
    """A compiled run.  `advance_to` consumes the state that it is given."""

    compile_seconds: float  # how long one had to wait for it
    memory_bytes: int  # the state, and what the largest of its programs needs beside it

    @abstractmethod
    def begin(self, keys: Key, hparams: Any) -> tuple[Any, Best]:
        """The state at the start, and the best weights, of which none has been evaluated."""

    @abstractmethod
    def advance_to(self, state: Any, stop: int) -> Chunk:
        """Goes on to an iteration: warms up and then learns.  A run with actors may stand elsewhere afterwards."""

    @abstractmethod
    def evaluate(self, state: Any, best: Best, between: Callable[[], None] = nothing) -> tuple[Evaluation, Best]:
        """Plays greedily with randomness that training never draws, and keeps the better weights.

        Whatever is raised on the way, by `between` or a signal, leaves the state as it is.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Ends what runs outside."""


@dataclass(frozen=True)
class Program(ABC):
    """A population's run before it is compiled."""

    first_chunk: ClassVar[int] = 32  # iterations after which to look, before it is known how long one takes
    searchable: ClassVar[bool] = True  # members can be dropped, copied and given other numbers between two chunks
    on_grid: ClassVar[bool] = True  # rows of the log lie on multiples of `log_steps`
    opening: ClassVar[str] = ""  # what takes long before the first steps, to say so
    waits_for_others: ClassVar[bool] = False  # in Python, for what is outside and may hang
    one_device: ClassVar[str] = ""  # why it runs on one device only; empty where it does not
    columns: ClassVar[tuple[str, ...]] = ()  # of metrics.csv, beside the agent's metrics

    loop: Loop
    evaluator: Any  # who plays greedily, where the environments are
    block: int = 1  # iterations that only run together: every stop must be a multiple of it away
    schedule: Schedule = field(default_factory=Schedule)

    @classmethod
    def problems(cls, experiment: Experiment) -> list[str]:
        """What of an experiment this way of running cannot do, each with its fix."""
        return []

    @property
    def missing(self) -> list[str]:
        """What it needs to be trained and is not installed, each with its fix.  Who only plays needs none of it."""
        return []

    @classmethod
    @abstractmethod
    def make(cls, experiment: Experiment, agent: Agent, task: Any, block: int, schedule: Schedule) -> Program:
        """The program of an experiment, with the agent of all players in its environment."""

    @property
    def agent(self) -> Agent:
        return self.loop.agent

    @property
    def task(self) -> Any:
        return self.loop.task

    def init(self, keys: Key, hparams: Any) -> tuple[Any, Best]:
        """A population: keys `[members]`, and hyper-parameters with the same leading axis."""
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), (keys, hparams))
        axes = population_axes(jax.eval_shape(self.loop.init, *one))
        state = jax.vmap(self.loop.init, out_axes=axes)(keys, hparams)
        return state, no_best(state.learner, len(keys))

    def shapes(self, keys: Key, hparams: Any) -> tuple[Any, Best]:
        """The state of the run as shapes, before anything is allocated."""
        return jax.eval_shape(self.init, keys, hparams)

    @abstractmethod
    def compile(self, keys: Key, hparams: Any) -> Running:
        """The run, ready to be begun or resumed."""

    def uncompiled(self, keys: Key, hparams: Any) -> dict[str, Any]:
        """The programs by name, nothing traced yet.  Raises ConfigError where there is no program of a whole chunk."""
        raise ConfigError(
            "there is no program of a whole chunk that could be shown, as the environments run outside of it; "
            "`rollax inspect --memory --params` shows what there is"
        )

    def remarks(self, members: int, resumed: bool) -> list[str]:
        """What a person should know of how it runs."""
        return []

    def restoring(self) -> Any:
        """A context in which a saved state is read."""
        return nullcontext()

    def placed(self, state: Any, best: Best) -> tuple[Any, Best]:
        """What has been read, where it belongs."""
        return state, best

    def on_shelf(self, shelf: Shelf) -> Program:
        """The same, whose compiled programs are kept there, if it can keep them."""
        return self

    def far_bytes(self, shapes: tuple[Any, Best]) -> int:
        """How much of the state is in the machine's memory and not on the learner's device."""
        return 0

    def state_bytes(self, shapes: tuple[Any, Best]) -> int:
        """Bytes of the state; on one of several devices that have a memory each, its share."""
        return nbytes(shapes)

    def temporary_bytes(self, keys: Key, hparams: Any) -> dict[str, int]:
        """Bytes that each program will need beside the state while it runs, before it is compiled."""
        return {}

    def other_bytes(self) -> int:
        """Bytes that other processes of the run will take on this machine."""
        return 0

    def with_weights(self, learner: Learner, params: Any) -> Learner:
        """Learners that start from these weights `[members, ...]`."""
        # Compiled, so that each weight that is used twice gets two buffers, as donation needs.
        return jax.jit(jax.vmap(self.agent.with_weights))(learner, params)

    @abstractmethod
    def play(self, learner: Learner, keys: Key) -> Evaluation:
        """An evaluation with these keys `[members]`, outside a run."""


def replay_problems(experiment: Experiment) -> list[str]:
    """Whether the replay may be where it is wanted, with environments in JAX."""
    if experiment.loop.replay_on == "device":
        return []
    return ["replay_on=host is for environments outside JAX; leave it out, or see --capacity for a smaller replay"]


def no_best(learner: Learner, members: int) -> Best:
    """Nothing has been evaluated; the weights are those of the learners."""
    return Best(jnp.full((members,), -jnp.inf), jax.tree.map(jnp.copy, learner.params))


def advance_in_chunks(
    chunk: Callable[..., tuple[TrainState, Array]], state: TrainState, stop: int, schedule: Schedule, unit: int
) -> Chunk:
    """Goes on to an iteration with calls of `chunk(state, stop, log_iterations, learn=...)`.

    Each returns the state and rows `[members, LOG_ROWS, columns]`, of which row `i` is the window that contains
    iteration `(first // log + i) * log`.  The last window of the run ends with the run.
    """
    first, windows = int(state.iteration), []
    while first < stop:
        learn = first >= schedule.warm_up
        last = min(stop, (first // schedule.log + LOG_ROWS) * schedule.log, stop if learn else schedule.warm_up)
        state, rows = chunk(state, np.int32(last), np.int32(schedule.log), learn=learn)
        ends = [(first // schedule.log + index + 1) * schedule.log for index in range(LOG_ROWS)]
        ends = [min(end, schedule.total) if schedule.total else end for end in ends]
        ended = [end for end in dict.fromkeys(ends) if first < end <= last]
        sums = fetch(rows) if ended else jax.block_until_ready(rows)  # a transfer takes as long as many iterations
        windows += [Window(end, end * unit, sums[:, index]) for index, end in enumerate(ended)]
        first = last
    return Chunk(state, windows, stop)


def population_axes(state: TrainState) -> TrainState:
    """For `vmap`: 0 for what each member has of its own, None for the iteration and what `own_axes` shares."""
    own = jax.tree.map(lambda _: 0, state)
    return own._replace(iteration=None, memory=own_axes(state.memory))


@contextmanager
def without_garbage_collection() -> Generator[None]:
    """Tracing makes many objects that stay; looking through all imported modules for garbage takes a fifth of it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def nbytes(tree: Any) -> int:
    """Bytes of all arrays, or shapes, in a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
