"""What all learners of action values do alike: see, act, and count their steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp

from rollax.agents.base import HIDING_OPTIMIZERS, Stepwise, epsilon_at
from rollax.networks.heads import Head
from rollax.networks.models import QNetwork
from rollax.rules.policies import epsilon_greedy
from rollax.rules.returns import ReturnDistribution
from rollax.types import Array, Carry, EnvSpec, Key, Observation, Params


@dataclass(frozen=True)
class QLearner(Stepwise):
    """An agent that knows the return of every action.

    Its choices have `torso`, `streams` and `evaluation_epsilon`; its learner has `hparams`, `params` and
    `gradient_steps`.
    """

    metric_names: ClassVar[tuple[str, ...]] = ("loss", "epsilon")

    config: Any
    spec: EnvSpec

    @property
    def head(self) -> Head:
        """What its returns are made of."""
        return self.config.head

    @property
    def acting(self) -> Any:
        """How it asks for the values that it acts by: a part of `rollax.agents.acting`."""
        return self.config.acting

    @property
    def updates(self) -> int:
        """Gradient steps of one iteration."""
        return self.config.gradient_steps

    @cached_property
    def network(self) -> QNetwork:
        return QNetwork(self.spec.num_actions, self.config.torso, self.config.streams, self.head)

    def returns(
        self,
        params: Params,
        obs: Observation,
        noise: Key | None = None,
        levels: Key | None = None,
        taus: Array | None = None,
    ) -> ReturnDistribution:
        """The return of every action, with that noise and, if other than its key, those quantile levels.

        Without a key, the mean network's; at levels `taus` `[B, N]` if they are given.
        """
        rngs = None if noise is None else {"noise": noise, "levels": noise if levels is None else levels}
        return cast(ReturnDistribution, self.network.apply(params, obs.features, None, taus, rngs=rngs))

    def choose(
        self, learner: Any, obs: Observation, key: Key, *, explore: bool, lazily: bool = False
    ) -> tuple[Array, Array]:
        """Actions `[B]`, and the values of all of them `[B, A]`: if lazily, anything where they were not asked for."""
        rows = jax.tree.leaves(obs.features)[0].shape[0]
        coins, drawn = self.acting.draw(key, rows)
        epsilon = self.epsilon(learner) if explore else self.config.evaluation_epsilon

        def ask(key: Key | None, taus: Array | None) -> ReturnDistribution:
            return self.returns(learner.params, obs, key, taus=taus)

        def values() -> Array:
            return self.acting.values(ask, drawn, explore=explore)

        if lazily and rows == 1:  # a single random action needs no network
            blank = jnp.zeros((1, self.spec.num_actions))
            q_values = jax.lax.cond(coins[0, 0] < epsilon, lambda: blank, values)
        else:
            q_values = values()
        return epsilon_greedy(coins, q_values, obs.legal, epsilon), q_values

    def epsilon(self, learner: Any) -> Array:
        """The share of random actions now."""
        return epsilon_at(learner.hparams, self.env_steps(learner), self.spec.steps_per_iteration)

    @property
    def hides_nans(self) -> bool:
        return self.head.hides_nans or self.config.optimizer in HIDING_OPTIMIZERS

    def scores(self, learner: Any, carry: Carry, obs: Observation, fresh: Array) -> Array:
        """The mean network's values."""
        return self.returns(learner.params, obs).mean()

    def env_steps(self, learner: Any) -> Array:
        """Environment steps since learning began, which all schedules count."""
        return learner.gradient_steps / self.updates * self.spec.steps_per_iteration
