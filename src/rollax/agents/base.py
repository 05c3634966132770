"""What an agent is, and the few pieces that all agents share."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax.numpy as jnp

from rollax.types import Array, EnvSpec, Key, Metrics, Observation, Params, Transition

Learner = Any  # weights, optimizer, hyper-parameters: a pytree with a field `params`, the weights that act
Memory = Any  # past data: a pytree, `()` for agents that keep none


class Agent(Protocol):
    """Four verbs, all pure.  Whatever changes is in the learner and the memory, which the caller owns."""

    metric_names: ClassVar[tuple[str, ...]]  # what `learn` reports: `loss`, then the agent's own

    @property
    def spec(self) -> EnvSpec:
        """Where it acts."""
        ...

    def init(self, key: Key, hparams: Any) -> tuple[Learner, Memory]:
        """A new learner and an empty memory."""
        ...

    def act(self, learner: Learner, obs: Observation, key: Key, *, explore: bool) -> tuple[Array, Any]:
        """Legal actions `[B]` for observations `[B, ...]`, and what `learn` should be told of them."""
        ...

    def remember(self, memory: Memory, rollout: Transition) -> Memory:
        """The memory with a rollout `[T, B, ...]` added."""
        ...

    def learn(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Learner, Memory, Metrics]:
        """One iteration's learning; the metrics are scalars, named as in `metric_names`."""
        ...

    def with_weights(self, learner: Learner, params: Params) -> Learner:
        """A learner that starts from these weights wherever it would have used its own."""
        ...


def linear(start: Array | float, end: Array | float, fraction: Array | float) -> Array:
    """From `start` at 0 to `end` at 1, and constant beyond.  All three may be traced."""
    return start + (end - start) * jnp.clip(fraction, 0.0, 1.0)
