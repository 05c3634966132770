"""An agent that remembers: it counts the steps of its episode, and acts by that alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from rollax.agents.base import Agent, AgentConfig, Recipe
from rollax.types import Decision, EnvSpec


@struct.dataclass
class HParams:
    learning_rate: float = 0.5


@dataclass(frozen=True)
class Config(AgentConfig):
    def build(self, spec: EnvSpec) -> Counting:
        return Counting(spec)


class Learner(NamedTuple):
    hparams: Any
    params: dict[str, jax.Array]


@dataclass(frozen=True)
class Counting(Agent):
    """Takes action 1 in every third step of an episode.  What it learns is the sum of all that it has counted.

    Its count begins at 1, so that a carry that is merely zero is not one that was cleared.
    """

    metric_names: ClassVar[tuple[str, ...]] = ("loss", "wrong")

    spec: EnvSpec

    def init(self, key, hparams):
        return Learner(hparams, {"total": jnp.float32(0)}), ()

    def initial_carry(self, num):
        return {"count": jnp.ones(num, jnp.int32)}

    def act(self, learner, carry, obs, fresh, key, *, explore):
        count = self.enter(carry, fresh)["count"]
        return Decision((count % 3 == 0).astype(jnp.int32), count, {"count": count + 1})

    def learn(self, learner, memory, rollout, key):
        """Counts again what it has counted: unrolling through the rollout must agree with stepping through it."""

        def step(carry, row):
            fresh, noted = row
            count = self.enter(carry, fresh)["count"]
            return {"count": count + 1}, count != noted

        first = jax.tree.map(lambda leaf: leaf[0], rollout.carry)
        _, wrong = jax.lax.scan(step, first, (rollout.fresh, rollout.notes))
        # The carry of each row is that of before its step.
        later = jnp.where(rollout.fresh, 1, rollout.carry["count"]) != rollout.notes
        params = {"total": learner.params["total"] + jnp.sum(rollout.notes)}
        return learner._replace(params=params), memory, {"loss": jnp.float32(0), "wrong": jnp.sum(wrong | later) * 1.0}


RECIPE = Recipe(Config(), HParams(), {"num_envs": 4, "rollout_length": 5, "warm_up_steps": 0})
