"""A ring where a run was stopped and went on with new episodes: no window reaches over the stop.

The observations that the last rollout led to are kept.  They get a row of their own, and the rows of a whole rollout
with it, so that rollouts stay aligned: these rows are fillers, which hold an observation and no step.  The step before
them is STOPPED: a truncation whose last observation is in the next row, and not in a spare place.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rollax.memory.frames import blank_frames, newest
from rollax.memory.rows import RUNNING, STOPPED, RingState, Row, look_up, overwrite, pack, unpack
from rollax.types import Array, EnvSpec, Observation


def add_fillers(state: RingState, obs: Observation, spec: EnvSpec) -> RingState:
    """The ring, told that the next rollout does not follow on the last, which led to observations `[B, ...]`."""
    rows, length = state.steps.shape[1], spec.rollout_length
    # Where nothing has followed the last interruption, it stays the one that there was.
    again = state.added == state.interrupted
    first = state.added - jnp.where(again, length, 0)
    row, last = first % rows, (first - 1) % rows

    def put(store: Array, values: Array) -> Array:
        there = jax.lax.dynamic_slice_in_dim(store, row, length, axis=1)
        new = jnp.where(again, there, values.astype(store.dtype))
        return overwrite(store, new, row)

    before = unpack(state.steps[:, last])
    stopped = before._replace(ending=jnp.where(before.ending == RUNNING, STOPPED, before.ending))
    steps = state.steps.at[:, last].set(jnp.where(first > 0, pack(stopped), state.steps[:, last]))
    distance = jnp.broadcast_to(1 + jnp.arange(length), (spec.own_envs, length))
    blank = jnp.broadcast_to(blank_frames(obs, spec), (spec.own_envs,))[:, None]
    nothing = jnp.zeros((spec.own_envs, length))
    fillers = pack(Row(distance, nothing, jnp.full(distance.shape, STOPPED), blank, jnp.bool_(True)))
    return state._replace(
        observations=jax.tree.map(lambda store, x: put(store, x[:, None]), state.observations, newest(obs, spec)),
        steps=put(steps, fillers),
        added=first + length,
        interrupted=first + length,
    )


def nearest_step(state: RingState, env: Array, time: Array, oldest: Array, spec: EnvSpec) -> Array:
    """These times `[batch]`, but for fillers that of the last step before or, if that is gone, of the first after."""
    there = unpack(look_up(state.steps, env, time % state.steps.shape[1]))
    back = time - there.action
    step = jnp.where(back >= oldest, back, back + 1 + spec.rollout_length)
    return jnp.where(there.filler, step, time)
