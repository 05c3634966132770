"""PPO with action masks: proximal policy optimization on fresh rollouts (Schulman et al. 2017).

Illegal actions have no probability, when acting and when learning; advantages are those of `lambda_returns`, which
tells a termination from a time limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.agents.base import (
    HIDING_OPTIMIZERS,
    Lessons,
    Opinion,
    OptimizerName,
    Recipe,
    Stepwise,
    apply_gradients,
    batch_size,
    blank_features,
    make_optimizer,
)
from rollax.agents.exploring import Noise, NoiseConfig
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
from rollax.networks.heads import ActorCritic
from rollax.networks.normalization import (
    Observations,
    ObservationView,
    RawObservations,
    RawRewards,
    Rewards,
    RewardView,
)
from rollax.networks.policies import NumberPolicy, PolicyHead
from rollax.networks.torsos import MixedTorso, Torso
from rollax.rules.distributions import Distribution, MaskedCategorical, Placed
from rollax.rules.schedules import Scheduled, linear
from rollax.rules.targets import lambda_returns
from rollax.settings import NOT_NEGATIVE, POSITIVE, SHARE, setting
from rollax.tracing import mean_and_variance, mean_over
from rollax.types import (
    Array,
    Box,
    Carry,
    Decision,
    Discrete,
    EnvSpec,
    Joint,
    Key,
    Metrics,
    MultiDiscrete,
    Observation,
    Params,
    Transition,
)

COLLAPSED = 0.02  # the share of its largest entropy at which a policy has stopped trying


@struct.dataclass
class PPOHParams(RolloutHParams):
    """Numbers that may differ between the members of a population.  All are traced."""

    trace_lambda: float = setting(0.95, "Lambda of generalised advantage estimation (GAE).", limit=SHARE, group="ppo")
    clip: float = setting(
        0.2, "Clipping range of the probability ratio of new and old policy.", limit=POSITIVE, group="ppo"
    )
    entropy_weight: float = setting(
        0.01, "Entropy coefficient of the loss at the start.", limit=NOT_NEGATIVE, group="ppo"
    )
    entropy_end: float = setting(
        1.0,
        "Share of the entropy coefficient that is left in the end; 1 keeps it constant.",
        limit=SHARE,
        group="ppo",
        rare=True,
    )
    entropy_steps: float = setting(
        1_000_000.0,
        "Number of environment steps over which the entropy coefficient falls.",
        limit=POSITIVE,
        group="ppo",
        rare=True,
    )
    entropy_schedule: Scheduled = setting(
        None,
        "Entropy coefficient as a table of environment steps and values, "
        "like 0:0.01,1e6:0, or package.module:function.",
        limit=NOT_NEGATIVE,
        group="ppo",
        searchable=False,
        rare=True,
    )
    value_weight: float = setting(0.5, "Value-loss coefficient.", limit=NOT_NEGATIVE, group="ppo")
    kl_limit: float = setting(
        0.0,
        "KL divergence from the old policy at which learning from a rollout stops; 0 never stops.",
        limit=NOT_NEGATIVE,
        group="ppo",
        rare=True,
    )

    def entropy(self, env_steps: Array | float) -> Array:
        """The entropy coefficient after so many environment steps of learning."""
        if self.entropy_schedule is not None:
            return self.entropy_schedule.at(env_steps)
        return self.entropy_weight * linear(1.0, self.entropy_end, env_steps / self.entropy_steps)


@dataclass(frozen=True)
class PPOConfig(RolloutConfig):
    """Choices that shape the compiled program.  All are static."""

    torso: Torso = MixedTorso(hidden=(64, 64))
    numbers: NumberPolicy = setting(NumberPolicy(), group="continuous actions")
    noise: NoiseConfig = setting(NoiseConfig(), group="continuous actions")
    observations: Observations = RawObservations()
    rewards: Rewards = RawRewards()
    shared: bool = setting(False, "Whether policy and value function share one torso.", group="network")
    optimizer: OptimizerName = setting("adam", "The optimizer's rule.", group="optimizer", rare=True)
    normalize_advantages: bool = setting(
        True, "Normalise the advantages of each minibatch to mean 0 and standard deviation 1.", group="ppo", rare=True
    )
    clip_values: bool = setting(False, "Clip the change of values like the probability ratio.", group="ppo", rare=True)
    evaluation_draws: bool = setting(
        False,
        "Sample actions from the policy in evaluations instead of taking the likeliest.",
        group="evaluation and logging",
        rare=True,
        protocol=True,
    )

    takes: ClassVar[tuple[type, ...]] = (Discrete, MultiDiscrete, Box, Joint)

    def build(self, spec: EnvSpec) -> PPO:
        return PPO(self, spec)

    def problems(self, spec: EnvSpec) -> list[str]:
        found = super().problems(spec) + self.noise.problems(spec)
        if self.torso.reads_raw and not isinstance(self.observations, RawObservations):
            found.append("observations=normalized hides what this torso looks for; try observations=raw or torso=mlp")
        return found


class PPOParams(NamedTuple):
    """All that acting needs."""

    network: Params
    observations: Any  # what is known of them; () where they are taken as they are


class PPOLearner(NamedTuple):
    """What learning changes."""

    hparams: PPOHParams
    params: PPOParams
    opt_state: optax.OptState
    gradient_steps: Array  # those that `kl_limit` left out included, so that schedules keep their pace


# The learner with whether `kl_limit` has stopped this rollout's learning, and the memory.
PPOProgress = tuple[tuple[PPOLearner, Array], Any]


class ExploringCarry(NamedTuple):
    """What is remembered within an episode by an agent that explores with correlated noise."""

    memory: Carry  # of the network
    noise: Carry


class PPONotes(NamedTuple):
    """What `act` tells `learn`: `[B]` each."""

    log_prob: Array
    value: Array


class Lesson(NamedTuple):
    """An action, how it came to be, and how good it was: `[N, ...]`."""

    obs: Observation
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    past: Past | tuple[()] = ()  # of a network that remembers; then all else is `[T, B, ...]`


@dataclass(frozen=True)
class PPO(Stepwise):
    """The agent in one environment."""

    metric_names: ClassVar[tuple[str, ...]] = (
        "loss",
        "grad_norm",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
    )

    config: PPOConfig
    spec: EnvSpec
    stops: bool = True  # whether a member may have a `kl_limit`

    def fitted(self, members: Sequence[Mapping[str, float]]) -> PPO:
        return replace(self, stops=any(member["kl_limit"] > 0 for member in members))

    @cached_property
    def head(self) -> PolicyHead:
        """What the network says of actions, and what it means."""
        return PolicyHead(self.spec.action, self.config.numbers)

    @cached_property
    def noise(self) -> Noise | None:
        """What explores, where its steps resemble each other; None where each draws by itself."""
        return self.config.noise.build(self.spec) if self.config.noise.noise_correlation else None

    @cached_property
    def network(self) -> ActorCritic:
        config, head = self.config, self.head
        return ActorCritic(head.outputs, config.torso, config.shared, config.recurrence, head.free, head.start)

    @cached_property
    def observations(self) -> ObservationView:
        return self.config.observations.build(self.spec)

    @cached_property
    def rewards(self) -> RewardView:
        return self.config.rewards.build(self.spec)

    def init(self, key: Key, hparams: PPOHParams) -> tuple[PPOLearner, Any]:
        observations = self.observations.init()
        network = self.initial_weights(key, self.observations.show(observations, blank_features(self.spec)))
        opt_state = make_optimizer(self.config.optimizer, hparams).init(network)
        learner = PPOLearner(hparams, PPOParams(network, observations), opt_state, jnp.int32(0))
        return learner, self.rewards.init()

    def act(
        self, learner: PPOLearner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        noisy = explore and self.noise is not None
        memory, before = carry if noisy else (carry, ())
        policy, value, memory = self.look(learner.params, memory, obs, fresh)
        if noisy:
            assert self.noise is not None
            noise, after = self.noise.draw(before, fresh, key)
            action, carry = cast(Placed, policy).place(noise), ExploringCarry(memory, after)
        else:
            action, carry = policy.draw(key) if explore or self.config.evaluation_draws else policy.mode(), memory
        return Decision(action, PPONotes(policy.log_prob(action), value), carry)

    def initial_weights(self, key: Key, features: Any) -> Params:
        """The network's weights at first, for features `[1, ...]`."""
        if not self.config.recurrence.remembers:
            return self.network.init(key, features)
        one = jax.tree.map(lambda x: x[None], features)
        return self.network.init(key, one, self.greedy_carry(1), jnp.ones((1, 1), bool), method="through")

    def initial_carry(self, num: int) -> Carry:
        memory = self.network.initial_carry(num)
        return memory if self.noise is None else ExploringCarry(memory, self.noise.initial(num))

    def greedy_carry(self, num: int) -> Carry:
        return self.network.initial_carry(num)

    def doubtful(self, learner: PPOLearner) -> Any:
        """The statistics of observations: the network changes by gradients alone."""
        return learner.params.observations

    @property
    def hides_nans(self) -> bool:
        return self.config.optimizer in HIDING_OPTIMIZERS

    def scores(self, learner: PPOLearner, carry: Carry, obs: Observation, fresh: Array) -> Array | None:
        """The logarithms of the policy; None where actions are not numbered."""
        policy = self.look(learner.params, carry, obs, fresh)[0]
        return policy.log_probs if isinstance(policy, MaskedCategorical) else None

    def opinion(self, learner: PPOLearner, carry: Carry, obs: Observation, fresh: Array) -> Opinion:
        """The policy, and the critic's value."""
        policy, value, _ = self.look(learner.params, carry, obs, fresh)
        return Opinion(policy=policy, value=value)

    def interrupt(self, memory: Any, obs: Observation) -> Any:
        return self.rewards.interrupt(memory)

    @property
    def updates(self) -> int:
        return self.config.updates

    def begin(self, learner: PPOLearner, memory: Any, rollout: Transition, key: Key) -> tuple[PPOProgress, Lessons]:
        if self.noise is not None:  # what is learnt does not know how it was explored
            rollout = rollout._replace(carry=cast(ExploringCarry, rollout.carry).memory)
        hp, notes = learner.hparams, cast(PPONotes, rollout.notes)
        reward, memory = self.rewards.scale(memory, rollout, hp.discount)
        next_value = self.next_values(learner.params, rollout)
        target = lambda_returns(
            hp.reward_scale * reward, next_value, rollout.terminated, rollout.truncated, hp.discount, hp.trace_lambda
        )
        advantage = target - notes.value
        recurrence = self.config.recurrence
        lesson = Lesson(rollout.obs, rollout.action, *notes, advantage, target, past_of(rollout, recurrence))
        each = shuffled(self.spec, self.config, key)
        return ((learner, jnp.bool_(False)), memory), Lessons(lessons_of(lesson, recurrence), each)

    def next_values(self, params: PPOParams, rollout: Transition) -> Array:
        """The value of the true successor of every step `[T, B]`."""

        def value_of(carry: Carry, obs: Observation) -> Array:
            return self.look(params, carry, obs, jnp.zeros(batch_size(obs), bool))[1]

        carry: Carry = ()
        if self.config.recurrence.remembers:
            last = jax.tree.map(lambda x: x[-1], (rollout.carry, rollout.obs, rollout.fresh))
            carry = self.look(params, *last)[2]
        return successor_values(self.spec, rollout, cast(PPONotes, rollout.notes).value, carry, value_of)

    def conclude(self, progress: PPOProgress, lessons: Lessons, metrics: Metrics) -> tuple[PPOLearner, Any, Metrics]:
        (learner, _), memory = progress
        # Only now, so that a whole rollout is acted in and learnt from with the same view of the world.
        features = lessons.shared.obs.features
        seen = flatten_time(features) if self.config.recurrence.remembers else features
        known = self.observations.update(learner.params.observations, seen)
        return learner._replace(params=learner.params._replace(observations=known)), memory, metrics

    def step(self, progress: PPOProgress, shared: Lesson, own: tuple[Array, Key]) -> tuple[PPOProgress, Metrics]:
        """A gradient step, unless the policy has moved too far: then neither this one nor any later of the rollout."""
        (learner, stopped), memory = progress
        rows, _ = own  # nothing in it is random
        lesson = minibatch(shared, rows, self.config.recurrence)
        hp, params, env_steps = learner.hparams, learner.params, self.env_steps(learner)

        def loss_of(network: Params) -> tuple[Array, Metrics]:
            return self.loss(params._replace(network=network), hp, env_steps, lesson)

        (_, metrics), grads = jax.value_and_grad(loss_of, has_aux=True)(params.network)
        metrics, grads = mean_over(self.spec, (metrics, grads))
        *stepped, grad_norm = apply_gradients(
            self.config.optimizer, hp, env_steps, grads, learner.opt_state, params.network
        )
        if self.stops:
            stopped |= (hp.kl_limit > 0) & (metrics["approx_kl"] > hp.kl_limit)
            kept = [params.network, learner.opt_state]
            stepped = jax.tree.map(lambda new, old: jax.lax.select(stopped, old, new), stepped, kept)
        network, opt_state = stepped
        learner = PPOLearner(hp, params._replace(network=network), opt_state, learner.gradient_steps + 1)
        return ((learner, stopped), memory), metrics | {"grad_norm": grad_norm}

    def loss(self, params: PPOParams, hp: PPOHParams, env_steps: Array, lesson: Lesson) -> tuple[Array, Metrics]:
        """The clipped objective, the values' squared error and the entropy, in one number and each by name."""
        policy, value = self.judge(params, lesson.obs, lesson.past)
        if isinstance(lesson.past, Past):
            lesson = flatten_time(lesson._replace(past=()))
        log_ratio = policy.log_prob(lesson.action) - lesson.log_prob
        ratio = jnp.exp(log_ratio)
        advantage = lesson.advantage
        if self.config.normalize_advantages:
            mean, variance = mean_and_variance(self.spec, advantage)
            advantage = (advantage - mean) / (jnp.sqrt(variance) + 1e-8)
        pulled = ratio * advantage
        held = jnp.clip(ratio, 1 - hp.clip, 1 + hp.clip) * advantage
        policy_loss = -jnp.mean(jnp.minimum(pulled, held))
        errors = (value - lesson.target) ** 2
        if self.config.clip_values:
            near = lesson.value + jnp.clip(value - lesson.value, -hp.clip, hp.clip)
            errors = jnp.maximum(errors, (near - lesson.target) ** 2)
        value_loss = 0.5 * jnp.mean(errors)
        entropy = jnp.mean(policy.entropy())
        entropy_weight = hp.entropy(env_steps)
        loss = policy_loss + hp.value_weight * value_loss - entropy_weight * entropy
        metrics = {
            "loss": loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": jnp.mean(ratio - 1 - log_ratio),
            "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > hp.clip),
        }
        return loss, metrics

    def look(
        self, params: PPOParams, carry: Carry, obs: Observation, fresh: Array
    ) -> tuple[Distribution, Array, Carry]:
        """The policy over actions, values `[B]`, and the carry after observations `[B, ...]`."""
        if not self.config.recurrence.remembers:
            return *self.judge(params, obs), carry
        one = jax.tree.map(lambda x: x[None], (obs, fresh))
        return self.through(params, carry, *one)

    def judge(self, params: PPOParams, obs: Observation, past: Past | tuple[()] = ()) -> tuple[Distribution, Array]:
        """The policy over actions, and values, of rows `[N]`; with a past, of rollouts `[T, B]`, as rows."""
        if isinstance(past, Past):
            return self.through(params, jax.tree.map(lambda x: x[0], past.carry), obs, past.fresh)[:2]
        features = self.observations.show(params.observations, obs.features)
        scores, value = cast(Any, self.network.apply(params.network, features))
        return self.head.distribution(scores, obs.legal), value

    def through(
        self, params: PPOParams, carry: Carry, obs: Observation, fresh: Array
    ) -> tuple[Distribution, Array, Carry]:
        """Policy and values of observations `[T, B, ...]`, as rows, and the carry after them."""
        features = self.observations.show(params.observations, obs.features)
        scores, value, carry = cast(Any, self.network.apply(params.network, features, carry, fresh, method="through"))
        legal = None if obs.legal is None else flatten_time(obs.legal)
        return self.head.distribution(scores, legal), value, carry

    def concern(self, metrics: dict[str, float], done: float) -> str | None:
        space = self.spec.action
        if not isinstance(space, Discrete) or done > 0.5 or metrics["entropy"] > COLLAPSED * math.log(space.n):
            return None
        return (
            f"the policy's entropy has fallen to {metrics['entropy']:.2g} early: it hardly tries anything new; "
            "a larger --entropy-weight keeps it trying"
        )


PPO_RECIPE = Recipe(PPOConfig(), PPOHParams(), {"num_envs": 16, "rollout_length": 128, "warm_up_steps": 0})
