"""Which past transitions come back to be learnt from, and how much each of them counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rollax.memory import sum_tree
from rollax.memory.ring import Batch, Ring, RingState
from rollax.memory.sum_tree import SumTree
from rollax.tracing import max_over
from rollax.types import Array, EnvSpec, Key, Observation, Transition

# Priorities are kept between these, so that no sum of a million of them is lost or overflows.
SMALLEST_PRIORITY, LARGEST_PRIORITY = 1e-6, 1e12


class Sample(NamedTuple):
    """What a replay shows to one gradient step."""

    batch: Batch
    weight: Array | float  # [batch], what each loss is multiplied by
    handle: Any  # where the sample came from, for `reprioritize`


class Replay(Protocol):
    """A memory of transitions.  Its state is a pytree that the caller owns."""

    @property
    def capacity(self) -> int: ...

    @property
    def n_step(self) -> int: ...

    def problems(self, spec: EnvSpec) -> list[str]:
        """What is wrong with this replay for that environment, each with its fix."""
        ...

    def init(self, spec: EnvSpec) -> Any:
        """An empty memory."""
        ...

    def add(self, state: Any, rollout: Transition, spec: EnvSpec) -> Any:
        """The memory with a rollout `[T, B, ...]` in place of its oldest rows."""
        ...

    def interrupt(self, state: Any, obs: Observation, spec: EnvSpec) -> Any:
        """The memory, told that the next rollout does not follow on the last, which led to `obs` `[B, ...]`."""
        ...

    def least_warm_up(self, spec: EnvSpec) -> int:
        """Iterations that must have been added before anything is drawn."""
        ...

    def ready(self, state: Any, batch_size: int, spec: EnvSpec) -> Array | bool:
        """Whether there is enough to draw such a batch; `True` where a warm-up sees to it."""
        ...

    def sample(
        self,
        state: Any,
        key: Key,
        batch_size: int,
        discount: Array | float,
        importance_exponent: Array | float,
        spec: EnvSpec,
        limit: Array | int = 0,
    ) -> Sample:
        """Draws `batch_size` windows from what this shard has.  At least `n_step + 1` rows must have been added.

        A `limit` above 0 asks for the newest so many transitions only; a replay that has none leaves it unheard.
        """
        ...

    def reprioritize(self, state: Any, handle: Any, priority: Array, exponent: Array | float, spec: EnvSpec) -> Any:
        """The memory, told how wrong the predictions for a sample were."""
        ...


@dataclass(frozen=True)
class UniformReplay(Ring):
    """Every complete n-step window is drawn with the same probability."""

    def init(self, spec: EnvSpec) -> RingState:
        return self.empty(spec)

    def interrupt(self, state: RingState, obs: Observation, spec: EnvSpec) -> RingState:
        return self.interrupt_ring(state, obs, spec)

    def add(self, state: RingState, rollout: Transition, spec: EnvSpec) -> RingState:
        return self.write(state, rollout, spec)

    def sample(
        self,
        state: RingState,
        key: Key,
        batch_size: int,
        discount: Array | float,
        importance_exponent: Array | float,
        spec: EnvSpec,
        limit: Array | int = 0,
    ) -> Sample:
        del importance_exponent  # every window counts the same
        oldest, starts = self.newest_starts(state, spec, limit)
        # A remainder of 32 random bits is uniform to one part in 2**32 / capacity, at a third of randint's cost.
        drawn = (jax.random.bits(key, (batch_size,)) % (spec.own_envs * starts).astype(jnp.uint32)).astype(jnp.int32)
        env, time = drawn // starts, oldest + drawn % starts
        return Sample(self.windows(state, env, time, discount, spec), 1.0, ())

    def reprioritize(
        self, state: RingState, handle: Any, priority: Array, exponent: Array | float, spec: EnvSpec
    ) -> RingState:
        return state


class PrioritizedState(NamedTuple):
    """A ring, and how much each of its rows should be seen."""

    ring: RingState
    tree: SumTree
    largest: Array  # the largest weight so far, which new rows get


@dataclass(frozen=True)
class PrioritizedReplay(Ring):
    """A ring from which windows are drawn in proportion to their priorities (Schaul et al. 2016).

    A row has weight 0 until its window is complete, then the largest weight that any row ever had, and from its
    first use on the power `exponent` of its own priority.
    """

    def init(self, spec: EnvSpec) -> PrioritizedState:
        tree = sum_tree.init(spec.own_envs, self.layout(spec).rows)
        return PrioritizedState(self.empty(spec), tree, jnp.float32(1.0))

    def add(self, state: PrioritizedState, rollout: Transition, spec: EnvSpec) -> PrioritizedState:
        return PrioritizedState(self.write(state.ring, rollout, spec), self.with_new(state, spec), state.largest)

    def interrupt(self, state: PrioritizedState, obs: Observation, spec: EnvSpec) -> PrioritizedState:
        again = state.ring.added == state.ring.interrupted
        tree = jax.tree.map(lambda old, new: jnp.where(again, old, new), state.tree, self.with_new(state, spec))
        return PrioritizedState(self.interrupt_ring(state.ring, obs, spec), tree, state.largest)

    def with_new(self, state: PrioritizedState, spec: EnvSpec) -> SumTree:
        """The tree after a rollout: windows that it completed can be drawn, rows that it took the past from cannot."""
        rows, waiting, new = self.layout(spec).rows, self.n_step, spec.rollout_length
        age = jnp.arange(1 - spec.stack, min(waiting + new, rows + 1 - spec.stack))  # below 0: the oldest rows
        time = state.ring.added + new - 1 - age
        complete = (age >= waiting) & (time >= 0)
        return sum_tree.set_columns(state.tree, time % rows, jnp.where(complete, state.largest, 0.0))

    def sample(
        self,
        state: PrioritizedState,
        key: Key,
        batch_size: int,
        discount: Array | float,
        importance_exponent: Array | float,
        spec: EnvSpec,
        limit: Array | int = 0,
    ) -> Sample:
        """Draws `batch_size` windows with replacement, and weights that undo their unequal chances.

        A weight is `(windows * chance) ** -importance_exponent`, divided by the largest of the batch.
        """
        oldest, starts = self.window_starts(state.ring, spec)
        drawn = sum_tree.draw(state.tree, key, batch_size)
        time = oldest + (drawn.leaf - oldest) % self.layout(spec).rows
        weight = (spec.own_envs * starts * drawn.share) ** -importance_exponent
        batch = self.windows(state.ring, drawn.env, time, discount, spec)
        return Sample(batch, weight / max_over(spec, jnp.max(weight)), (drawn.env, drawn.leaf))

    def reprioritize(
        self, state: PrioritizedState, handle: Any, priority: Array, exponent: Array | float, spec: EnvSpec
    ) -> PrioritizedState:
        """Gives a sample new priorities `[batch]`.  One that is not a number, or infinite, counts as a new row's."""
        env, leaf = handle
        weight = jnp.clip(priority, SMALLEST_PRIORITY, LARGEST_PRIORITY) ** exponent
        weight = jnp.where(jnp.isfinite(priority), weight, state.largest)
        largest = jnp.maximum(state.largest, max_over(spec, jnp.max(weight)))
        return PrioritizedState(state.ring, sum_tree.set_leaves(state.tree, env, leaf, weight), largest)
