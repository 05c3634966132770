"""The DQN family: DQN, Double, Dueling, n-step.

One update rule serves them all.  A member of the family is a choice of parts: a head says what a
return is made of, a replay says which transitions come back, `double` says who picks the next
action.  `FAMILY`, at the end, names the choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct

from rollax.agents.base import linear
from rollax.limits import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, POSITIVE, SHARE, Limit
from rollax.networks import MLP, QNetwork, ScalarHead
from rollax.policies import epsilon_greedy, greedy
from rollax.replay import Batch, ReplayState, UniformReplay
from rollax.returns import ReturnDistribution
from rollax.types import Array, EnvSpec, Key, Metrics, Observation, Params, Transition


@struct.dataclass
class DQNHParams:
    """Numbers that may differ between the members of a population.  All are traced."""

    learning_rate: float = 5e-4  # Step size of the optimizer at first ...
    learning_rate_end: float = 1.0  # ... the share of it that is left in the end ...
    learning_rate_steps: float = 100_000.0  # ... and the environment steps over which it falls.
    optimizer_eps: float = 1e-8  # Added to the optimizer's denominator.
    max_grad_norm: float = 10.0  # The whole gradient is scaled down to this norm.
    discount: float = 0.99  # What a reward is worth one step later.
    huber_kappa: float = 1.0  # Errors beyond this count linearly.
    target_period: int = 1  # Gradient steps between moves of the target weights ...
    target_step: float = 0.01  # ... and how far they move: 1.0 copies.
    epsilon_start: float = 1.0  # Share of random actions at first ...
    epsilon_end: float = 0.05  # ... and in the end.
    epsilon_steps: float = 25_000.0  # Environment steps after the warm-up over which epsilon falls.
    traced: ClassVar[bool] = True
    limits: ClassVar[dict[str, Limit]] = {
        "learning_rate": NOT_NEGATIVE,
        "learning_rate_end": SHARE,
        "learning_rate_steps": POSITIVE,
        "optimizer_eps": NOT_NEGATIVE,
        "max_grad_norm": POSITIVE,
        "discount": SHARE,
        "huber_kappa": POSITIVE,
        "target_period": COUNT,
        "target_step": SHARE,
        "epsilon_start": SHARE,
        "epsilon_end": SHARE,
        "epsilon_steps": POSITIVE,
    }


@dataclass(frozen=True)
class DQNConfig:
    """Choices that shape the compiled program.  All are static."""

    torso: nn.Module = MLP()
    head: nn.Module = ScalarHead()
    double: bool = False  # The online weights pick the next action, the target weights judge it.
    dueling: bool = False  # Split the last layers into a state's value and the actions' advantages.
    stream_hidden: int = 0  # Units of a hidden layer in each dueling stream; 0 for none.
    replay: UniformReplay = UniformReplay()
    batch_size: int = 128  # Transitions of one gradient step.
    gradient_steps: int = 1  # Gradient steps of one iteration.
    loss: Literal["huber", "squared"] = "huber"  # The penalty on a Bellman error.
    optimizer: Literal["adam", "rmsprop"] = "adam"  # How gradients become steps.
    evaluation_epsilon: float = 0.0  # Share of random actions in evaluations.
    limits: ClassVar[dict[str, Limit]] = {
        "stream_hidden": COUNT_OR_NONE,
        "batch_size": COUNT,
        "gradient_steps": COUNT,
        "evaluation_epsilon": SHARE,
    }

    def build(self, spec: EnvSpec) -> DQN:
        return DQN(self, spec)

    def problems(self, spec: EnvSpec) -> list[str]:
        """What is wrong with these choices for that environment, each with its fix."""
        return self.replay.problems(spec) + self.torso.problems(spec.observation)

    def least_warm_up(self, spec: EnvSpec) -> int:
        """Iterations without learning that `learn` needs to have happened."""
        return -(-(self.replay.n_step + 1) // spec.rollout_length)


class DQNLearner(NamedTuple):
    """What learning changes."""

    hparams: DQNHParams
    params: Params
    target_params: Params
    opt_state: optax.OptState
    gradient_steps: Array


@dataclass(frozen=True)
class DQN:
    """A member of the family in one environment."""

    metric_names: ClassVar[tuple[str, ...]] = ("loss", "epsilon")

    config: DQNConfig
    spec: EnvSpec

    @cached_property
    def network(self) -> QNetwork:
        config = self.config
        return QNetwork(self.spec.num_actions, config.torso, config.head, config.dueling, config.stream_hidden)

    def init(self, key: Key, hparams: DQNHParams) -> tuple[DQNLearner, ReplayState]:
        features = jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), self.spec.observation.features)
        params = self.network.init(key, features)
        learner = DQNLearner(hparams, params, params, self.optimizer(hparams).init(params), jnp.int32(0))
        return learner, self.config.replay.init(self.spec)

    def act(self, learner: DQNLearner, obs: Observation, key: Key, *, explore: bool) -> tuple[Array, tuple]:
        q_values = self.returns(learner.params, obs).mean()
        epsilon = self.epsilon(learner) if explore else self.config.evaluation_epsilon
        return epsilon_greedy(key, q_values, obs.legal, epsilon), ()

    def remember(self, memory: ReplayState, rollout: Transition) -> ReplayState:
        return self.config.replay.add(memory, rollout, self.spec)

    def learn(
        self, learner: DQNLearner, memory: ReplayState, rollout: Transition, key: Key
    ) -> tuple[DQNLearner, ReplayState, Metrics]:
        del rollout  # `remember` has put it into the memory
        epsilon = self.epsilon(learner)
        keys = jax.random.split(key, self.config.gradient_steps)
        learner, metrics = jax.lax.scan(lambda state, key: self.gradient_step(state, memory, key), learner, keys)
        return learner, memory, {**jax.tree.map(jnp.mean, metrics), "epsilon": epsilon}

    def gradient_step(self, learner: DQNLearner, memory: ReplayState, key: Key) -> tuple[DQNLearner, Metrics]:
        hp = learner.hparams
        batch = self.config.replay.sample(memory, key, self.config.batch_size, hp.discount, self.spec)
        loss, grads = jax.value_and_grad(lambda params: jnp.mean(self.bellman_losses(params, learner, batch)))(
            learner.params
        )
        rule = self.optimizer(hp, self.env_steps(learner))
        updates, opt_state = rule.update(grads, learner.opt_state, learner.params)
        params = optax.apply_updates(learner.params, updates)
        count = learner.gradient_steps + 1
        step = jnp.where(count % hp.target_period == 0, hp.target_step, 0.0)
        target_params = optax.incremental_update(params, learner.target_params, step)
        return DQNLearner(hp, params, target_params, opt_state, count), {"loss": loss}

    def bellman_losses(self, params: Params, learner: DQNLearner, batch: Batch) -> Array:
        """One loss for each transition, whatever a return is made of."""
        predicted = self.returns(params, batch.obs).at(batch.action)
        targets = self.returns(learner.target_params, batch.next_obs)
        judge = self.returns(learner.params, batch.next_obs) if self.config.double else targets
        successor = targets.at(greedy(judge.mean(), batch.next_obs.legal))
        kappa = learner.hparams.huber_kappa if self.config.loss == "huber" else jnp.inf
        return predicted.bellman_loss(batch.reward, batch.discount, successor, kappa)

    def returns(self, params: Params, obs: Observation) -> ReturnDistribution:
        """The return of every action."""
        return cast(ReturnDistribution, self.network.apply(params, obs.features))

    def epsilon(self, learner: DQNLearner) -> Array:
        hp = learner.hparams
        return linear(hp.epsilon_start, hp.epsilon_end, self.env_steps(learner) / hp.epsilon_steps)

    def env_steps(self, learner: DQNLearner) -> Array:
        """Environment steps since learning began, which all schedules count."""
        return learner.gradient_steps / self.config.gradient_steps * self.spec.steps_per_iteration

    def optimizer(self, hparams: DQNHParams, env_steps: Array | float = 0.0) -> optax.GradientTransformation:
        """The rule that turns gradients into steps, as it stands at that time; its state does not depend on it."""
        share = linear(1.0, hparams.learning_rate_end, env_steps / hparams.learning_rate_steps)
        rate, eps = hparams.learning_rate * share, hparams.optimizer_eps
        if self.config.optimizer == "adam":
            rule = optax.adam(rate, eps=eps)
        else:
            rule = optax.rmsprop(rate, decay=0.95, eps=eps, centered=True)
        return optax.chain(optax.clip_by_global_norm(hparams.max_grad_norm), rule)

    def with_weights(self, learner: DQNLearner, params: Any) -> DQNLearner:
        return learner._replace(params=params, target_params=params)


FAMILY = {
    "dqn": DQNConfig(),
    "double": DQNConfig(double=True),
    "dueling": DQNConfig(dueling=True, stream_hidden=64),
    "n_step": DQNConfig(replay=UniformReplay(n_step=3)),
}
