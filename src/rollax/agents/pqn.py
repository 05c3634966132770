"""PQN: Q(lambda) on fresh rollouts, with layer normalisation in place of a replay and a target network.

(Gallici et al. 2024.)  A rollout is turned into lambda-returns once, and then learnt from in shuffled minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.agents.base import OptimizerHParams, OptimizerName, Recipe, blank_features, make_optimizer
from rollax.agents.q_learner import NoisyActing, QLearner
from rollax.agents.rollouts import RolloutConfig, flatten_time, minibatch, shuffled, successor_values
from rollax.networks.heads import Head, ScalarHead, Streams
from rollax.networks.torsos import MLP, Torso
from rollax.rules.policies import mask_illegal
from rollax.rules.schedules import Exploration, LinearEpsilon
from rollax.rules.targets import lambda_returns
from rollax.settings import SHARE, setting
from rollax.tracing import mean_over
from rollax.types import Array, Carry, Decision, EnvSpec, Key, Metrics, Observation, Params, Transition


@struct.dataclass
class PQNHParams(OptimizerHParams):
    """Numbers that may differ between the members of a population.  All are traced; parts are made of such numbers."""

    exploration: Exploration = LinearEpsilon()
    discount: float = setting(0.99, "Discount factor of future rewards.", limit=SHARE, group="targets")
    trace_lambda: float = setting(
        0.65, "Lambda of the lambda-returns: 0 is one-step, 1 is Monte Carlo.", limit=SHARE, group="targets"
    )


@dataclass(frozen=True)
class PQNConfig(RolloutConfig):
    """Choices that shape the compiled program.  All are static."""

    torso: Torso = MLP(layer_norm=True)
    streams: Streams = setting(Streams(), group="network")
    epochs: int = 2
    optimizer: OptimizerName = setting("radam", "The optimizer's rule.", group="optimizer", rare=True)
    evaluation_epsilon: float = setting(
        0.0, "Share of random actions in evaluations.", limit=SHARE, group="evaluation and logging", protocol=True
    )

    def build(self, spec: EnvSpec) -> PQN:
        return PQN(self, spec)


class PQNLearner(NamedTuple):
    """What learning changes."""

    hparams: PQNHParams
    params: Params
    opt_state: optax.OptState
    gradient_steps: Array


class Lesson(NamedTuple):
    """What one prediction should have been: `[N, ...]`."""

    obs: Observation
    action: Array
    target: Array


@dataclass(frozen=True)
class PQN(QLearner):
    """The agent in one environment."""

    config: PQNConfig

    @property
    def head(self) -> Head:
        return ScalarHead()

    @property
    def acting(self) -> NoisyActing:
        return NoisyActing()

    @property
    def updates(self) -> int:
        return self.config.epochs * self.config.minibatches

    def init(self, key: Key, hparams: PQNHParams) -> tuple[PQNLearner, tuple]:
        params = self.network.init(key, blank_features(self.spec))
        optimizer = make_optimizer(self.config.optimizer, hparams)
        return PQNLearner(hparams, params, optimizer.init(params), jnp.int32(0)), ()

    def act(
        self, learner: PQNLearner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        """Actions; what is noted is the value of the best of them in each state."""
        action, q_values = self.choose(learner, obs, key, explore=explore)
        return Decision(action, jnp.max(mask_illegal(q_values, obs.legal), axis=-1))

    def lessons(self, learner: PQNLearner, rollout: Transition, key: Key) -> tuple[Lesson, tuple[Array, Key]]:
        hp, value_key, epoch_key = learner.hparams, *jax.random.split(key)
        next_value = self.next_values(learner.params, rollout, value_key)
        target = lambda_returns(
            rollout.reward, next_value, rollout.terminated, rollout.truncated, hp.discount, hp.trace_lambda
        )
        lessons = flatten_time(Lesson(rollout.obs, rollout.action, jax.lax.stop_gradient(target)))
        return lessons, shuffled(lessons, epoch_key, self.config.epochs, self.config.minibatches)

    def step(
        self, progress: tuple[PQNLearner, tuple], shared: tuple[Lesson, Array], own: tuple[Array, Key]
    ) -> tuple[tuple[PQNLearner, tuple], Metrics]:
        """A gradient step."""
        (learner, memory), (rows, key) = progress, own
        lesson = minibatch(shared[0], rows)

        def loss_of(params: Params) -> Array:
            taken = jax.nn.one_hot(lesson.action, self.spec.num_actions)
            predicted = jnp.sum(taken * self.returns(params, lesson.obs, key).mean(), axis=-1)
            return 0.5 * jnp.mean((predicted - lesson.target) ** 2)

        loss, grads = mean_over(self.spec, jax.value_and_grad(loss_of)(learner.params))
        params, opt_state = self.descend(learner, grads)
        return (PQNLearner(learner.hparams, params, opt_state, learner.gradient_steps + 1), memory), {"loss": loss}

    def next_values(self, params: Params, rollout: Transition, key: Key) -> Array:
        """The best legal action's value in the true successor of every step `[T, B]`."""

        def best(obs: Observation) -> Array:
            return jnp.max(mask_illegal(self.returns(params, obs, key).mean(), obs.legal), axis=-1)

        return successor_values(self.spec, rollout, rollout.notes, best)


PQN_RECIPE = Recipe(PQNConfig(), PQNHParams(), {"num_envs": 32, "rollout_length": 32, "warm_up_steps": 0})
