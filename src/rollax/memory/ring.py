"""A ring of transitions, written in place, that rebuilds n-step windows when they are asked for.

Each observation is stored once.  The successor of a row is the observation of the row after it, except where a
time limit ended the episode: that last observation has no row of its own.  An environment with a time limit of
`truncation_interval` steps ends that way at most once in as many rows, so one spare place for each block of that
many rows holds them all.  (After a termination nothing is bootstrapped, so its last observation is never needed.)

Of observations that are stacks of frames only the newest frame is stored, and beside it how many of the older ones
were blank.  The others are the newest frames of the rows before, also where those are of a life that was lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.rules.targets import n_step
from rollax.settings import COUNT, setting
from rollax.types import Array, EnvSpec, Observation, Transition

# How a row ends.  STOPPED is a truncation whose last observation is in the next row: see `interrupt_ring`.
RUNNING, TERMINATED, TRUNCATED, STOPPED = 0, 1, 2, 3
FILLER = (
    1 << 7
)  # marks a row that is no step: it holds an observation, and its "action" is the distance to the last one
MOST_BLANK = (1 << 5) - 1


class Batch(NamedTuple):
    """What a Bellman update needs, with the n-step sum already taken: `reward + discount * value(next_obs)`."""

    obs: Observation
    action: Array
    reward: Array
    discount: Array
    next_obs: Observation


class RingState(NamedTuple):
    """Arrays lead with the environment; `observations` has the ring's rows and then the spare places."""

    observations: Observation  # [B, rows + spares, ...]; of stacks the newest frame
    steps: Array  # uint32[B, rows, 2]: what else a row holds, as `pack` writes it
    added: Array  # rows written so far, of one environment
    interrupted: Array | None = None  # what `added` was after the last interruption; None where there can be none


class Row(NamedTuple):
    """What a row holds beside its observation."""

    action: Array
    reward: Array
    ending: Array  # RUNNING, TERMINATED, TRUNCATED or STOPPED
    blank: Array  # frames of its stack that are from before the episode
    filler: Array  # whether it is none


def pack(row: Row) -> Array:
    """A row as two words `[..., 2]`, so that a look-up misses the cache once and not five times."""
    word = (row.action.astype(jnp.uint32) << 8) | row.ending.astype(jnp.uint32)
    word |= (row.blank.astype(jnp.uint32) << 2) | jnp.where(row.filler, jnp.uint32(FILLER), jnp.uint32(0))
    return jnp.stack([word, jax.lax.bitcast_convert_type(row.reward.astype(jnp.float32), jnp.uint32)], axis=-1)


def unpack(steps: Array) -> Row:
    word, reward = steps[..., 0], steps[..., 1]
    ending, blank = (word & 3).astype(jnp.int32), (word >> 2 & MOST_BLANK).astype(jnp.int32)
    action = (word >> 8).astype(jnp.int32)
    return Row(action, jax.lax.bitcast_convert_type(reward, jnp.float32), ending, blank, (word & FILLER) > 0)


