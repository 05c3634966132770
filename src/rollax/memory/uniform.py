"""A replay that shows every complete window equally often."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from rollax.memory.replay import Buffer, Request, RingReplay, Sample
from rollax.memory.ring import Ring
from rollax.memory.rows import RingState
from rollax.types import EnvSpec, Key, Observation, Transition


@dataclass(frozen=True)
class UniformReplay(RingReplay):
    """Every complete n-step window is drawn with the same probability."""

    def build(self, spec: EnvSpec) -> UniformBuffer:
        return UniformBuffer(self.ring(spec))


@dataclass(frozen=True)
class UniformBuffer(Buffer):
    """A ring from which windows are drawn uniformly, with replacement."""

    ring: Ring

    def init(self) -> RingState:
        return self.ring.empty()

    def add(self, state: RingState, rollout: Transition) -> RingState:
        return self.ring.write(state, rollout)

    def interrupt(self, state: RingState, obs: Observation) -> RingState:
        return self.ring.interrupt(state, obs)

    def sample(self, state: RingState, key: Key, request: Request) -> Sample:
        oldest, starts = self.ring.newest_starts(state, request.limit)
        windows = (self.ring.spec.own_envs * starts).astype(jnp.uint32)
        # A remainder of 32 random bits is uniform to one part in 2**32 / capacity, at a third of randint's cost.
        drawn = (jax.random.bits(key, (request.batch_size,)) % windows).astype(jnp.int32)
        env, time = drawn // starts, oldest + drawn % starts
        return Sample(self.ring.windows(state, env, time, request.discount), 1.0, ())
