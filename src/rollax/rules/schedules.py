"""What changes as a run goes on: numbers between two ends and by a schedule, epsilon, and how target weights follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from rollax.settings import COUNT, POSITIVE, SHARE, setting
from rollax.types import Array, EnvSpec


def linear(start: Array | float, end: Array | float, fraction: Array | float) -> Array:
    """From `start` at 0 to `end` at 1, and constant beyond.  All three may be traced."""
    return start + (end - start) * jnp.clip(fraction, 0.0, 1.0)


@struct.dataclass
class Schedule:
    """A number that depends on environment steps: by a table, or by one of several functions.

    All arrays are those of one member.  Members may follow tables of different lengths, whose last point is repeated.
    """

    steps: Array  # [points], which ascend
    values: Array  # [points]
    which: Array | None = None  # 0 for the table, else the number of a function, from 1; None where there are none
    functions: tuple[Callable[[Array], Array], ...] = struct.field(pytree_node=False, default=())

    def at(self, env_steps: Array | float) -> Array:
        """The number after so many environment steps of learning."""
        now = jnp.float32(env_steps)
        if self.which is None:
            return self.table(now)
        own = [lambda steps, one=one: jnp.float32(one(steps)) for one in self.functions]
        return jax.lax.switch(self.which, [self.table, *own], now)

    def table(self, now: Array) -> Array:
        """Linear between two points, and constant before the first and after the last; at a point its own value."""
        numbers = jnp.arange(len(self.steps))
        before = jnp.maximum(jnp.sum(now >= self.steps) - 1, 0)
        after = jnp.minimum(before + 1, len(self.steps) - 1)

        def pick(row: Array, number: Array) -> Array:
            return jnp.sum(jnp.where(numbers == number, row, 0.0))

        start, end = pick(self.steps, before), pick(self.steps, after)
        share = (now - start) / jnp.where(end > start, end - start, 1.0)
        return linear(pick(self.values, before), pick(self.values, after), jnp.where(end > start, share, 0.0))


# The type of a setting that may be given as a schedule; its name ends in `_schedule`, and None leaves it out.  In an
# experiment it is a text, as `rollax.experiment.scheduled` reads it; in a learner it is a `Schedule`.
Scheduled = Schedule | None


@struct.dataclass
class Exploration(ABC):
    """How often an action is random: a part whose fields are traced numbers."""

    epsilon_start: float = setting(1.0, "Share of random actions at the start.", limit=SHARE)
    epsilon_end: float = setting(0.05, "Share of random actions in the end.", limit=SHARE, at_most="epsilon_start")
    epsilon_schedule: Scheduled = setting(
        None,
        "Share of random actions as a table of environment steps and values, "
        "like 0:1,1e5:0.1, or package.module:function.",
        limit=SHARE,
        searchable=False,
        rare=True,
    )

    def share(self, env_steps: Array | float, spec: EnvSpec) -> Array:
        """The share of random actions after so many environment steps of learning: the schedule's, if there is one."""
        return self.epsilon(env_steps, spec) if self.epsilon_schedule is None else self.epsilon_schedule.at(env_steps)

    @abstractmethod
    def epsilon(self, env_steps: Array | float, spec: EnvSpec) -> Array:
        """The share of random actions after so many environment steps of learning."""


@struct.dataclass
class LinearEpsilon(Exploration):
    """The share of random actions falls linearly."""

    epsilon_steps: float = setting(
        25_000.0,
        "Number of environment steps after the warm-up over which the share of random actions falls.",
        limit=POSITIVE,
    )

    def epsilon(self, env_steps: Array | float, spec: EnvSpec) -> Array:
        return linear(self.epsilon_start, self.epsilon_end, env_steps / self.epsilon_steps)


@struct.dataclass
class PeriodicTarget:
    """Target weights move towards the learnt ones from time to time: softly, or by copies."""

    target_period: int = setting(1, "Number of gradient steps between updates of the target network.", limit=COUNT)
    target_step: float = setting(
        0.01,
        "Share of the distance to the online network that the target network moves in an update; 1 copies it.",
        limit=SHARE,
    )

    def step_size(self, gradient_steps: Array, updates: int) -> Array:
        """How far the target weights move after so many gradient steps, of which an iteration has `updates`."""
        return jnp.where(gradient_steps % self.target_period == 0, self.target_step, 0.0)