class Layout(NamedTuple):
    """How a ring is laid out for one environment."""

    rows: int
    block: int  # rows that share a spare place
    spares: int

    def spare_of(self, time: Array) -> Array:
        """The place in `observations` of the last observation of an episode that was truncated at `time`."""
        return self.rows + (time // self.block) % self.spares


@dataclass(frozen=True)
class Ring:
    """What every replay has: a ring of transitions, and the n-step windows in it."""

    capacity: int = setting(
        10_000,
        "Number of transitions that the replay buffer holds, of all environments together.",
        limit=COUNT,
        group="replay",
        memory=True,
    )
    n_step: int = setting(
        1, "Number of rewards that an n-step target sums before it bootstraps.", limit=COUNT, group="targets"
    )

    def problems(self, spec: EnvSpec) -> list[str]:
        """What is wrong with this replay for that environment, each with its fix."""
        found = []
        unit = spec.steps_per_iteration
        least = unit * math.ceil((self.n_step + spec.stack) / spec.rollout_length)
        least += unit if spec.stack > 1 else 0  # the oldest stacks lose their past before they are overwritten
        least += 2 * unit if spec.restarts else 0  # there is a step on either side of a filler
        if spec.stack > MOST_BLANK:
            found.append(f"stack={spec.stack} is more frames than a row can count; the most is stack={MOST_BLANK}")
        if self.capacity < least:
            found.append(f"capacity={self.capacity} holds no complete window; the least is capacity={least}")
        elif self.capacity % unit:
            found.append(
                f"capacity={self.capacity} is not a multiple of num_envs * rollout_length = {unit}; "
                f"try capacity={round(self.capacity / unit) * unit}"
            )
        return found

    def layout(self, spec: EnvSpec) -> Layout:
        rows = self.capacity // spec.num_envs
        block = max(1, spec.truncation_interval // spec.rollout_length * spec.rollout_length)
        # A block that the ring is about to overwrite must not give up its spare place to the new one.
        return Layout(rows, block, rows if block == 1 else math.ceil(rows / block) + 1)

    def empty(self, spec: EnvSpec) -> RingState:
        layout = self.layout(spec)
        places = (spec.own_envs, layout.rows + layout.spares)
        return RingState(
            observations=jax.tree.map(
                lambda x: jnp.zeros((*places, *x.shape), x.dtype), newest(spec.observation, spec)
            ),
            steps=jnp.zeros((spec.own_envs, layout.rows, 2), jnp.uint32),
            added=jnp.int32(0),
            interrupted=jnp.int32(-1) if spec.restarts else None,
        )

    def write(self, state: RingState, rollout: Transition, spec: EnvSpec) -> RingState:
        """Writes a rollout `[T, B, ...]` over the oldest rows."""
        layout = self.layout(spec)
        row = state.added % layout.rows
        ending = jnp.where(rollout.terminated, TERMINATED, jnp.where(rollout.truncated, TRUNCATED, RUNNING))
        truncated = ending == TRUNCATED
        spare = layout.spare_of(state.added)

        def put(store: Array, values: Array, place: Array) -> Array:
            values = jnp.swapaxes(values, 0, 1).astype(store.dtype)
            return jax.lax.dynamic_update_slice_in_dim(store, values, place, axis=1)

        def write_last(store: Array, values: Array) -> Array:
            if layout.block == 1:
                return put(store, values, spare)
            # The whole rollout lies in one block, so at most one of its steps was truncated.
            last = values[jnp.argmax(truncated, axis=0), jnp.arange(spec.own_envs)]
            old = jax.lax.dynamic_index_in_dim(store, spare, axis=1, keepdims=False)
            kept = jnp.where(expand(jnp.any(truncated, axis=0), last), last, old)
            return put(store, kept[None], spare)

        shown = newest(rollout.obs, spec)
        observations = jax.tree.map(lambda store, x: put(store, x, row), state.observations, shown)
        steps = pack(Row(rollout.action, rollout.reward, ending, blank_frames(rollout.obs, spec), jnp.bool_(False)))
        return RingState(
            observations=jax.tree.map(write_last, observations, newest(rollout.next_obs, spec)),
            steps=put(state.steps, steps, row),
            added=state.added + spec.rollout_length,
            interrupted=state.interrupted,
        )

    def interrupt_ring(self, state: RingState, obs: Observation, spec: EnvSpec) -> RingState:
        """The ring, told that the next rollout does not follow on the last, which led to observations `[B, ...]`.

        Those get a row of their own, and the rollout's other rows with them: no window begins in any of these.
        """
        layout, length = self.layout(spec), spec.rollout_length
        # Where nothing has followed the last interruption, it stays the one that there was.
        again = state.added == state.interrupted
        first = state.added - jnp.where(again, length, 0)
        row, last = first % layout.rows, (first - 1) % layout.rows

        def put(store: Array, values: Array) -> Array:
            there = jax.lax.dynamic_slice_in_dim(store, row, length, axis=1)
            new = jnp.where(again, there, values.astype(store.dtype))
            return jax.lax.dynamic_update_slice_in_dim(store, new, row, axis=1)

        before = unpack(state.steps[:, last])
        stopped = before._replace(ending=jnp.where(before.ending == RUNNING, STOPPED, before.ending))
        steps = state.steps.at[:, last].set(jnp.where(first > 0, pack(stopped), state.steps[:, last]))
        distance = jnp.broadcast_to(1 + jnp.arange(length), (spec.own_envs, length))
        blank = jnp.broadcast_to(blank_frames(obs, spec), (spec.own_envs,))[:, None]
        nothing = jnp.zeros((spec.own_envs, length))
        fillers = pack(Row(distance, nothing, jnp.full(distance.shape, STOPPED), blank, jnp.bool_(True)))
        observations = jax.tree.map(lambda store, x: put(store, x[:, None]), state.observations, newest(obs, spec))
        return RingState(observations, put(steps, fillers), first + length, first + length)

    def least_warm_up(self, spec: EnvSpec) -> int:
        return -(-(self.n_step + 1) // spec.rollout_length)

    def ready(self, state: Any, batch_size: int, spec: EnvSpec) -> bool:
        return True  # a warm-up has filled it

    def window_starts(self, state: RingState, spec: EnvSpec) -> tuple[Array, Array]:
        """The time of the oldest row, and how many complete windows of one environment begin from there on."""
        rows = self.layout(spec).rows
        # Of a ring that goes round, the oldest rows have lost the frames before them.
        oldest = jnp.where(state.added > rows, state.added - rows + spec.stack - 1, 0)
        # The last n rows wait: their windows, or the observation after them, are not there yet.
        return oldest, state.added - self.n_step - oldest

    def newest_starts(self, state: RingState, spec: EnvSpec, limit: Array | int) -> tuple[Array, Array]:
        """The same of the newest windows: those of `limit` transitions of the whole member; 0 for all."""
        oldest, starts = self.window_starts(state, spec)
        if isinstance(limit, int) and limit == 0:
            return oldest, starts
        fewer = jnp.where(limit > 0, jnp.clip(limit // spec.num_envs, 1, starts), starts)
        return oldest + starts - fewer, fewer

    def windows(self, state: RingState, env: Array, time: Array, discount: Array | float, spec: EnvSpec) -> Batch:
        """The windows that begin at these times `[batch]` of these environments `[batch]`.

        Where a time is that of a filler, it is the last step's before it or, if that is gone, the first after it.
        """
        layout = self.layout(spec)

        def rows(time: Array) -> Row:
            return unpack(_at(state.steps, env.reshape(-1, *(1,) * (time.ndim - 1)), time % layout.rows))

        if spec.restarts:
            there, (oldest, _) = rows(time), self.window_starts(state, spec)
            back = time - there.action
            step = jnp.where(back >= oldest, back, back + 1 + spec.rollout_length)
            time = jnp.where(there.filler, step, time)
        window = rows(time[:, None] + jnp.arange(self.n_step))
        cut = (window.ending == TRUNCATED) | (window.ending == STOPPED)
        target = n_step(window.reward, window.ending == TERMINATED, cut, discount)
        after = time + target.length
        spare = target.truncated
        if spec.restarts:
            spare &= _of_last(window.ending, target.length) == TRUNCATED
        successor = jnp.where(spare, layout.spare_of(after - 1), after % layout.rows)

        def look_up(where: Array) -> Observation:
            return jax.tree.map(lambda store: _at(store, env, where), state.observations)

        def stack(shown: Observation, time: Array, blank: Array) -> Observation:
            """Observations of these times, with the frames that came before."""
            ages = jnp.arange(spec.stack - 1, 0, -1)
            older = _at(state.observations.features, env[:, None], (time[:, None] - ages) % layout.rows)
            older = jnp.where(expand(ages[None] < spec.stack - blank[:, None], older), older, 0)
            frames = jnp.concatenate([older, shown.features[:, None]], axis=1)
            return shown._replace(features=jnp.moveaxis(frames, 1, -1))

        obs, next_obs = look_up(time % layout.rows), look_up(successor)
        if spec.stack > 1:
            obs = stack(obs, time, window.blank[:, 0])
            before = _of_last(window.blank, target.length)
            next_obs = stack(next_obs, after, jnp.where(spare, jnp.maximum(before - 1, 0), rows(after).blank))
        return Batch(obs, window.action[:, 0], target.reward, target.discount, next_obs)


def newest(obs: Observation, spec: EnvSpec) -> Observation:
    """Observations, or their shapes, as a ring keeps them: of stacks the last frame."""
    if spec.stack == 1:
        return obs
    features = obs.features
    if isinstance(features, jax.ShapeDtypeStruct):
        return obs._replace(features=jax.ShapeDtypeStruct(features.shape[:-1], features.dtype))
    return obs._replace(features=features[..., -1])


def blank_frames(obs: Observation, spec: EnvSpec) -> Array:
    """How many frames of each stack `[..., H, W, stack]`, from the oldest on, are blank, for whatever reason."""
    if spec.stack == 1:
        return jnp.int32(0)
    blank = ~jnp.any(obs.features[..., :-1] != 0, axis=(-3, -2))
    return jnp.sum(jnp.cumprod(blank, axis=-1), axis=-1)


def _at(store: Array, env: Array, place: Array) -> Array:
    """`store[env, place]`, without the clamping that guards against indices that cannot occur here."""
    return store.at[env, place].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _of_last(window: Array, length: Array) -> Array:
    """Of windows `[batch, n]` what their last steps have, with so many steps that count."""
    return jnp.take_along_axis(window, length[:, None] - 1, axis=1)[:, 0]


def expand(flag: Array, like: Array) -> Array:
    """A flag with as many axes as what it chooses among."""
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))
