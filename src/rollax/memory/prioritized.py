"""A replay that shows what was predicted badly more often (Schaul et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.memory import sum_tree
from rollax.memory.replay import Buffer, Request, RingReplay, Sample
from rollax.memory.ring import Ring
from rollax.memory.rows import RingState
from rollax.memory.sum_tree import SumTree
from rollax.tracing import max_over
from rollax.types import Array, EnvSpec, Key, Observation, Transition

# Priorities are kept between these, so that no sum of a million of them is lost or overflows.
SMALLEST_PRIORITY, LARGEST_PRIORITY = 1e-6, 1e12


@dataclass(frozen=True)
class PrioritizedReplay(RingReplay):
    """Windows are drawn in proportion to a power of their priorities."""

    def build(self, spec: EnvSpec) -> PrioritizedBuffer:
        return PrioritizedBuffer(self.ring(spec))


class PrioritizedState(NamedTuple):
    """A ring, and how much each of its rows should be seen."""

    ring: RingState
    tree: SumTree
    largest: Array  # the largest weight so far, which new rows get


@dataclass(frozen=True)
class PrioritizedBuffer(Buffer):
    """A ring and a tree of its rows' weights.

    A row has weight 0 until its window is complete, then the largest weight that any row ever had, and from its
    first use on the power `exponent` of its own priority.
    """

    ring: Ring

    def init(self) -> PrioritizedState:
        tree = sum_tree.init(self.ring.spec.own_envs, self.ring.rows)
        return PrioritizedState(self.ring.empty(), tree, jnp.float32(1.0))

    def add(self, state: PrioritizedState, rollout: Transition) -> PrioritizedState:
        return PrioritizedState(self.ring.write(state.ring, rollout), self.with_new(state), state.largest)

    def interrupt(self, state: PrioritizedState, obs: Observation) -> PrioritizedState:
        again = state.ring.added == state.ring.interrupted
        tree = jax.tree.map(lambda old, new: jnp.where(again, old, new), state.tree, self.with_new(state))
        return PrioritizedState(self.ring.interrupt(state.ring, obs), tree, state.largest)

    def with_new(self, state: PrioritizedState) -> SumTree:
        """The tree after a rollout: windows that it completed can be drawn, rows that it took the past from cannot."""
        rows, waiting, spec = self.ring.rows, self.ring.n_step, self.ring.spec
        new = spec.rollout_length
        age = jnp.arange(1 - spec.stack, min(waiting + new, rows + 1 - spec.stack))  # below 0: the oldest rows
        time = state.ring.added + new - 1 - age
        complete = (age >= waiting) & (time >= 0)
        return sum_tree.set_columns(state.tree, time % rows, jnp.where(complete, state.largest, 0.0))

    def sample(self, state: PrioritizedState, key: Key, request: Request) -> Sample:
        """Draws windows with replacement, with the importance weights that correct the sampling bias.

        A weight is `(windows * probability) ** -importance_exponent`, divided by the largest of the batch.
        """
        spec, (oldest, starts) = self.ring.spec, self.ring.window_starts(state.ring)
        drawn = sum_tree.draw(state.tree, key, request.batch_size)
        time = oldest + (drawn.leaf - oldest) % self.ring.rows
        weight = (spec.own_envs * starts * drawn.share) ** -request.importance_exponent
        batch = self.ring.windows(state.ring, drawn.env, time, request.discount)
        return Sample(batch, weight / max_over(spec, jnp.max(weight)), (drawn.env, drawn.leaf))

    def reprioritize(
        self, state: PrioritizedState, handle: tuple[Array, Array], priority: Array, exponent: Array | float
    ) -> PrioritizedState:
        """Gives a sample new priorities `[batch]`.  One that is not a number, or infinite, counts as a new row's."""
        tree, largest = reweighted(self.ring.spec, state.tree, state.largest, handle, priority, exponent)
        return PrioritizedState(state.ring, tree, largest)


def reweighted(
    spec: EnvSpec,
    tree: SumTree,
    largest: Array,
    handle: tuple[Array, Array],
    priority: Array,
    exponent: Array | float,
) -> tuple[SumTree, Array]:
    """The tree after a sample `(environments, leaves)` got new priorities, and the largest weight so far."""
    env, leaf = handle
    weight = jnp.clip(priority, SMALLEST_PRIORITY, LARGEST_PRIORITY) ** exponent
    weight = jnp.where(jnp.isfinite(priority), weight, largest)
    largest = jnp.maximum(largest, max_over(spec, jnp.max(weight)))
    return sum_tree.set_leaves(tree, env, leaf, weight), largest
