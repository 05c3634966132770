"""A ring of transitions, written in place, that rebuilds n-step windows when they are asked for.

Each observation is stored once.  The successor of a row is the observation of the row after it, except where a
time limit ended the episode: that last observation has no row of its own.  An environment with a time limit of
`truncation_interval` steps ends that way at most once in as many rows, so one spare place for each block of that
many rows holds them all.  (After a termination nothing is bootstrapped, so its last observation is never needed.)

`rows` says how a step is kept, `frames` how stacks of frames are, `interruptions` what happens where a run was stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.memory import interruptions
from rollax.memory.frames import blank_frames, newest, restack
from rollax.memory.rows import (
    RUNNING,
    STOPPED,
    TERMINATED,
    TRUNCATED,
    RingState,
    Row,
    expand,
    look_up,
    of_last,
    overwrite,
    pack,
    unpack,
)
from rollax.rules.targets import n_step
from rollax.types import Array, EnvSpec, Observation, Transition, size_of


class Batch(NamedTuple):
    """What a Bellman update needs, with the n-step sum already taken: `reward + discount * value(next_obs)`."""

    obs: Observation
    action: Array
    reward: Array
    discount: Array
    next_obs: Observation


@dataclass(frozen=True)
class Ring:
    """Where past transitions lie in one environment, and the windows of `n_step` of them."""

    spec: EnvSpec
    capacity: int  # transitions of all environments together: a multiple of those of an iteration
    n_step: int

    @property
    def rows(self) -> int:
        """Rows of one environment."""
        return self.capacity // self.spec.num_envs

    @property
    def block(self) -> int:
        """Rows that share a spare place."""
        length = self.spec.rollout_length
        return max(1, self.spec.truncation_interval // length * length)

    @property
    def spares(self) -> int:
        # A block that the ring is about to overwrite must not give up its spare place to the new one.
        return self.rows if self.block == 1 else math.ceil(self.rows / self.block) + 1

    def spare_of(self, time: Array) -> Array:
        """The place in `observations` of the last observation of an episode that was truncated at `time`."""
        return self.rows + (time // self.block) % self.spares

    def empty(self) -> RingState:
        spec, envs = self.spec, self.spec.own_envs
        shapes, places = newest(spec.observation, spec), (envs, self.rows + self.spares)
        numbers = size_of(spec.action)
        return RingState(
            observations=jax.tree.map(lambda x: jnp.zeros((*places, *x.shape), x.dtype), shapes),
            steps=jnp.zeros((envs, self.rows, 2), jnp.uint32),
            added=jnp.int32(0),
            interrupted=jnp.int32(-1) if spec.restarts else None,
            vectors=jnp.zeros((envs, self.rows, numbers)) if numbers else None,
        )

    def write(self, state: RingState, rollout: Transition) -> RingState:
        """Writes a rollout `[T, B, ...]` over the oldest rows."""
        spec, row, spare = self.spec, state.added % self.rows, self.spare_of(state.added)
        ending = jnp.where(rollout.terminated, TERMINATED, jnp.where(rollout.truncated, TRUNCATED, RUNNING))
        truncated = ending == TRUNCATED

        def put(store: Array, values: Array, place: Array) -> Array:
            values = jnp.swapaxes(values, 0, 1).astype(store.dtype)
            return overwrite(store, values, place)

        def put_last(store: Array, values: Array) -> Array:
            if self.block == 1:
                return put(store, values, spare)
            # The whole rollout lies in one block, so at most one of its steps was truncated.
            last = values[jnp.argmax(truncated, axis=0), jnp.arange(spec.own_envs)]
            old = jax.lax.dynamic_index_in_dim(store, spare, axis=1, keepdims=False)
            kept = jnp.where(expand(jnp.any(truncated, axis=0), last), last, old)
            return put(store, kept[None], spare)

        shown = newest(rollout.obs, spec)
        observations = jax.tree.map(lambda store, x: put(store, x, row), state.observations, shown)
        number = rollout.action if state.vectors is None else jnp.zeros(ending.shape, jnp.int32)
        steps = pack(Row(number, rollout.reward, ending, blank_frames(rollout.obs, spec), jnp.bool_(False)))
        return state._replace(
            observations=jax.tree.map(put_last, observations, newest(rollout.next_obs, spec)),
            steps=put(state.steps, steps, row),
            added=state.added + spec.rollout_length,
            vectors=None if state.vectors is None else put(state.vectors, rollout.action, row),
        )

    def interrupt(self, state: RingState, obs: Observation) -> RingState:
        """The ring, told that the next rollout does not follow on the last, which led to observations `[B, ...]`."""
        return interruptions.add_fillers(state, obs, self.spec)

    def window_starts(self, state: RingState) -> tuple[Array, Array]:
        """The time of the oldest row, and how many complete windows of one environment begin from there on."""
        # Of a ring that goes round, the oldest rows have lost the frames before them.
        oldest = jnp.where(state.added > self.rows, state.added - self.rows + self.spec.stack - 1, 0)
        # The last n rows wait: their windows, or the observation after them, are not there yet.
        return oldest, state.added - self.n_step - oldest

    @property
    def most_starts(self) -> int:
        """How many complete windows of one environment there are once the ring goes round."""
        return self.rows - (self.spec.stack - 1) - self.n_step

    def newest_starts(self, state: RingState, limit: Array | int) -> tuple[Array, Array]:
        """The same of the newest windows: those of `limit` transitions of the whole member; 0 for all."""
        oldest, starts = self.window_starts(state)
        if isinstance(limit, int) and limit == 0:
            return oldest, starts
        fewer = jnp.where(limit > 0, jnp.clip(limit // self.spec.num_envs, 1, starts), starts)
        return oldest + starts - fewer, fewer

    def windows(self, state: RingState, env: Array, time: Array, discount: Array | float) -> Batch:
        """The windows that begin at these times `[batch]` of these environments `[batch]`."""
        spec, rows = self.spec, self.rows

        def rows_at(time: Array) -> Row:
            return unpack(look_up(state.steps, env.reshape(-1, *(1,) * (time.ndim - 1)), time % rows))

        def observed(place: Array) -> Observation:
            return jax.tree.map(lambda store: look_up(store, env, place), state.observations)

        def stacked(obs: Observation, time: Array, blank: Array) -> Observation:
            older = (time[:, None] - jnp.arange(spec.stack - 1, 0, -1)) % rows
            return restack(obs, state.observations.features, env, older, blank)

        if spec.restarts:
            time = interruptions.nearest_step(state, env, time, self.window_starts(state)[0], spec)
        window = rows_at(time[:, None] + jnp.arange(self.n_step))
        cut = (window.ending == TRUNCATED) | (window.ending == STOPPED)
        target = n_step(window.reward, window.ending == TERMINATED, cut, discount)
        after = time + target.length
        spare = target.truncated
        if spec.restarts:
            spare &= of_last(window.ending, target.length) == TRUNCATED
        obs = observed(time % rows)
        next_obs = observed(jnp.where(spare, self.spare_of(after - 1), after % rows))
        if spec.stack > 1:
            obs = stacked(obs, time, window.blank[:, 0])
            before = of_last(window.blank, target.length)
            next_obs = stacked(next_obs, after, jnp.where(spare, jnp.maximum(before - 1, 0), rows_at(after).blank))
        action = window.action[:, 0] if state.vectors is None else look_up(state.vectors, env, time % rows)
        return Batch(obs, action, target.reward, target.discount, next_obs)
