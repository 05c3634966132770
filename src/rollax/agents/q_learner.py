"""What all learners of action values do alike: see, act, and count their steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp

from rollax.agents.base import (
    HIDING_OPTIMIZERS,
    Descent,
    Opinion,
    Stepwise,
    apply_gradients,
    batch_size,
    blank_features,
)
from rollax.networks.heads import Head, QNetwork
from rollax.networks.recurrence import NoRecurrence, Recurrence
from rollax.rules.policies import epsilon_greedy
from rollax.rules.returns import ReturnDistribution
from rollax.types import Array, Carry, EnvSpec, Key, Observation, Params

# Returns of all actions, of a key for noise and levels, or None for the mean network, and of given levels [B, N].
Ask = Callable[[Key | None, Array | None], ReturnDistribution]


@dataclass(frozen=True)
class NoisyActing:
    """With noise, where the network has any, as long as it explores; then with the mean network."""

    def choose(
        self, ask: Ask, obs: Observation, epsilon: Array | float, key: Key, *, explore: bool
    ) -> tuple[Array, Array]:
        """Actions `[B]`, of which the share `epsilon` is random, and the values `[B, A]` that they were chosen by."""
        noise_key, coin_key = jax.random.split(key)
        coins = jax.random.uniform(coin_key, (2, batch_size(obs)))
        q_values = ask(noise_key if explore else None, None).mean()
        return epsilon_greedy(coins, q_values, obs.legal, epsilon), q_values


@dataclass(frozen=True)
class QLearner(Stepwise):
    """An agent that knows the return of every action.

    Its choices have `torso`, `streams`, `optimizer` and `evaluation_epsilon`; its learner has `hparams`, among them an
    `exploration`, `params`, `opt_state` and `gradient_steps`.
    """

    metric_names: ClassVar[tuple[str, ...]] = ("loss", "grad_norm", "epsilon")

    config: Any
    spec: EnvSpec

    @property
    def head(self) -> Head:
        """What its returns are made of."""
        return self.config.head

    @property
    def acting(self) -> Any:
        """How it chooses by its values: a part as in `rollax.agents.acting`."""
        return self.config.acting

    @property
    def recurrence(self) -> Recurrence:
        """What it remembers with."""
        return NoRecurrence()

    @cached_property
    def network(self) -> QNetwork:
        return QNetwork(self.spec.num_actions, self.config.torso, self.config.streams, self.head, self.recurrence)

    def initial_weights(self, key: Key) -> Params:
        """The network's initial weights."""
        if not self.recurrence.remembers:
            return self.network.init(key, blank_features(self.spec))
        features = jax.tree.map(lambda x: x[None], blank_features(self.spec))
        return self.network.init(key, self.initial_carry(1), features, jnp.ones((1, 1), bool), method="whole")

    def initial_carry(self, num: int) -> Carry:
        return self.recurrence.initial_carry(num)

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
        rngs = keys_of_a_pass(noise, levels)
        return cast(ReturnDistribution, self.network.apply(params, obs.features, None, taus, rngs=rngs))

    def look(self, params: Params, carry: Carry, obs: Observation, fresh: Array) -> tuple[Carry, Ask]:
        """The carry after observations `[B, ...]`, of which `fresh` are the first of an episode, and their returns."""
        if not self.recurrence.remembers:
            return carry, lambda noise, taus: self.returns(params, obs, noise, taus=taus)
        one = jax.tree.map(lambda x: x[None], (obs.features, fresh))
        carry, seen, _ = self.remembered(params, carry, *one)
        return carry, lambda noise, taus: self.judged(params, seen[0], noise, taus=taus)

    def remembered(self, params: Params, carry: Carry, features: Any, fresh: Array) -> tuple[Carry, Array, Carry]:
        """What has been seen by each of features `[T, B, ...]`, as a `Recurrence` gives it."""
        return cast(Any, self.network.apply(params, carry, features, fresh, method="remember"))

    def judged(
        self,
        params: Params,
        seen: Array,
        noise: Key | None = None,
        levels: Key | None = None,
        taus: Array | None = None,
    ) -> ReturnDistribution:
        """As `returns`, for rows `[N, D]` of what `remembered` has seen."""
        rngs = keys_of_a_pass(noise, levels)
        return cast(ReturnDistribution, self.network.apply(params, seen, None, taus, rngs=rngs, method="judge"))

    def choose(
        self, learner: Any, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> tuple[Carry, Array, Array]:
        """The carry from here on, actions `[B]`, and the values of all of them `[B, A]`, as `acting` has them."""
        epsilon = self.epsilon(learner) if explore else self.config.evaluation_epsilon
        carry, ask = self.look(learner.params, carry, obs, fresh)
        return carry, *self.acting.choose(ask, obs, epsilon, key, explore=explore)

    def epsilon(self, learner: Any) -> Array:
        """The share of random actions now."""
        return learner.hparams.exploration.share(self.env_steps(learner), self.spec)

    def descend(self, learner: Any, grads: Params, env_steps: Array | None = None) -> Descent:
        """The weights and the optimizer's state after one step down the gradient.

        `env_steps` is where schedules stand; None for what the learner itself has counted.
        """
        count = self.env_steps(learner) if env_steps is None else env_steps
        return apply_gradients(self.config.optimizer, learner.hparams, count, grads, learner.opt_state, learner.params)

    def doubtful(self, learner: Any) -> tuple[()]:
        """Nothing: weights change by gradients alone."""
        return ()

    @property
    def hides_nans(self) -> bool:
        return self.head.hides_nans or self.config.optimizer in HIDING_OPTIMIZERS

    def scores(self, learner: Any, carry: Carry, obs: Observation, fresh: Array) -> Array:
        """The mean network's values."""
        return self.look(learner.params, carry, obs, fresh)[1](None, None).mean()

    def opinion(self, learner: Any, carry: Carry, obs: Observation, fresh: Array) -> Opinion:
        """The mean network's returns."""
        return Opinion(returns=self.look(learner.params, carry, obs, fresh)[1](None, None))


def keys_of_a_pass(noise: Key | None, levels: Key | None) -> dict[str, Key] | None:
    """The keys of what is random in a network: those levels, if they have a key other than the noise."""
    return None if noise is None else {"noise": noise, "levels": noise if levels is None else levels}
