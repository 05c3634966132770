"""A replay of whole episodes as single frames, with a gap before each: how the treasure hunt's reference remembers.

What a network sees is a stack of the last frames.  A row holds one frame, and windows of consecutive rows are
put together when they are drawn.  The gap is as wide as a stack has older frames, so that the first stacks of an
episode hold none of the one before, if the gap is blank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from rollax.memory.replay import Buffer, Replay, Request, Sample
from rollax.memory.ring import Batch
from rollax.rules.targets import n_step
from rollax.settings import Limit, setting
from rollax.types import Array, EnvSpec, Key, Observation, Transition


class EpochState(NamedTuple):
    """Rows of a ring; `row` is where the next one goes, `size` how many count as filled."""

    frames: Array  # [capacity, D]
    action: Array  # int32[capacity]
    reward: Array  # float32[capacity]
    done: Array  # bool[capacity]: the last of an episode
    row: Array
    size: Array


@dataclass(frozen=True)
class EpochReplay(Replay):
    """Windows are drawn uniformly, and none twice for one batch.

    The defaults are sound.  The other choices repeat what the reference does: its gaps show old frames once the ring
    has gone round, no end of an episode is ever noted, the newest rows wait until old ones are counted, and `n_step`
    discounts a single reward's successor.
    """

    capacity: int = setting(1_024, "Number of rows that the replay buffer holds, with the gaps between episodes.")
    gap_fill: Literal["zero", "stale"] = setting(
        "zero", "Whether the gap before an episode shows zeros or what stood there before.", rare=True
    )
    gap_size: int = setting(
        -1, "Number of rows of a gap that count as filled; -1 counts all.", limit=Limit(-1, 1_000), rare=True
    )
    episode_end: Literal["terminal", "never"] = setting(
        "terminal", "Whether the last turn of an episode is a termination to the learner.", rare=True
    )
    nstep_mode: Literal["full", "discount_only"] = setting(
        "full", "Whether n-step targets sum all rewards or only discount by n steps.", rare=True
    )
    sample_index: Literal["logical", "physical"] = setting(
        "logical",
        "Whether sampled windows are counted from the oldest row or from the buffer's first place.",
        rare=True,
    )

    def problems(self, spec: EnvSpec) -> list[str]:
        found = []
        if spec.num_envs != 1:
            found.append(f"replay=epoch keeps the episodes of one environment; num_envs={spec.num_envs} must be 1")
        if spec.rollout_length != spec.truncation_interval:
            found.append(
                f"replay=epoch needs whole episodes: rollout_length={spec.rollout_length} must be "
                f"{spec.truncation_interval}, the environment's time limit"
            )
        shapes = [leaf.shape for leaf in jax.tree.leaves(spec.observation.features)]
        if len(shapes) != 1 or len(shapes[0]) != 2 or spec.observation.legal is not None:
            found.append(
                "replay=epoch needs observations of shape (frames, numbers) without a mask: try replay=uniform"
            )
        elif self.capacity < shapes[0][0] + spec.rollout_length:
            least = shapes[0][0] + spec.rollout_length
            found.append(
                f"capacity={self.capacity} does not hold an episode and its gap; the least is capacity={least}"
            )
        return found

    def most_windows(self, spec: EnvSpec) -> int:
        shapes = [leaf.shape for leaf in jax.tree.leaves(spec.observation.features)]
        stack = shapes[0][0] if shapes and shapes[0] else 1
        return self.capacity - stack - (1 if self.sample_index == "physical" else self.n_step - 1)

    def build(self, spec: EnvSpec) -> EpochBuffer:
        return EpochBuffer(self, spec)

    def least_warm_up(self, spec: EnvSpec) -> int:
        return 0  # a buffer says itself when it is ready


@dataclass(frozen=True)
class EpochBuffer(Buffer):
    """The rows of one environment's episodes."""

    settings: EpochReplay
    spec: EnvSpec

    @property
    def capacity(self) -> int:
        return self.settings.capacity

    @property
    def stack(self) -> int:
        """Frames of an observation."""
        return self.spec.observation.features.shape[0]

    def init(self) -> EpochState:
        (features,) = jax.tree.leaves(self.spec.observation.features)
        return EpochState(
            frames=jnp.zeros((self.capacity, features.shape[1]), features.dtype),
            action=jnp.zeros(self.capacity, jnp.int32),
            reward=jnp.zeros(self.capacity, jnp.float32),
            done=jnp.zeros(self.capacity, bool),
            row=jnp.int32(0),
            size=jnp.int32(0),
        )

    def add(self, state: EpochState, rollout: Transition) -> EpochState:
        """The memory with one episode `[T, 1, ...]` after a gap."""
        state = self.add_gap(state)
        ended = (rollout.terminated | rollout.truncated)[:, 0] & (self.settings.episode_end == "terminal")
        return self.add_rows(state, rollout.obs.features[:, 0, -1], rollout.action[:, 0], rollout.reward[:, 0], ended)

    def add_gap(self, state: EpochState) -> EpochState:
        length, counted = self.stack - 1, self.settings.gap_size
        counted = length if counted < 0 else counted
        if self.settings.gap_fill == "stale":
            return self.advance(state, length, counted)
        blank = jax.tree.map(lambda x: jnp.zeros((length, *x.shape[1:]), x.dtype), state[:4])
        return self.advance(self.put(state, *blank), length, counted)

    def add_rows(self, state: EpochState, frames: Array, action: Array, reward: Array, done: Array) -> EpochState:
        return self.advance(self.put(state, frames, action, reward, done), len(action), len(action))

    def put(self, state: EpochState, *rows: Array) -> EpochState:
        places = (state.row + jnp.arange(len(rows[0]))) % self.capacity
        stores = [
            store.at[places].set(values.astype(store.dtype), unique_indices=True)
            for store, values in zip(state[:4], rows, strict=True)
        ]
        return EpochState(*stores, state.row, state.size)

    def advance(self, state: EpochState, length: int, counted: int) -> EpochState:
        size = jnp.minimum(state.size + counted, self.capacity)
        return state._replace(row=(state.row + length) % self.capacity, size=size)

    def previous_frames(self, state: EpochState, count: int) -> Array:
        """The frames before the next row, the oldest first: `[count, D]`."""
        return state.frames[(state.row - count + jnp.arange(count)) % self.capacity]

    def interrupt(self, state: EpochState, obs: Observation) -> EpochState:
        return state  # every rollout is an episode of its own

    def num_windows(self, state: EpochState) -> Array:
        """How many windows can be drawn."""
        if self.settings.sample_index == "physical":
            return jnp.maximum(1, state.size - self.stack - 1)
        return jnp.maximum(0, state.size - self.stack - self.settings.n_step + 1)

    def ready(self, state: EpochState, batch_size: int) -> Array:
        return self.num_windows(state) >= batch_size

    def sample(self, state: EpochState, key: Key, request: Request) -> Sample:
        """Draws windows without replacement.  A window that reaches over an episode's end weighs nothing."""
        # The smallest of as many random numbers are a uniform draw without replacement.
        drawn = jax.random.uniform(key, (self.capacity,))
        drawn = jnp.where(jnp.arange(self.capacity) < self.num_windows(state), drawn, jnp.inf)
        start = jax.lax.top_k(-drawn, request.batch_size)[1]
        batch, valid = self.windows(state, start, request.discount)
        return Sample(batch, valid.astype(jnp.float32), ())

    def windows(self, state: EpochState, start: Array, discount: Array | float) -> tuple[Batch, Array]:
        """The windows with these numbers `[batch]`, and whether each lies within one episode."""
        settings, stack = self.settings, self.stack
        base = jnp.where(state.size == self.capacity, state.row, 0) if settings.sample_index == "logical" else 0
        first = base + start
        ahead = settings.n_step if settings.nstep_mode == "full" else 1

        def rows(offset: int, count: int) -> Array:
            return (first[:, None] + offset + jnp.arange(count)) % self.capacity

        steps = rows(stack - 1, ahead)
        done = state.done[steps]
        target = n_step(state.reward[steps], done, jnp.zeros_like(done), discount)
        # In the end nothing follows; else the target goes on after n steps, however many rewards it sums.
        goes_on = ~jnp.any(done, axis=1)
        batch = Batch(
            obs=Observation(state.frames[rows(0, stack)]),
            action=state.action[steps[:, 0]],
            reward=target.reward,
            discount=jnp.where(goes_on, discount**settings.n_step, 0.0),
            next_obs=Observation(state.frames[rows(ahead, stack)]),
        )
        return batch, ~jnp.any(state.done[rows(0, stack - 1)], axis=1)
