"""SAC: soft actor-critic for actions that are numbers (Haarnoja et al. 2018), with an automatic temperature.

The policy is a normal one, squashed into the bounds; it is paid for its entropy, at a price that keeps the entropy
near a target.  Two critics judge, and the lower of the two counts.  Critics learn from a replay, prioritised or not,
with n-step targets: the entropy of the steps between is not counted, only that of the action after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct

from rollax.agents.base import (
    HIDING_OPTIMIZERS,
    Opinion,
    OptimizerName,
    Recipe,
    apply_gradients,
    blank_features,
    make_optimizer,
)
from rollax.agents.exploring import Noise, NoiseConfig
from rollax.agents.replaying import ReplayConfig, ReplayHParams, Replaying
from rollax.memory.replay import Sample
from rollax.memory.uniform import UniformReplay
from rollax.networks.policies import NumberPolicy, PolicyHead
from rollax.networks.torsos import MLP, MixedTorso, Torso
from rollax.rules.distributions import SquashedNormal
from rollax.rules.schedules import PeriodicTarget
from rollax.settings import COUNT, POSITIVE, Limit, setting
from rollax.tracing import mean_over
from rollax.types import Array, Box, Carry, Decision, EnvSpec, Key, Metrics, Observation, Params


@struct.dataclass
class SACHParams(ReplayHParams):
    """Numbers that may differ between the members of a population.  All are traced."""

    target: PeriodicTarget = PeriodicTarget(target_step=0.005)
    temperature: float = setting(
        1.0,
        "Initial temperature, the weight of the policy's entropy against rewards.",
        limit=POSITIVE,
        group="exploration",
    )
    target_entropy: float = setting(
        -1.0,
        "Target entropy of the automatic temperature for each dimension of an action, whose bounds are -1 and 1.",
        limit=Limit(-1e3, 1e3),
        group="exploration",
    )


@dataclass(frozen=True)
class SACConfig(ReplayConfig):
    """Choices that shape the compiled program.  All are static."""

    torso: Torso = MixedTorso(hidden=(256, 256))
    critics: int = setting(
        2,
        "Number of critics; targets use the smallest of their values.",
        limit=COUNT,
        group="network",
        memory=True,
        rare=True,
    )
    automatic_temperature: bool = setting(
        True,
        "Adjust the temperature towards the target entropy; without it the temperature is constant.",
        group="exploration",
    )
    noise: NoiseConfig = setting(NoiseConfig(), group="continuous actions")
    optimizer: OptimizerName = setting("adam", "The optimizer's rule.", group="optimizer", rare=True)

    takes: ClassVar[tuple[type, ...]] = (Box,)

    def build(self, spec: EnvSpec) -> SAC:
        return SAC(self, spec)


class SACParams(NamedTuple):
    """All that is learnt by gradients."""

    actor: Params
    critics: Params  # each leaf leads with the critics
    log_temperature: Array


class SACLearner(NamedTuple):
    """What learning changes."""

    hparams: SACHParams
    params: SACParams
    target_critics: Params
    opt_state: optax.OptState
    gradient_steps: Array


class Actor(nn.Module):
    """A torso, and what the policy is made of."""

    head: PolicyHead
    torso: Torso

    @nn.compact
    def __call__(self, features: Any) -> Array:
        return nn.Dense(self.head.outputs, name="policy")(self.torso(features))


class Critic(nn.Module):
    """The value of an action: its torso sees the action as one more part of the observation."""

    torso: Torso

    @nn.compact
    def __call__(self, features: Any, action: Array) -> Array:
        return nn.Dense(1, name="value")(self.torso((features, action)))[..., 0]


@dataclass(frozen=True)
class SAC(Replaying):
    """The agent in one environment."""

    metric_names: ClassVar[tuple[str, ...]] = ("loss", "grad_norm", "actor_loss", "entropy", "temperature")

    config: SACConfig

    @property
    def size(self) -> int:
        """How many numbers an action has."""
        return len(cast(Box, self.spec.action).low)

    @cached_property
    def head(self) -> PolicyHead:
        """What the actor says of actions, and what it means."""
        return PolicyHead(self.spec.action, NumberPolicy(squashed=True, state_deviation=True))

    @cached_property
    def noise(self) -> Noise:
        """What explores."""
        return self.config.noise.build(self.spec)

    @cached_property
    def actor(self) -> Actor:
        return Actor(self.head, self.config.torso)

    @cached_property
    def critic(self) -> Critic:
        torso = self.config.torso
        if isinstance(torso, MLP) and torso.input_scale:
            torso = torso.clone(input_scale=(*torso.input_scale, *(1.0,) * self.size))
        return Critic(torso)

    def init(self, key: Key, hparams: SACHParams) -> tuple[SACLearner, Any]:
        actor_key, critic_key = jax.random.split(key)
        features, action = blank_features(self.spec), jnp.zeros((1, self.size))
        critic_keys = jax.random.split(critic_key, self.config.critics)
        params = SACParams(
            actor=self.actor.init(actor_key, features),
            critics=jax.vmap(lambda key: self.critic.init(key, features, action))(critic_keys),
            log_temperature=jnp.log(jnp.float32(hparams.temperature)),
        )
        opt_state = make_optimizer(self.config.optimizer, hparams).init(cast(Any, params))
        learner = SACLearner(hparams, params, params.critics, opt_state, jnp.int32(0))
        return learner, self.buffer.init()

    def initial_carry(self, num: int) -> Carry:
        return self.noise.initial(num)

    def greedy_carry(self, num: int) -> Carry:
        return ()

    def act(
        self, learner: SACLearner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        """Actions; before the first gradient step they are drawn from all alike, as the policy knows nothing."""
        policy = self.policy(learner.params.actor, obs.features)
        if not explore:
            return Decision(policy.mode(), carry=carry)
        noise, carry = self.noise.draw(carry, fresh, key)
        uniform = jax.lax.erf(noise / jnp.sqrt(2.0))
        return Decision(jnp.where(learner.gradient_steps > 0, policy.place(noise), uniform), carry=carry)

    def policy(self, actor: Params, features: Any) -> SquashedNormal:
        """The policy in view of features `[B, ...]`."""
        said = cast(Array, self.actor.apply(actor, features))
        return cast(SquashedNormal, self.head.distribution(said, None))

    def opinion(self, learner: SACLearner, carry: Carry, obs: Observation, fresh: Array) -> Opinion:
        """The policy, and what the most careful critic says of its mode."""
        policy = self.policy(learner.params.actor, obs.features)
        return Opinion(
            policy=policy, value=self.values(learner.params.critics, obs.features, policy.mode()).min(axis=0)
        )

    def values(self, critics: Params, features: Any, action: Array) -> Array:
        """What each critic says, `[critics, B]`."""
        return cast(Array, jax.vmap(self.critic.apply, (0, None, None))(critics, features, action))

    def improve(
        self, learner: SACLearner, sample: Sample, key: Key, env_steps: Array | None = None
    ) -> tuple[SACLearner, Array, Metrics]:
        hp, now = learner.hparams, self.env_steps(learner) if env_steps is None else env_steps

        def objective(params: SACParams) -> tuple[Array, tuple[Array, Metrics]]:
            return self.loss(params, learner, sample, key)

        (_, (priority, metrics)), grads = jax.value_and_grad(objective, has_aux=True)(learner.params)
        metrics, grads = mean_over(self.spec, (metrics, grads))
        after, opt_state, grad_norm = apply_gradients(
            self.config.optimizer, hp, now, grads, learner.opt_state, learner.params
        )
        params, count = cast(SACParams, after), learner.gradient_steps + 1
        step = hp.target.step_size(count, self.updates)
        targets = optax.incremental_update(params.critics, learner.target_critics, step)
        return SACLearner(hp, params, targets, opt_state, count), priority, metrics | {"grad_norm": grad_norm}

    def loss(
        self, params: SACParams, learner: SACLearner, sample: Sample, key: Key
    ) -> tuple[Array, tuple[Array, Metrics]]:
        """The losses of critics, actor and temperature in one number, of which each has a gradient of its own alone.

        And how wrong the critics were about each of the sample, and the losses by name.
        """
        batch, still = sample.batch, learner.params  # the weights as they are, which this gradient leaves alone
        temperature = jnp.exp(still.log_temperature)
        now_key, next_key = jax.random.split(key)
        shape = (*batch.reward.shape, self.size)

        after = self.policy(still.actor, batch.next_obs.features)
        next_action, next_log_prob = after.place_with_log_prob(jax.random.normal(next_key, shape))
        next_value = jnp.min(self.values(learner.target_critics, batch.next_obs.features, next_action), axis=0)
        target = batch.reward + batch.discount * (next_value - temperature * next_log_prob)
        error = self.values(params.critics, batch.obs.features, batch.action) - target
        critic_loss = 0.5 * jnp.mean(sample.weight * jnp.sum(error**2, axis=0))

        policy = self.policy(params.actor, batch.obs.features)
        action, log_prob = policy.place_with_log_prob(jax.random.normal(now_key, shape))
        value = jnp.min(self.values(still.critics, batch.obs.features, action), axis=0)
        actor_loss = jnp.mean(temperature * log_prob - value)

        entropy = -jnp.mean(log_prob)
        excess = jax.lax.stop_gradient(entropy) - learner.hparams.target_entropy * self.size
        temperature_loss = params.log_temperature * excess if self.config.automatic_temperature else 0.0
        metrics = {"loss": critic_loss, "actor_loss": actor_loss, "entropy": entropy, "temperature": temperature}
        return critic_loss + actor_loss + temperature_loss, (jnp.mean(jnp.abs(error), axis=0), metrics)

    def doubtful(self, learner: SACLearner) -> tuple[()]:
        """Nothing: weights change by gradients alone."""
        return ()

    @property
    def hides_nans(self) -> bool:
        return self.config.optimizer in HIDING_OPTIMIZERS

    def with_weights(self, learner: SACLearner, params: SACParams) -> SACLearner:
        return learner._replace(params=params, target_critics=params.critics)


SAC_RECIPE = Recipe(
    SACConfig(replay=UniformReplay(capacity=100_000), batch_size=256),
    SACHParams(learning_rate=3e-4, max_grad_norm=1e6),
    {"num_envs": 1, "rollout_length": 1, "warm_up_steps": 1_000},
)
