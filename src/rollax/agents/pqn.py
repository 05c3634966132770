"""PQN: Q(lambda) on fresh rollouts, with layer normalisation in place of a replay and a target network.

(Gallici et al. 2024.)  A rollout is turned into lambda-returns once, and then learnt from in shuffled minibatches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.agents.base import Lessons, OptimizerName, Recipe, batch_size, make_optimizer
from rollax.agents.q_learner import NoisyActing, QLearner
from rollax.agents.rollouts import (
    Past,
    RolloutConfig,
    RolloutHParams,
    flatten_time,
    lessons_of,
    minibatch,
    past_of,
    shuffled,
    successor_values,
)
from rollax.networks.heads import Head, ScalarHead, Streams
from rollax.networks.recurrence import Recurrence
from rollax.networks.torsos import MixedTorso, Torso
from rollax.rules.policies import mask_illegal
from rollax.rules.returns import ReturnDistribution
from rollax.rules.schedules import Exploration, LinearEpsilon
from rollax.rules.targets import lambda_returns
from rollax.settings import SHARE, setting
from rollax.tracing import mean_over
from rollax.types import Array, Carry, Decision, EnvSpec, Key, Metrics, Observation, Params, Transition


@struct.dataclass
class PQNHParams(RolloutHParams):
    """Numbers that may differ between the members of a population.  All are traced; parts are made of such numbers."""

    exploration: Exploration = LinearEpsilon()
    trace_lambda: float = setting(
        0.65, "Lambda of the lambda-returns: 0 is one-step, 1 is Monte Carlo.", limit=SHARE, group="targets"
    )


@dataclass(frozen=True)
class PQNConfig(RolloutConfig):
    """Choices that shape the compiled program.  All are static."""

    torso: Torso = MixedTorso(layer_norm=True)
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
    past: Past | tuple[()] = ()  # of a network that remembers; then all else is `[T, B, ...]`


@dataclass(frozen=True)
class PQN(QLearner):
    """The agent in one environment."""

    config: PQNConfig
    scales: bool = True  # whether a member may have a `reward_scale`

    def fitted(self, members: Sequence[Mapping[str, float]]) -> PQN:
        return replace(self, scales=any(member["reward_scale"] != 1 for member in members))

    @property
    def head(self) -> Head:
        return ScalarHead()

    @property
    def acting(self) -> NoisyActing:
        return NoisyActing()

    @property
    def recurrence(self) -> Recurrence:
        return self.config.recurrence

    @property
    def updates(self) -> int:
        return self.config.updates

    def init(self, key: Key, hparams: PQNHParams) -> tuple[PQNLearner, tuple]:
        params = self.initial_weights(key)
        optimizer = make_optimizer(self.config.optimizer, hparams)
        return PQNLearner(hparams, params, optimizer.init(params), jnp.int32(0)), ()

    def act(
        self, learner: PQNLearner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        """Actions; what is noted is the value of the best of them in each state."""
        carry, action, q_values = self.choose(learner, carry, obs, fresh, key, explore=explore)
        return Decision(action, jnp.max(mask_illegal(q_values, obs.legal), axis=-1), carry)

    def begin(
        self, learner: PQNLearner, memory: tuple, rollout: Transition, key: Key
    ) -> tuple[tuple[PQNLearner, tuple], Lessons]:
        hp, value_key, epoch_key = learner.hparams, *jax.random.split(key)
        next_value = self.next_values(learner.params, rollout, value_key)
        reward = hp.reward_scale * rollout.reward if self.scales else rollout.reward
        target = lambda_returns(reward, next_value, rollout.terminated, rollout.truncated, hp.discount, hp.trace_lambda)
        lesson = Lesson(rollout.obs, rollout.action, jax.lax.stop_gradient(target), past_of(rollout, self.recurrence))
        shared = lessons_of(lesson, self.recurrence), self.epsilon(learner)
        return (learner, memory), Lessons(shared, shuffled(self.spec, self.config, epoch_key))

    def conclude(
        self, progress: tuple[PQNLearner, tuple], lessons: Lessons, metrics: Metrics
    ) -> tuple[PQNLearner, tuple, Metrics]:
        return *progress, {**metrics, "epsilon": lessons.shared[1]}

    def step(
        self, progress: tuple[PQNLearner, tuple], shared: tuple[Lesson, Array], own: tuple[Array, Key]
    ) -> tuple[tuple[PQNLearner, tuple], Metrics]:
        """A gradient step."""
        (learner, memory), (rows, key) = progress, own
        lesson = minibatch(shared[0], rows, self.recurrence)

        def loss_of(params: Params) -> Array:
            taken = jax.nn.one_hot(lesson.action.reshape(-1), self.spec.num_actions)
            predicted = jnp.sum(taken * self.predicted(params, lesson, key).mean(), axis=-1)
            return 0.5 * jnp.mean((predicted - lesson.target.reshape(-1)) ** 2)

        loss, grads = mean_over(self.spec, jax.value_and_grad(loss_of)(learner.params))
        params, opt_state, grad_norm = self.descend(learner, grads)
        after = PQNLearner(learner.hparams, params, opt_state, learner.gradient_steps + 1)
        return (after, memory), {"loss": loss, "grad_norm": grad_norm}

    def predicted(self, params: Params, lesson: Lesson, key: Key) -> ReturnDistribution:
        """The returns of all actions in the lesson's states, row by row."""
        if isinstance(lesson.past, Past):
            carry = jax.tree.map(lambda x: x[0], lesson.past.carry)
            _, seen, _ = self.remembered(params, carry, lesson.obs.features, lesson.past.fresh)
            return self.judged(params, flatten_time(seen), key)
        return self.returns(params, lesson.obs, key)

    def next_values(self, params: Params, rollout: Transition, key: Key) -> Array:
        """The best legal action's value in the true successor of every step `[T, B]`."""

        def best(carry: Carry, obs: Observation) -> Array:
            _, ask = self.look(params, carry, obs, jnp.zeros(batch_size(obs), bool))
            return jnp.max(mask_illegal(ask(key, None).mean(), obs.legal), axis=-1)

        last = jax.tree.map(lambda x: x[-1], (rollout.carry, rollout.obs, rollout.fresh))
        carry, _ = self.look(params, *last)
        return successor_values(self.spec, rollout, rollout.notes, carry, best)


PQN_RECIPE = Recipe(PQNConfig(), PQNHParams(), {"num_envs": 32, "rollout_length": 32, "warm_up_steps": 0})
