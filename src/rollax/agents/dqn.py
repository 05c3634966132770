"""The DQN family: DQN, Double, Dueling, n-step, prioritised, Noisy, C51, QR-DQN, IQN, Munchausen, Rainbow.

One update rule serves them all.  A member of the family is a choice of parts: a head says what a return is made of,
streams are the layers before it, a replay says which transitions come back, a backup says what follows the next
state, `double` says whose values choose there.  `FAMILY`, at the end, names the choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.agents.acting import NoisyActing, QuietActing
from rollax.agents.base import (
    ExplorationHParams,
    Lessons,
    OptimizerHParams,
    OptimizerName,
    Recipe,
    apply_gradients,
    blank_features,
    linear,
    make_optimizer,
    share_problems,
)
from rollax.agents.q_learner import QLearner
from rollax.memory.replay import PrioritizedReplay, Replay, Sample, UniformReplay
from rollax.memory.ring import Batch
from rollax.networks.heads import CategoricalHead, Head, ImplicitQuantileHead, QuantileHead, ScalarHead
from rollax.networks.streams import Streams
from rollax.networks.torsos import MLP, Torso
from rollax.networks.weights import FlaxWeights, TorchWeights
from rollax.rules.backups import GreedyBackup, MunchausenBackup
from rollax.rules.returns import BellmanError
from rollax.settings import COUNT, COUNT_OR_NONE, POSITIVE, SHARE, setting
from rollax.tracing import REMEMBERING, SAMPLING, mean_over, phase
from rollax.types import Array, EnvSpec, Key, Metrics, Observation, Params, Transition


@struct.dataclass
class DQNHParams(ExplorationHParams, OptimizerHParams):
    """Numbers that may differ between the members of a population.  All are traced."""

    discount: float = setting(0.99, "Discount factor of future rewards.", limit=SHARE, group="targets")
    huber_kappa: float = setting(
        1.0, "Bellman error beyond which the Huber loss grows linearly.", limit=POSITIVE, group="targets", rare=True
    )
    target_period: int = setting(
        1, "Number of gradient steps between updates of the target network.", limit=COUNT, group="targets"
    )
    target_step: float = setting(
        0.01,
        "Share of the way that the target network moves in an update; 1 copies the online network.",
        limit=SHARE,
        group="targets",
    )
    sync_period: int = setting(
        0,
        "Number of iterations between full copies to the target network, beside its other updates; 0 makes none.",
        limit=COUNT_OR_NONE,
        group="targets",
        rare=True,
    )
    replay_limit: int = setting(
        0,
        "Number of the newest transitions that a uniform replay buffer draws from; 0 draws from all.",
        limit=COUNT_OR_NONE,
        group="replay",
        rare=True,
    )
    loss_weight: float = setting(
        1.0,
        "Factor of the loss, which matters where gradients are clipped.",
        limit=POSITIVE,
        group="optimizer",
        rare=True,
    )
    priority_exponent: float = setting(
        0.5,
        "Priority exponent of a prioritised replay buffer; 0 draws uniformly.",
        limit=SHARE,
        group="replay",
        rare=True,
    )
    importance_start: float = setting(
        0.4,
        "Importance-sampling exponent of a prioritised replay buffer at the start; 1 corrects in full.",
        limit=SHARE,
        group="replay",
        rare=True,
    )
    importance_end: float = setting(
        1.0,
        "Importance-sampling exponent of a prioritised replay buffer in the end.",
        limit=SHARE,
        group="replay",
        rare=True,
    )
    importance_steps: float = setting(
        100_000.0,
        "Number of environment steps over which the importance-sampling exponent rises.",
        limit=POSITIVE,
        group="replay",
        rare=True,
    )


@dataclass(frozen=True)
class DQNConfig:
    """Choices that shape the compiled program.  All are static."""

    torso: Torso = MLP()
    streams: Streams = Streams()
    head: Head = ScalarHead()
    double: bool = setting(
        False,
        "Use Double DQN: the online network chooses the next action, the target network evaluates it.",
        group="targets",
    )
    backup: GreedyBackup = GreedyBackup()
    replay: Replay = UniformReplay()
    acting: NoisyActing | QuietActing = NoisyActing()
    weights: FlaxWeights | TorchWeights = FlaxWeights()
    batch_size: int = setting(
        128, "Number of transitions of each gradient step.", limit=COUNT, group="optimizer", memory=True
    )
    gradient_steps: int = setting(1, "Number of gradient steps in each iteration.", limit=COUNT, group="optimizer")
    loss: Literal["huber", "squared"] = setting("huber", "Loss of a Bellman error.", group="targets", rare=True)
    optimizer: OptimizerName = setting("adam", "The optimizer's rule.", group="optimizer", rare=True)
    evaluation_epsilon: float = setting(
        0.0, "Share of random actions in evaluations.", limit=SHARE, group="evaluation and logging", protocol=True
    )

    def build(self, spec: EnvSpec) -> DQN:
        return DQN(self, spec)

    def problems(self, spec: EnvSpec) -> list[str]:
        parts = self.replay.problems(spec) + self.torso.problems(spec.observation) + self.head.problems()
        return parts + share_problems(spec, "batch_size", self.batch_size)

    def least_warm_up(self, spec: EnvSpec) -> int:
        return self.replay.least_warm_up(spec)


class DQNLearner(NamedTuple):
    """What learning changes."""

    hparams: DQNHParams
    params: Params
    target_params: Params
    opt_state: optax.OptState
    gradient_steps: Array


@dataclass(frozen=True)
class DQN(QLearner):
    """A member of the family in one environment."""

    config: DQNConfig

    @property
    def own_batch(self) -> int:
        """What this shard draws of a batch."""
        return self.spec.share(self.config.batch_size)

    def init(self, key: Key, hparams: DQNHParams) -> tuple[DQNLearner, Any]:
        params = self.config.weights.begin(key, self.network.init(key, blank_features(self.spec)))
        optimizer = make_optimizer(self.config.optimizer, hparams)
        learner = DQNLearner(hparams, params, params, optimizer.init(params), jnp.int32(0))
        return learner, self.config.replay.init(self.spec)

    def act(self, learner: DQNLearner, obs: Observation, key: Key, *, explore: bool) -> tuple[Array, tuple]:
        return self.choose(learner, obs, key, explore=explore, lazily=True)[0], ()

    def remember(self, memory: Any, rollout: Transition) -> Any:
        return self.config.replay.add(memory, rollout, self.spec)

    def interrupt(self, memory: Any, obs: Observation) -> Any:
        return self.config.replay.interrupt(memory, obs, self.spec)

    def begin(
        self, learner: DQNLearner, memory: Any, rollout: Transition, key: Key
    ) -> tuple[tuple[DQNLearner, Any], Lessons]:
        del rollout  # `remember` has put it into the memory
        return (learner, memory), Lessons(self.epsilon(learner), jax.random.split(key, self.config.gradient_steps))

    def step(self, carry: tuple[DQNLearner, Any], shared: Array, own: Key) -> tuple[tuple[DQNLearner, Any], Metrics]:
        return self.gradient_step(carry, own)

    def conclude(
        self, carry: tuple[DQNLearner, Any], lessons: Lessons, metrics: Metrics
    ) -> tuple[DQNLearner, Any, Metrics]:
        return *carry, {**metrics, "epsilon": lessons.shared}

    def gradient_step(self, carry: tuple[DQNLearner, Any], key: Key) -> tuple[tuple[DQNLearner, Any], Metrics]:
        """One step, if the memory is ready for it; else it is counted, and changes nothing."""
        ready = self.config.replay.ready(carry[1], self.own_batch, self.spec)
        if ready is True:
            return self.ready_step(carry, key)

        def wait() -> tuple[tuple[DQNLearner, Any], Metrics]:
            learner, memory = carry
            return (learner._replace(gradient_steps=learner.gradient_steps + 1), memory), {"loss": jnp.float32(0)}

        return jax.lax.cond(ready, lambda: self.ready_step(carry, key), wait)

    def ready_step(self, carry: tuple[DQNLearner, Any], key: Key) -> tuple[tuple[DQNLearner, Any], Metrics]:
        learner, memory = carry
        sample_key, loss_key = jax.random.split(key)
        sample = self.draw(learner, memory, sample_key)
        learner, priority, metrics = self.improve(learner, sample, loss_key)
        return (learner, self.settle(learner.hparams, memory, sample.handle, priority)), metrics

    def draw(self, learner: DQNLearner, memory: Any, key: Key) -> Sample:
        """What the next gradient step learns from.  Of the learner it needs the numbers, not the weights."""
        hp = learner.hparams
        importance = linear(hp.importance_start, hp.importance_end, self.env_steps(learner) / hp.importance_steps)
        with phase(SAMPLING):
            return self.config.replay.sample(
                memory, key, self.own_batch, hp.discount, importance, self.spec, hp.replay_limit
            )

    def improve(self, learner: DQNLearner, sample: Sample, key: Key) -> tuple[DQNLearner, Array, Metrics]:
        """The learner after a gradient step, and how wrong it was about each of the sample."""
        hp, env_steps = learner.hparams, self.env_steps(learner)

        def weighted_loss(params: Params) -> tuple[Array, Array]:
            error = self.bellman_error(params, learner, sample.batch, key)
            return hp.loss_weight * jnp.mean(sample.weight * error.loss), error.priority

        (loss, priority), grads = jax.value_and_grad(weighted_loss, has_aux=True)(learner.params)
        loss, grads = mean_over(self.spec, (loss, grads))
        params, opt_state = apply_gradients(
            self.config.optimizer, hp, env_steps, grads, learner.opt_state, learner.params
        )
        count = learner.gradient_steps + 1
        step = jnp.where(count % hp.target_period == 0, hp.target_step, 0.0)
        whole = (hp.sync_period > 0) & (count % jnp.maximum(hp.sync_period * self.updates, 1) == 0)
        target_params = optax.incremental_update(params, learner.target_params, jnp.where(whole, 1.0, step))
        return DQNLearner(hp, params, target_params, opt_state, count), priority, {"loss": loss}

    def settle(self, hparams: DQNHParams, memory: Any, handle: Any, priority: Array) -> Any:
        """The memory, told how wrong the learner was about a sample."""
        with phase(REMEMBERING):
            return self.config.replay.reprioritize(memory, handle, priority, hparams.priority_exponent, self.spec)

    def bellman_error(self, params: Params, learner: DQNLearner, batch: Batch, key: Key) -> BellmanError:
        """One loss and one priority for each transition, whatever a return is made of."""
        now_key, next_key, judge_key, bonus_key = jax.random.split(key, 4)
        backup, taken = self.config.backup, jax.nn.one_hot(batch.action, self.spec.num_actions)
        predicted = self.returns(params, batch.obs, now_key).under(taken)
        # Noise is part of the weights: who judges with the target's weights has their noise too.
        judge, noise = (learner.params, judge_key) if self.config.double else (learner.target_params, next_key)
        follows = backup.follow(self.returns(judge, batch.next_obs, noise, judge_key).mean(), batch.next_obs)
        successor = self.returns(learner.target_params, batch.next_obs, next_key).under(follows.policy)
        bonus = backup.reward_bonus(
            lambda: self.returns(learner.target_params, batch.obs, bonus_key).mean(), batch.obs, batch.action
        )
        reward = batch.reward + bonus + batch.discount * follows.bonus
        kappa = learner.hparams.huber_kappa if self.config.loss == "huber" else jnp.inf
        return predicted.bellman_error(reward, batch.discount, successor, kappa)

    def with_weights(self, learner: DQNLearner, params: Any) -> DQNLearner:
        return learner._replace(params=params, target_params=params)


NOISY = Streams(stream_hidden=64, noise="factorised")
NO_EPSILON = DQNHParams(epsilon_start=0.0, epsilon_end=0.0)  # noise explores
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
