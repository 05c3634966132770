"""What agents do alike that learn from fresh rollouts: values of successors, and passes over shuffled minibatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from rollax.agents.base import AgentConfig, OptimizerHParams
from rollax.networks.recurrence import NoRecurrence, Recurrence
from rollax.networks.torsos import MixedTorso, Torso
from rollax.settings import COUNT, POSITIVE, SHARE, setting
from rollax.tracing import SAMPLING, phase
from rollax.types import Array, Carry, EnvSpec, Key, Observation, Transition

MOST_BITS = 14  # of a number that is to be shuffled; 18 of 32 random bits are left to tell two of them apart


@struct.dataclass
class RolloutHParams(OptimizerHParams):
    """Numbers that such agents have alike, and that may differ between the members of a population."""

    discount: float = setting(0.99, "Discount factor of future rewards.", limit=SHARE, group="targets")
    reward_scale: float = setting(
        1.0,
        "Factor of the rewards that are learnt from; logs and evaluations show the true ones.",
        limit=POSITIVE,
        group="targets",
        rare=True,
    )


@dataclass(frozen=True)
class RolloutConfig(AgentConfig):
    """What such agents choose alike."""

    torso: Torso = MixedTorso()
    recurrence: Recurrence = NoRecurrence()
    epochs: int = setting(4, "Number of passes over each rollout.", limit=COUNT, group="rollouts")
    minibatches: int = setting(
        4,
        "Number of minibatches that a rollout is split into, each for one gradient step.",
        limit=COUNT,
        group="rollouts",
        memory=True,
    )

    def problems(self, spec: EnvSpec) -> list[str]:
        whole = self.recurrence.remembers
        return self.torso.problems(spec.observation) + minibatch_problems(spec, self.minibatches, whole=whole)

    @property
    def updates(self) -> int:
        """Gradient steps after each rollout."""
        return self.epochs * self.minibatches

    def rows_of_an_update(self, spec: EnvSpec) -> int:
        return spec.steps_per_iteration // self.minibatches


class Past(NamedTuple):
    """Where a network with a memory begins to read rollouts `[T, B]`."""

    carry: Carry  # [1, B, ...]: as it was before their first steps
    fresh: Array  # [T, B]: which observations are the first of an episode


def past_of(rollout: Transition, recurrence: Recurrence) -> Past | tuple[()]:
    """The past of a rollout, for a network that remembers; for others `()`."""
    if not recurrence.remembers:
        return ()
    assert rollout.fresh is not None
    return Past(jax.tree.map(lambda x: x[:1], rollout.carry), rollout.fresh)


def successor_values(
    spec: EnvSpec,
    rollout: Transition,
    noted: Array,
    carry: Carry,
    value_of: Callable[[Carry, Observation], Array],
) -> Array:
    """The value of the true successor of every step `[T, B]`; `noted` are those of the observations that were met.

    Most successors are the next step's observation, whose value `act` has noted, with the same weights or those of one
    rollout before.  What is left are the rollout's last successors, and the ends that a time limit set: nobody acted
    there.  They are asked for with the carry after their step, of which the last is `carry`, as what goes on and is
    not the first of an episode.
    """
    length, num_envs = rollout.reward.shape
    after = jax.tree.map(lambda rows, last: jnp.concatenate([rows[1:], last[None]]), rollout.carry, carry)
    if spec.truncation_interval < length:
        return value_of(*flatten_time((after, rollout.next_obs))).reshape(length, num_envs)
    when, env = jnp.argmax(rollout.truncated, axis=0), jnp.arange(num_envs)  # at most one for each environment
    asked = jax.tree.map(lambda x: jnp.concatenate([x[-1], x[when, env]]), (after, rollout.next_obs))
    last, cut = jnp.split(value_of(*asked), 2)
    return jnp.where(rollout.truncated, cut, jnp.concatenate([noted[1:], last[None]]))


def flatten_time(rollout: Any) -> Any:
    """A tree of `[T, B, ...]` as one of `[T * B, ...]`."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)


def lessons_of(rollout: Any, recurrence: Recurrence) -> Any:
    """What is learnt from, a tree of `[T, B, ...]`, as it is shuffled: step by step, or environments with all steps."""
    return rollout if recurrence.remembers else flatten_time(rollout)


def shuffled(spec: EnvSpec, config: RolloutConfig, key: Key) -> tuple[Array, Key]:
    """For each gradient step the numbers of its lessons, all of them in each epoch in a new order, and its key.

    Lessons are steps, or, for a network that remembers, environments with all of their steps.
    """
    size = lesson_count(spec, whole=config.recurrence.remembers)
    with phase(SAMPLING):
        order_key, step_key = jax.random.split(key)
        rows = random_orders(order_key, config.epochs, size).reshape(config.updates, -1)
        return rows, jax.random.split(step_key, config.updates)


def random_orders(key: Key, count: int, size: int) -> Array:
    """So many random orders of the numbers below `size`, `int32[count, size]`.

    Each number stands in the last bits of a random one, and all are sorted once; two whose random bits are the same,
    one pair in 2^18 or fewer, stay as they were.  JAX's own way sorts pairs, twice where there are many, which took a
    third of PQN's time in a small program on a CPU.
    """
    bits = max(size - 1, 1).bit_length()
    if bits > MOST_BITS:
        return jax.vmap(lambda key: jax.random.permutation(key, size))(jax.random.split(key, count))
    drawn = jax.random.bits(key, (count, size), jnp.uint32)
    numbered = (drawn >> bits << bits) | jnp.arange(size, dtype=jnp.uint32)
    return (jnp.sort(numbered, axis=1) & jnp.uint32(2**bits - 1)).astype(jnp.int32)


def minibatch(lessons: Any, rows: Array, recurrence: Recurrence) -> Any:
    """Those of the lessons."""
    with phase(SAMPLING):
        return jax.tree.map(lambda x: x[:, rows] if recurrence.remembers else x[rows], lessons)


def lesson_count(spec: EnvSpec, *, whole: bool) -> int:
    """How many lessons a shard has of a rollout: its steps, or its environments, where each stays whole."""
    return spec.own_envs if whole else spec.share(spec.steps_per_iteration)


def minibatch_problems(spec: EnvSpec, minibatches: int, *, whole: bool = False) -> list[str]:
    """Whether a rollout can be cut into that many equal parts."""
    count = lesson_count(spec, whole=whole)
    if minibatches < 1 or count % minibatches == 0:
        return []
    near = min((part for part in range(1, count + 1) if count % part == 0), key=lambda part: abs(part - minibatches))
    each = f" of each of {spec.shards} devices" if spec.shards > 1 else ""
    what = "num_envs" if whole else "num_envs * rollout_length"
    wanted = f"minibatches={minibatches} does not divide {what} = {count}{each}"
    why = ", and a recurrent network learns from whole rollouts of environments" if whole else ""
    return [f"{wanted}{why}; try minibatches={near}"]
