"""The DQN family: DQN, Double, Dueling, n-step, prioritised, Noisy, C51, QR-DQN, IQN, Munchausen, Rainbow.

One update rule serves them all.  A member of the family is a choice of parts: a head says what a return is made of,
streams are the layers before it, a replay says which transitions come back, a backup says what follows the next
state, `double` says whose values choose there.  `FAMILY`, at the end, names the choices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.agents.base import (
    OptimizerName,
    Recipe,
    make_optimizer,
)
from rollax.agents.q_learner import NoisyActing, QLearner
from rollax.agents.replaying import ReplayConfig, ReplayHParams, Replaying
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Sample
from rollax.memory.uniform import UniformReplay
from rollax.networks.heads import CategoricalHead, Head, ImplicitQuantileHead, QuantileHead, ScalarHead, Streams
from rollax.networks.torsos import MixedTorso, Torso
from rollax.networks.weights import FlaxWeights, TorchWeights
from rollax.rules.backups import GreedyBackup, MunchausenBackup
from rollax.rules.returns import BellmanError, ReturnDistribution
from rollax.rules.schedules import Exploration, LinearEpsilon, PeriodicTarget
from rollax.settings import POSITIVE, SHARE, setting
from rollax.tracing import mean_over
from rollax.types import Array, Carry, Decision, EnvSpec, Key, Metrics, Observation, Params


@struct.dataclass
class MeanLoss:
    """What a gradient step makes smaller: the mean loss of a batch."""

    def value(self, losses: Array) -> Array:
        """One number of losses `[batch]`."""
        # The compiler would fold the gradient's first factor, 1, into other constants, and round otherwise than it does
        # for any other weight of the loss.
        return jax.lax.optimization_barrier(jnp.mean(losses))


@struct.dataclass
class DQNHParams(ReplayHParams):
    """Numbers that may differ between the members of a population.  All are traced; parts are made of such numbers."""

    exploration: Exploration = LinearEpsilon()
    huber_kappa: float = setting(
        1.0, "Bellman error beyond which the Huber loss grows linearly.", limit=POSITIVE, group="targets", rare=True
    )
    target: PeriodicTarget = PeriodicTarget()
    objective: MeanLoss = MeanLoss()


@dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """Choices that shape the compiled program.  All are static."""

    torso: Torso = MixedTorso()
    streams: Streams = setting(Streams(), group="network")
    head: Head = ScalarHead()
    double: bool = setting(
        False,
        "Use Double DQN: the online network chooses the next action, the target network evaluates it.",
        group="targets",
    )
    backup: GreedyBackup = GreedyBackup()
    acting: NoisyActing = NoisyActing()
    weights: FlaxWeights | TorchWeights = FlaxWeights()
    loss: Literal["huber", "squared"] = setting("huber", "Loss of a Bellman error.", group="targets", rare=True)
    optimizer: OptimizerName = setting("adam", "The optimizer's rule.", group="optimizer", rare=True)
    evaluation_epsilon: float = setting(
        0.0, "Share of random actions in evaluations.", limit=SHARE, group="evaluation and logging", protocol=True
    )

    def build(self, spec: EnvSpec) -> DQN:
        return DQN(self, spec)

    def problems(self, spec: EnvSpec) -> list[str]:
        return super().problems(spec) + self.head.problems()


class DQNLearner(NamedTuple):
    """What learning changes."""

    hparams: DQNHParams
    params: Params
    target_params: Params
    opt_state: optax.OptState
    gradient_steps: Array


class Looks(NamedTuple):
    """The returns that a Bellman error is made of, each a function of the key of its noise and levels."""

    predicted: Callable[[Key], ReturnDistribution]  # of the states, by the weights that learn
    judged: Callable[[Key, Key], ReturnDistribution]  # of their successors, by who chooses there; noise, then levels
    successor: Callable[[Key], ReturnDistribution]  # of their successors, by the target network
    before: Callable[[Key], ReturnDistribution]  # of the states, by the target network


@dataclass(frozen=True)
class DQN(Replaying, QLearner):
    """A member of the family in one environment."""

    config: DQNConfig

    def init(self, key: Key, hparams: DQNHParams) -> tuple[DQNLearner, Any]:
        params = self.config.weights.begin(key, self.initial_weights(key))
        optimizer = make_optimizer(self.config.optimizer, hparams)
        learner = DQNLearner(hparams, params, params, optimizer.init(params), jnp.int32(0))
        return learner, self.buffer.init()

    def act(
        self, learner: DQNLearner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        carry, action, _ = self.choose(learner, carry, obs, fresh, key, explore=explore)
        return Decision(action, carry=carry)

    def noted(self, learner: DQNLearner) -> Metrics:
        return {"epsilon": self.epsilon(learner)}

    def improve(
        self, learner: DQNLearner, sample: Sample, key: Key, env_steps: Array | None = None
    ) -> tuple[DQNLearner, Array, Metrics]:
        """The learner after a gradient step, and how wrong it was about each of the sample.

        `env_steps` is where schedules stand, if others collect than who learns.
        """
        hp = learner.hparams

        def objective(params: Params) -> tuple[Array, Array]:
            error = self.bellman_error(params, learner, sample.batch, key)
            return hp.objective.value(sample.weight * error.loss), error.priority

        (loss, priority), grads = jax.value_and_grad(objective, has_aux=True)(learner.params)
        loss, grads = mean_over(self.spec, (loss, grads))
        params, opt_state, grad_norm = self.descend(learner, grads, env_steps)
        count = learner.gradient_steps + 1
        step = hp.target.step_size(count, self.updates)
        target_params = optax.incremental_update(params, learner.target_params, step)
        after = DQNLearner(hp, params, target_params, opt_state, count)
        return after, priority, {"loss": loss, "grad_norm": grad_norm}

    def bellman_error(self, params: Params, learner: DQNLearner, batch: Any, key: Key) -> BellmanError:
        """One loss and one priority for each transition of a `Batch`, whatever a return is made of."""
        now_key, next_key, judge_key, bonus_key = jax.random.split(key, 4)
        backup, taken = self.config.backup, jax.nn.one_hot(batch.action, self.spec.num_actions)
        looks = self.looks(params, learner, batch)
        predicted = looks.predicted(now_key).under(taken)
        # Noise is part of the weights: who judges with the target's weights has their noise too.
        noise = judge_key if self.config.double else next_key
        follows = backup.follow(looks.judged(noise, judge_key).mean(), batch.next_obs)
        successor = looks.successor(next_key).under(follows.policy)
        bonus = backup.reward_bonus(lambda: looks.before(bonus_key).mean(), batch.obs, batch.action)
        reward = batch.reward + bonus + batch.discount * follows.bonus
        kappa = learner.hparams.huber_kappa if self.config.loss == "huber" else jnp.inf
        return predicted.bellman_error(reward, batch.discount, successor, kappa)

    def looks(self, params: Params, learner: DQNLearner, batch: Any) -> Looks:
        """How the networks see a batch."""
        judge, target = learner.params if self.config.double else learner.target_params, learner.target_params
        return Looks(
            predicted=lambda noise: self.returns(params, batch.obs, noise),
            judged=lambda noise, levels: self.returns(judge, batch.next_obs, noise, levels),
            successor=lambda noise: self.returns(target, batch.next_obs, noise),
            before=lambda noise: self.returns(target, batch.obs, noise),
        )

    def with_weights(self, learner: DQNLearner, params: Any) -> DQNLearner:
        return learner._replace(params=params, target_params=params)


NOISY = Streams(stream_hidden=64, noise="factorised")
NO_EPSILON = DQNHParams(exploration=LinearEpsilon(epsilon_start=0.0, epsilon_end=0.0))  # noise explores
FAMILY = {
    "dqn": Recipe(DQNConfig(), DQNHParams()),
    "double": Recipe(DQNConfig(double=True), DQNHParams()),
    "dueling": Recipe(DQNConfig(streams=Streams(dueling=True, stream_hidden=64)), DQNHParams()),
    "n_step": Recipe(DQNConfig(replay=UniformReplay(n_step=3)), DQNHParams()),
    "prioritized": Recipe(DQNConfig(replay=PrioritizedReplay()), DQNHParams()),
    "noisy": Recipe(DQNConfig(streams=NOISY), NO_EPSILON),
    "c51": Recipe(DQNConfig(head=CategoricalHead()), DQNHParams()),
    "qr": Recipe(DQNConfig(head=QuantileHead()), DQNHParams()),
    "iqn": Recipe(DQNConfig(head=ImplicitQuantileHead()), DQNHParams()),
    "munchausen": Recipe(DQNConfig(backup=MunchausenBackup()), DQNHParams()),
    "rainbow": Recipe(
        DQNConfig(
            head=CategoricalHead(),
            streams=NOISY.clone(dueling=True),
            double=True,
            replay=PrioritizedReplay(n_step=3),
        ),
        NO_EPSILON,
    ),
    "apex": Recipe(
        DQNConfig(streams=Streams(dueling=True, stream_hidden=64), double=True, replay=PrioritizedReplay(n_step=3)),
        DQNHParams(),
    ),
    "irainbow": Recipe(
        DQNConfig(
            head=ImplicitQuantileHead(),
            streams=NOISY.clone(dueling=True),
            double=True,
            replay=UniformReplay(n_step=3),
        ),
        NO_EPSILON,
    ),
}
