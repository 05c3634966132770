"""What every way of running a population has in common: its state, and the programs that advance it."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.agents.base import Learner, own_axes
from rollax.programs.evaluate import Best, Evaluation
from rollax.programs.loop import Loop, TrainState
from rollax.types import Array, Key

LOG_ROWS = 64  # log windows that one call can finish
EVALUATION_STREAM = 2**31  # iterations are below it, so no key of the training is met again

# LLVM's later levels double the time to compile and gain nothing where the arithmetic is in library calls.
# An environment with much arithmetic of its own is another matter: HackMatrix steps 2.5 times as fast with all of them.
# What runs once is not optimized at all.  Only a CPU takes these.
FULL: dict[str, Any] = {}
LIGHT: dict[str, Any] = {"xla_backend_optimization_level": 1}
NONE: dict[str, Any] = {"xla_backend_optimization_level": 0}


class Programs(NamedTuple):
    """A training run, ready to be advanced.  `warm_up` and `advance` consume the state that they are given."""

    init: Callable[[Key, Any], tuple[TrainState, Best]]
    warm_up: Callable[[TrainState, Any, Any], tuple[TrainState, Array]]  # (state, stop, iterations of a log window)
    advance: Callable[[TrainState, Any, Any], tuple[TrainState, Array]]
    evaluate: Callable[[Learner, Key, Array, Best], tuple[Evaluation, Best]]
    compile_seconds: float  # how long one had to wait for them
    memory_bytes: int  # the state, and what the largest of the programs needs beside it
    close: Callable[[], None] = lambda: None  # ends what runs outside


@dataclass(frozen=True)
class Program(ABC):
    """A population's run before it is compiled."""

    loop: Loop
    evaluator: Any  # who plays greedily, where the environments are
    block: int = 1  # iterations that only run together: every stop must be a multiple of it away

    def init(self, keys: Key, hparams: Any) -> tuple[TrainState, Best]:
        """A population: keys `[members]`, and hyper-parameters with the same leading axis."""
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), (keys, hparams))
        axes = population_axes(jax.eval_shape(self.loop.init, *one))
        state = jax.vmap(self.loop.init, out_axes=axes)(keys, hparams)
        return state, Best(jnp.full(keys.shape, -jnp.inf), jax.tree.map(jnp.copy, state.learner.params))

    def shapes(self, keys: Key, hparams: Any) -> tuple[TrainState, Best]:
        """The state of the run as shapes, before anything is allocated."""
        return jax.eval_shape(self.init, keys, hparams)

    @abstractmethod
    def compile(self, keys: Key, hparams: Any) -> Programs:
        """All programs."""

    def restoring(self) -> Any:
        """A context in which a saved state is read."""
        return nullcontext()

    def placed(self, state: TrainState, best: Best) -> tuple[TrainState, Best]:
        """What has been read, where it belongs."""
        return state, best

    def with_weights(self, learner: Learner, params: Any) -> Learner:
        """Learners that start from these weights `[members, ...]`."""
        # Compiled, so that each weight that is used twice gets two buffers, as donation needs.
        return jax.jit(jax.vmap(self.loop.agent.with_weights))(learner, params)

    @abstractmethod
    def play(self, learner: Learner, keys: Key) -> Evaluation:
        """An evaluation with these keys `[members]`, outside a run."""


def evaluation_keys(keys: Key, iteration: Array) -> Key:
    """Keys `[members]` that training never draws from, for an evaluation after that iteration."""
    stream = jnp.uint32(EVALUATION_STREAM) + iteration.astype(jnp.uint32)
    return jax.vmap(lambda key: jax.random.fold_in(key, stream))(keys)


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
