"""Jumanji: `jumanji:Game2048-v1`."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import jumanji
import numpy as np

from rollax.envs.suites.game import Game, Move
from rollax.errors import EnvError
from rollax.types import Array, Key, Observation

MOST_COMBINATIONS = 4_096


def names() -> list[str]:
    """What it can make."""
    return sorted(jumanji.registered_environments())


def make(name: str) -> JumanjiGame:
    return JumanjiGame(jumanji.make(name))


def adapted(env: Any, params: Any) -> JumanjiGame:
    return JumanjiGame(env)


class JumanjiGame(Game):
    """A game for one.  Several choices at once become one numbered action for each combination of them.

    Most of its games call the end of time a termination; here it is a truncation, as everywhere.
    """

    def __init__(self, env: Any):
        self.env = env
        counts = getattr(env.action_spec, "num_values", None)
        mask = getattr(env.observation_spec, "action_mask", None)
        self.counts = tuple(np.ravel(counts).tolist()) if counts is not None else ()
        self.masked = mask is not None
        self.num_actions = math.prod(self.counts)
        masks = {None, self.counts, (len(self.counts), *self.counts[:1])}
        few = 0 < self.num_actions <= MOST_COMBINATIONS
        if env.reward_spec.shape or not few or getattr(mask, "shape", None) not in masks:
            raise EnvError(
                f"{type(env).__name__} is a game of jumanji that rollax cannot play yet: it plays those with one "
                f"reward, and choices of which there are at most {MOST_COMBINATIONS:,} combinations"
            )
        limit, (state, _) = getattr(env, "time_limit", None), jax.eval_shape(env.reset, jax.random.key(0))
        self.time_limit = int(limit) if limit is not None and hasattr(state, "step_count") else None
        self.truncation_interval = self.time_limit or 1

    def begin(self, key: Key) -> tuple[Any, Any]:
        state, step = self.env.reset(key)
        return self.shown(step.observation), state

    def move(self, key: Key, state: Any, action: Array) -> Move:
        del key  # its states have keys of their own
        several = self.env.action_spec.shape
        choices = jnp.stack(jnp.unravel_index(action, self.counts)).reshape(several) if several else action
        state, step = self.env.step(state, choices.astype(jnp.int32))
        last, late = step.last(), step.last() & (step.discount > 0)
        if self.time_limit is not None:
            late |= last & (state.step_count >= self.time_limit)
        return Move(self.shown(step.observation), state, step.reward, last & ~late, late)

    def shown(self, observation: Any) -> Any:
        """The fields of an observation by name, and the mask with a flag for each combination."""
        fields = opened(observation)
        if not self.masked:
            return fields
        legal = fields.pop("action_mask")
        if legal.shape != self.counts:  # a row for each choice
            legal = functools.reduce(jnp.logical_and, jnp.meshgrid(*legal, indexing="ij"))
        return Observation(next(iter(fields.values())) if len(fields) == 1 else fields, jnp.ravel(legal))


def opened(value: Any) -> Any:
    """What has fields, as a dictionary of them."""
    names = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    return value if names is None else {name: opened(getattr(value, name)) for name in names}
