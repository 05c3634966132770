"""A replay of sequences, for agents that remember (Kapturowski et al. 2019).

The ring is that of every replay.  A sequence begins at every `stride`-th row of an environment, where what the agent
remembered when it came there is kept.  It has `burn_in` rows that are only read, to bring that memory up to date with
today's weights, `sequence` rows that are learnt from, and `n_step` more for the targets of the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from rollax.memory import sum_tree
from rollax.memory.prioritized import reweighted
from rollax.memory.replay import Buffer, Replay, Request, Sample
from rollax.memory.ring import Ring
from rollax.memory.rows import STOPPED, TERMINATED, TRUNCATED, RingState, look_up, overwrite, unpack
from rollax.memory.sum_tree import SumTree
from rollax.networks.recurrence import entered
from rollax.rules.targets import n_step
from rollax.settings import COUNT, COUNT_OR_NONE, SHARE, setting
from rollax.tracing import max_over
from rollax.types import Array, Carry, EnvSpec, Key, Observation, Transition


class Sequence(NamedTuple):
    """What a network reads, time first: `[T, batch, ...]`."""

    carry: Carry  # [batch, ...]: as it was before the first row, cleared where an episode began there
    burn_in: Any  # features of the rows that are only read
    burn_in_fresh: Array
    features: Any  # of the rows that are learnt from, and those after them
    fresh: Array
    cut: Array  # int32[cuts, batch]: steps among these at which time ran out
    cut_features: Any  # [cuts, batch, ...]: the true successors there


class SequenceBatch(NamedTuple):
    """Sequences, and what a Bellman update needs of their steps, as rows `[T * batch]`: the first steps come first."""

    obs: Observation
    action: Array
    reward: Array
    discount: Array
    next_obs: Observation
    now: Array  # where each step is among what the network has seen: features, then those of `cut_features`
    after: Array  # where its successor is
    counts: Array  # whether it is a step at all
    sequence: Sequence


class SequenceState(NamedTuple):
    """A ring, what was remembered at every stride of it, and how much each sequence should be seen."""

    ring: RingState
    carries: Carry  # [B, slots, ...]
    tree: SumTree
    largest: Array


@dataclass(frozen=True)
class SequenceReplay(Replay):
    """Sequences are drawn in proportion to a power of their priorities."""

    sequential: ClassVar[bool] = True

    sequence: int = setting(40, "Number of steps of a sequence that are learnt from.", limit=COUNT, memory=True)
    burn_in: int = setting(
        20,
        "Number of steps at the beginning of a sequence that only bring its memory up to date.",
        limit=COUNT_OR_NONE,
        memory=True,
    )
    stride: int = setting(
        20,
        "Number of steps between the beginnings of two sequences; if it is below their length, they overlap.",
        limit=COUNT,
    )
    priority_mix: float = setting(
        0.9,
        "Weight of the largest error in a sequence's priority; the mean error has the rest of the weight.",
        limit=SHARE,
        rare=True,
    )

    @property
    def read(self) -> int:
        """Rows of a sequence, from the first to the last successor."""
        return self.burn_in + self.sequence + self.n_step

    def build(self, spec: EnvSpec, initial: Callable[[int], Carry] = lambda num: ()) -> SequenceBuffer:
        """The replay of an agent that remembers `initial(num)` at the beginning of so many episodes."""
        return SequenceBuffer(self, Ring(spec, self.capacity, self.n_step), initial)

    def most_windows(self, spec: EnvSpec) -> int:
        return spec.num_envs * max(0, (self.capacity // spec.num_envs - self.read) // self.stride)

    def least_warm_up(self, spec: EnvSpec) -> int:
        return -(-self.read // spec.rollout_length) + 1

    def problems(self, spec: EnvSpec) -> list[str]:
        found, length, rows = [], spec.rollout_length, self.capacity // spec.num_envs
        if spec.stack > 1:
            found.append(f"replay=sequences keeps single frames, not stacks of {spec.stack}; set --stack 1")
        if self.stride % length and length % self.stride:
            found.append(
                f"stride={self.stride} and rollout_length={length}: one must be a multiple of the other; "
                f"try stride={length * max(1, round(self.stride / length))}"
            )
            return found
        unit = math.lcm(self.stride, length) * spec.num_envs
        least = unit * (-(-(self.read + 2 * length) * spec.num_envs // unit) + 1)
        if self.capacity < least:
            found.append(f"capacity={self.capacity} holds no sequence of {self.read}; the least is capacity={least}")
        elif self.capacity % unit or rows * spec.num_envs != self.capacity:
            found.append(
                f"capacity={self.capacity} is not a multiple of num_envs * {unit // spec.num_envs} = {unit}; "
                f"try capacity={round(self.capacity / unit) * unit}"
            )
        return found


@dataclass(frozen=True, eq=False)
class SequenceBuffer(Buffer):
    """A ring, a tree of its sequences' weights, and the carries that they begin with."""

    replay: SequenceReplay
    ring: Ring
    initial: Callable[[int], Carry]

    @property
    def slots(self) -> int:
        """Sequences of one environment that the ring has begun."""
        return self.ring.rows // self.replay.stride

    def init(self) -> SequenceState:
        envs = self.ring.spec.own_envs
        carries = jax.tree.map(lambda x: jnp.zeros((envs, self.slots, *x.shape[1:]), x.dtype), self.initial(1))
        tree = sum_tree.init(envs, self.slots)
        return SequenceState(self.ring.empty(), carries, tree, jnp.float32(1.0))

    def add(self, state: SequenceState, rollout: Transition) -> SequenceState:
        assert rollout.fresh is not None
        stride, time = self.replay.stride, state.ring.added
        begins = jax.tree.map(lambda x: x[::stride], (rollout.carry, rollout.fresh))
        initial = self.initial(self.ring.spec.own_envs)
        cleared = jax.vmap(lambda carry, fresh: entered(initial, carry, fresh))(*begins)
        slot = (time // stride) % self.slots

        def put(store: Array, values: Array) -> Array:
            values = jnp.swapaxes(values, 0, 1)
            old = jax.lax.dynamic_slice_in_dim(store, slot, values.shape[1], axis=1)
            values = jnp.where(time % stride == 0, values, old)  # else no sequence begins in this rollout
            return overwrite(store, values, slot)

        carries = jax.tree.map(put, state.carries, cleared)
        return SequenceState(self.ring.write(state.ring, rollout), carries, self.with_new(state), state.largest)

    def interrupt(self, state: SequenceState, obs: Observation) -> SequenceState:
        again = state.ring.added == state.ring.interrupted
        tree = jax.tree.map(lambda old, new: jnp.where(again, old, new), state.tree, self.with_new(state))
        return state._replace(ring=self.ring.interrupt(state.ring, obs), tree=tree)

    def with_new(self, state: SequenceState) -> SumTree:
        """The tree after a rollout: sequences that it completed can be drawn, those that it overwrites cannot."""
        stride, length, rows = self.replay.stride, self.ring.spec.rollout_length, self.ring.rows
        added = state.ring.added + length
        count = -(-length // stride)

        def last_before(time: Array) -> Array:
            """The numbers of the last sequences that begin before a time."""
            return -(-time // stride) - 1 - jnp.arange(count)

        complete, gone = last_before(added - self.replay.read + 1), last_before(added - rows)
        is_new = (complete >= 0) & (complete * stride > added - length - self.replay.read)
        is_gone = (gone >= 0) & (gone * stride >= added - length - rows)
        tree = state.tree
        for number, changes, weight in ((gone, is_gone, jnp.float32(0.0)), (complete, is_new, state.largest)):
            leaf = number % self.slots
            old = tree.levels[0][:, leaf // sum_tree.FANOUT, leaf % sum_tree.FANOUT]
            tree = sum_tree.set_columns(tree, leaf, jnp.where(changes, weight, old))
        return tree

    def sample(self, state: SequenceState, key: Key, request: Request) -> Sample:
        """Draws sequences with replacement, and weights as a prioritised replay does."""
        spec, drawn = self.ring.spec, sum_tree.draw(state.tree, key, request.batch_size)
        stride, added = self.replay.stride, state.ring.added
        oldest = -(-jnp.maximum(added - self.ring.rows, 0) // stride)  # the number of the oldest sequence
        begins = (oldest + (drawn.leaf - oldest) % self.slots) * stride
        count = (added - self.replay.read) // stride - oldest + 1
        weight = (spec.own_envs * count * drawn.share) ** -request.importance_exponent
        batch = self.sequences(state, drawn.env, drawn.leaf, begins, request.discount)
        return Sample(batch, weight / max_over(spec, jnp.max(weight)), (drawn.env, drawn.leaf))

    def reprioritize(
        self, state: SequenceState, handle: tuple[Array, Array], priority: Array, exponent: Array | float
    ) -> SequenceState:
        tree, largest = reweighted(self.ring.spec, state.tree, state.largest, handle, priority, exponent)
        return state._replace(tree=tree, largest=largest)

    def sequences(
        self, state: SequenceState, env: Array, slot: Array, begins: Array, discount: Array | float
    ) -> SequenceBatch:
        """The sequences `[batch]` of these environments that begin at these times, whose carries are in these slots."""
        replay, ring = self.replay, self.ring
        learnt, count = replay.sequence, len(env)
        times = begins + jnp.arange(replay.read)[:, None]  # [T, batch]
        rows = unpack(look_up(state.ring.steps, env, times % ring.rows))
        ended = (rows.ending == TERMINATED) | (rows.ending == TRUNCATED)
        fresh = jnp.concatenate([jnp.zeros((1, count), bool), (ended | rows.filler)[:-1]]) & ~rows.filler
        seen = jax.tree.map(lambda store: look_up(store, env, times % ring.rows), state.ring.observations)
        burnt, (later, later_fresh, later_rows) = (
            jax.tree.map(lambda x: x[: replay.burn_in], (seen, fresh)),
            jax.tree.map(lambda x: x[replay.burn_in :], (seen, fresh, rows)),
        )
        windows = jnp.arange(learnt)[:, None] + jnp.arange(replay.n_step)  # [L, n]
        reward, ending = (jnp.moveaxis(x[windows], 1, -1) for x in (later_rows.reward, later_rows.ending))
        stops = (ending == TRUNCATED) | (ending == STOPPED)
        target = n_step(reward, ending == TERMINATED, stops, discount)  # [L, batch]
        last = jnp.arange(learnt)[:, None] + target.length - 1  # the last step of each window
        spare = target.truncated & (jnp.take_along_axis(later_rows.ending, last, axis=0) == TRUNCATED)
        cut = self.cuts(later_rows.ending[:-1] == TRUNCATED)  # [cuts, batch]
        places = ring.spare_of(begins + replay.burn_in + cut)
        cut_obs = jax.tree.map(lambda store: look_up(store, env, places), state.ring.observations)
        which = jnp.argmax(cut[:, None] == last, axis=0)  # [L, batch], among the cuts
        column, length = jnp.arange(count), learnt + replay.n_step
        after = jnp.where(spare, (length + which) * count + column, (last + 1) * count + column)
        everything = jax.tree.map(lambda x, y: flat(jnp.concatenate([x, y])), later, cut_obs)
        action = (
            later_rows.action if state.ring.vectors is None else look_up(state.ring.vectors, env, times % ring.rows)
        )
        return SequenceBatch(
            obs=jax.tree.map(lambda x: flat(x[:learnt]), later),
            action=flat(action[-length:][:learnt]),
            reward=flat(target.reward),
            discount=flat(target.discount),
            next_obs=jax.tree.map(lambda x: x[flat(after)], everything),
            now=jnp.arange(learnt * count),
            after=flat(after),
            counts=flat(~later_rows.filler[:learnt]),
            sequence=Sequence(
                carry=jax.tree.map(lambda store: look_up(store, env, slot), state.carries),
                burn_in=burnt[0].features,
                burn_in_fresh=burnt[1],
                features=later.features,
                fresh=later_fresh,
                cut=cut,
                cut_features=cut_obs.features,
            ),
        )

    def cuts(self, truncated: Array) -> Array:
        """The steps `[cuts, batch]` of `[T, batch]` at which time ran out; 0 for those that are fewer than can be."""
        length, interval = truncated.shape[0], self.ring.spec.truncation_interval
        if interval == 1:
            return jnp.broadcast_to(jnp.arange(length)[:, None], truncated.shape)
        found, left = [], truncated
        for _ in range((length - 1) // interval + 1):
            step = jnp.argmax(left, axis=0)
            found.append(step)
            left &= jnp.arange(length)[:, None] > step
        return jnp.stack(found)


def flat(x: Array) -> Array:
    """`[T, batch, ...]` as rows `[T * batch, ...]`."""
    return x.reshape(-1, *x.shape[2:])
