"""Parts that exist to repeat how the treasure hunt's reference learns, and which its presets name.

They stand in the places of any agent of the DQN family: `--exploration shrinking`, `--target synced`,
`--objective weighted`, `--acting quiet`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct

from rollax.agents.base import batch_size
from rollax.agents.dqn import MeanLoss
from rollax.agents.q_learner import Ask, NoisyActing
from rollax.networks.heads import midpoints
from rollax.rules.policies import epsilon_greedy
from rollax.rules.schedules import Exploration, PeriodicTarget
from rollax.settings import COUNT, COUNT_OR_NONE, POSITIVE, SHARE, setting
from rollax.types import Array, EnvSpec, Key, Observation


@struct.dataclass
class ShrinkingEpsilon(Exploration):
    """The share of random actions shrinks by the same share with every iteration, down to its end."""

    epsilon_decay: float = setting(
        0.0, "Share by which epsilon shrinks in every iteration, down to its end; 0 keeps it.", limit=SHARE, rare=True
    )

    def epsilon(self, env_steps: Array | float, spec: EnvSpec) -> Array:
        left = (1.0 - self.epsilon_decay) ** jnp.round(env_steps / spec.steps_per_iteration)
        return jnp.maximum(self.epsilon_start * left, self.epsilon_end)


@struct.dataclass
class SyncedTarget(PeriodicTarget):
    """Target weights are copied whole from time to time, beside their other moves."""

    sync_period: int = setting(
        0,
        "Number of iterations between full copies to the target network, beside its other updates; 0 makes none.",
        limit=COUNT_OR_NONE,
        rare=True,
    )

    def step_size(self, gradient_steps: Array, updates: int) -> Array:
        whole = (self.sync_period > 0) & (gradient_steps % jnp.maximum(self.sync_period * updates, 1) == 0)
        return jnp.where(whole, 1.0, super().step_size(gradient_steps, updates))


@struct.dataclass
class WeightedLoss(MeanLoss):
    """The mean loss of a batch, multiplied with a number."""

    loss_weight: float = setting(
        1.0, "Factor of the loss, which matters where gradients are clipped.", limit=POSITIVE, rare=True
    )

    def value(self, losses: Array) -> Array:
        return self.loss_weight * jnp.mean(losses)


@dataclass(frozen=True)
class QuietActing(NoisyActing):
    """With the mean weights always, and levels of its own for implicit quantiles.

    A single decision that is random asks no network: the values that come back are then blank.
    """

    act_levels: int = setting(
        32, "Number of quantile levels that an implicit quantile network acts by.", limit=COUNT, rare=True
    )
    act_level_choice: Literal["random", "midpoint"] = setting(
        "random", "Whether the quantile levels to act by are drawn for each decision or evenly spread.", rare=True
    )

    def choose(
        self, ask: Ask, obs: Observation, epsilon: Array | float, key: Key, *, explore: bool
    ) -> tuple[Array, Array]:
        rows = batch_size(obs)
        # All in one: where a single decision is one row, each draw of its own would take as long as the network.
        drawn = jax.random.uniform(key, (2 + self.act_levels, rows))
        coins, levels = drawn[:2], drawn[2:].T
        if self.act_level_choice == "midpoint":
            levels = jnp.broadcast_to(midpoints(self.act_levels), levels.shape)

        def values() -> Array:
            return ask(None, levels).mean()

        if rows == 1:
            blank = jnp.zeros(jax.eval_shape(values).shape)
            q_values = jax.lax.cond(coins[0, 0] < epsilon, lambda: blank, values)
        else:
            q_values = values()
        return epsilon_greedy(coins, q_values, obs.legal, epsilon), q_values
