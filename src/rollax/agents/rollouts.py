"""What agents do alike that learn from fresh rollouts: values of successors, and passes over shuffled minibatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from rollax.agents.base import AgentConfig
from rollax.networks.torsos import MLP, Torso
from rollax.settings import COUNT, setting
from rollax.tracing import SAMPLING, phase
from rollax.types import Array, EnvSpec, Key, Observation, Transition


@dataclass(frozen=True)
class RolloutConfig(AgentConfig):
    """What such agents choose alike."""

    torso: Torso = MLP()
    epochs: int = setting(4, "Number of passes over each rollout.", limit=COUNT, group="rollouts")
    minibatches: int = setting(
        4,
        "Number of minibatches that a rollout is split into, each for one gradient step.",
        limit=COUNT,
        group="rollouts",
        memory=True,
    )

    def problems(self, spec: EnvSpec) -> list[str]:
        return self.torso.problems(spec.observation) + minibatch_problems(spec, self.minibatches)

    def rows_of_an_update(self, spec: EnvSpec) -> int:
        return spec.steps_per_iteration // self.minibatches


def successor_values(
    spec: EnvSpec, rollout: Transition, noted: Array, value_of: Callable[[Observation], Array]
) -> Array:
    """The value of the true successor of every step `[T, B]`; `noted` are those of the observations that were met.

    Most successors are the next step's observation, whose value `act` has noted, with the same weights or those of one
    rollout before.  What is left are the rollout's last successors, and the ends that a time limit set: nobody acted
    there.
    """
    length, num_envs = rollout.reward.shape
    if spec.truncation_interval < length:
        return value_of(flatten_time(rollout.next_obs)).reshape(length, num_envs)
    when, env = jnp.argmax(rollout.truncated, axis=0), jnp.arange(num_envs)  # at most one for each environment
    asked = jax.tree.map(lambda x: jnp.concatenate([x[-1], x[when, env]]), rollout.next_obs)
    last, cut = jnp.split(value_of(asked), 2)
    return jnp.where(rollout.truncated, cut, jnp.concatenate([noted[1:], last[None]]))


def flatten_time(rollout: Any) -> Any:
    """A tree of `[T, B, ...]` as one of `[T * B, ...]`."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)


def shuffled(lessons: Any, key: Key, epochs: int, minibatches: int) -> tuple[Array, Key]:
    """Rows of lessons `[N, ...]` for each gradient step, all of them in each epoch in a new order, and its key."""
    size = len(jax.tree.leaves(lessons)[0])

    def epoch(key: Key) -> tuple[Array, Key]:
        shuffle_key, step_key = jax.random.split(key)
        order = jax.random.permutation(shuffle_key, size).reshape(minibatches, -1)
        return order, jax.random.split(step_key, minibatches)

    with phase(SAMPLING):
        rows, keys = jax.lax.map(epoch, jax.random.split(key, epochs))
    return rows.reshape(epochs * minibatches, -1), keys.reshape(-1)


def minibatch(lessons: Any, rows: Array) -> Any:
    """Those of the lessons."""
    with phase(SAMPLING):
        return jax.tree.map(lambda x: x[rows], lessons)


def minibatch_problems(spec: EnvSpec, minibatches: int) -> list[str]:
    """Whether a rollout can be cut into that many equal parts."""
    steps = spec.share(spec.steps_per_iteration)
    if minibatches < 1 or steps % minibatches == 0:
        return []
    near = min((count for count in range(1, steps + 1) if steps % count == 0), key=lambda c: abs(c - minibatches))
    each = f" of each of {spec.shards} devices" if spec.shards > 1 else ""
    wanted = f"minibatches={minibatches} does not divide num_envs * rollout_length = {steps}{each}"
    return [f"{wanted}; try minibatches={near}"]
