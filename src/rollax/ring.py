"""A ring of transitions, written in place, that rebuilds n-step windows when they are asked for.

Each observation is stored once.  The successor of a row is the observation of the row after it, except where a
time limit ended the episode: that last observation has no row of its own.  An environment with a time limit of
`truncation_interval` steps ends that way at most once in as many rows, so one spare place for each block of that
many rows holds them all.  (After a termination nothing is bootstrapped, so its last observation is never needed.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from rollax.limits import COUNT, Limit
from rollax.targets import n_step
from rollax.types import Array, EnvSpec, Observation, Transition

RUNNING, TERMINATED, TRUNCATED = 0, 1, 2


class Batch(NamedTuple):
    """What a Bellman update needs, with the n-step sum already taken: `reward + discount * value(next_obs)`."""

    obs: Observation
    action: Array
    reward: Array
    discount: Array
    next_obs: Observation


class RingState(NamedTuple):
    """Arrays lead with the environment; `observations` has the ring's rows and then the spare places."""

    observations: Observation  # [B, rows + spares, ...]
    steps: Array  # uint32[B, rows, 2]: what else a row holds, as `pack` writes it
    added: Array  # rows written so far, of one environment


def pack(action: Array, reward: Array, ending: Array) -> Array:
    """Action, reward and ending as two words `[..., 2]`, so that a look-up misses the cache once and not thrice."""
    word = (action.astype(jnp.uint32) << 2) | ending.astype(jnp.uint32)
    return jnp.stack([word, jax.lax.bitcast_convert_type(reward.astype(jnp.float32), jnp.uint32)], axis=-1)


def unpack(steps: Array) -> tuple[Array, Array, Array]:
    """Action, reward and ending of packed steps."""
    word, reward = steps[..., 0], steps[..., 1]
    action, ending = (word >> 2).astype(jnp.int32), (word & 3).astype(jnp.int32)
    return action, jax.lax.bitcast_convert_type(reward, jnp.float32), ending


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

    capacity: int = 10_000  # Transitions that are kept, of all environments together.
    n_step: int = 1  # Steps of reward in a target before it bootstraps.
    limits: ClassVar[dict[str, Limit]] = {"capacity": COUNT, "n_step": COUNT}

    def problems(self, spec: EnvSpec) -> list[str]:
        """What is wrong with this replay for that environment, each with its fix."""
        found = []
        unit = spec.steps_per_iteration
        least = unit * math.ceil((self.n_step + 1) / spec.rollout_length)
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
        places = (spec.num_envs, layout.rows + layout.spares)
        return RingState(
            observations=jax.tree.map(lambda x: jnp.zeros((*places, *x.shape), x.dtype), spec.observation),
            steps=jnp.zeros((spec.num_envs, layout.rows, 2), jnp.uint32),
            added=jnp.int32(0),
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
            last = values[jnp.argmax(truncated, axis=0), jnp.arange(spec.num_envs)]
            old = jax.lax.dynamic_index_in_dim(store, spare, axis=1, keepdims=False)
            kept = jnp.where(_expand(jnp.any(truncated, axis=0), last), last, old)
            return put(store, kept[None], spare)

        observations = jax.tree.map(lambda store, x: put(store, x, row), state.observations, rollout.obs)
        return RingState(
            observations=jax.tree.map(write_last, observations, rollout.next_obs),
            steps=put(state.steps, pack(rollout.action, rollout.reward, ending), row),
            added=state.added + spec.rollout_length,
        )

    def least_warm_up(self, spec: EnvSpec) -> int:
        return -(-(self.n_step + 1) // spec.rollout_length)

    def ready(self, state: Any, batch_size: int, spec: EnvSpec) -> bool:
        return True  # a warm-up has filled it

    def window_starts(self, state: RingState, spec: EnvSpec) -> tuple[Array, Array]:
        """The time of the oldest row, and how many complete windows of one environment begin from there on."""
        oldest = jnp.maximum(state.added - self.layout(spec).rows, 0)
        # The last n rows wait: their windows, or the observation after them, are not there yet.
        return oldest, state.added - self.n_step - oldest

    def windows(self, state: RingState, env: Array, time: Array, discount: Array | float, spec: EnvSpec) -> Batch:
        """The windows that begin at these times `[batch]` of these environments `[batch]`."""
        layout = self.layout(spec)
        window = (time[:, None] + jnp.arange(self.n_step)) % layout.rows
        action, reward, ending = unpack(_at(state.steps, env[:, None], window))
        target = n_step(reward, ending == TERMINATED, ending == TRUNCATED, discount)
        after = time + target.length
        successor = jnp.where(target.truncated, layout.spare_of(after - 1), after % layout.rows)

        def look_up(where: Array) -> Any:
            return jax.tree.map(lambda store: _at(store, env, where), state.observations)

        return Batch(look_up(window[:, 0]), action[:, 0], target.reward, target.discount, look_up(successor))


def _at(store: Array, env: Array, place: Array) -> Array:
    """`store[env, place]`, without the clamping that guards against indices that cannot occur here."""
    return store.at[env, place].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _expand(flag: Array, like: Array) -> Array:
    return flag.reshape(flag.shape + (1,) * (like.ndim - flag.ndim))
