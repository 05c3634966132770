"""Running statistics, and the parts that bring observations and rewards to a common size with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rollax.settings import POSITIVE, setting
from rollax.tracing import mean_and_variance
from rollax.types import Array, EnvSpec, Transition

TINY = 1e-8  # added to variances


class Moments(NamedTuple):
    """Mean and variance of all that was counted, element by element."""

    count: Array  # float32
    mean: Any  # a tree of float32
    variance: Any  # the same tree; 1 before anything is counted


def no_moments(shapes: Any) -> Moments:
    """Nothing counted yet, for a tree of arrays or shapes."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), shapes)
    return Moments(jnp.float32(0), zeros, jax.tree.map(jnp.ones_like, zeros))


def with_batch(moments: Moments, batch: Any, spec: EnvSpec) -> Moments:
    """The moments with rows `[N, ...]` of every shard counted too (Chan et al. 1979)."""
    added = jnp.float32(len(jax.tree.leaves(batch)[0]) * spec.shards)
    count = moments.count + added
    share = added / count

    seen = jax.tree.map(lambda rows: mean_and_variance(spec, rows.astype(jnp.float32), axis=0), batch)
    new_mean, new_variance = jax.tree.transpose(jax.tree.structure(batch), jax.tree.structure((0, 0)), seen)

    def variance_of(mean: Array, variance: Array, new_mean: Array, new_variance: Array) -> Array:
        return (1 - share) * variance + share * new_variance + share * (1 - share) * (new_mean - mean) ** 2

    means = jax.tree.map(lambda mean, new: mean + share * (new - mean), moments.mean, new_mean)
    return Moments(count, means, jax.tree.map(variance_of, moments.mean, moments.variance, new_mean, new_variance))


class ObservationView(NamedTuple):
    """What a network is shown of one environment's features.  What was learnt of them is part of the weights."""

    init: Callable[[], Any]  # what is known at first
    show: Callable[[Any, Any], Any]  # (known, features [B, ...]) -> features as the network gets them
    update: Callable[[Any, Any], Any]  # (known, features [N, ...]) -> what is known after these were seen


class Observations(Protocol):
    """How a network is shown an observation's features."""

    def build(self, spec: EnvSpec) -> ObservationView: ...


@dataclass(frozen=True)
class RawObservations:
    """Features as they are."""

    def build(self, spec: EnvSpec) -> ObservationView:
        return ObservationView(
            init=lambda: (), show=lambda known, features: features, update=lambda known, features: known
        )


@dataclass(frozen=True)
class NormalizedObservations:
    """Features less their running mean, over their running deviation, within limits."""

    observation_limit: float = setting(
        10.0, "Normalised observations are clipped to plus and minus this.", limit=POSITIVE, rare=True
    )

    def build(self, spec: EnvSpec) -> ObservationView:
        def scaled(x: Array, mean: Array, variance: Array) -> Array:
            deviations = (x.astype(jnp.float32) - mean) * jax.lax.rsqrt(variance + TINY)
            return jnp.clip(deviations, -self.observation_limit, self.observation_limit)

        def show(known: Moments, features: Any) -> Any:
            return jax.tree.map(scaled, features, known.mean, known.variance)

        def update(known: Moments, features: Any) -> Moments:
            return with_batch(known, features, spec)

        return ObservationView(lambda: no_moments(spec.observation.features), show, update)


class RewardView(NamedTuple):
    """What is learnt from in place of one environment's rewards.  What it remembers is part of the agent's memory."""

    init: Callable[[], Any]  # what is known at first
    # (known, rollout, discount) -> rewards [T, B] to learn from, and what is known after this rollout
    scale: Callable[[Any, Transition, Array | float], tuple[Array, Any]]
    interrupt: Callable[[Any], Any]  # what is known, told that the next rollout begins new episodes


class Rewards(Protocol):
    """What is learnt from in place of rewards."""

    def build(self, spec: EnvSpec) -> RewardView: ...


@dataclass(frozen=True)
class RawRewards:
    """Rewards as they are."""

    def build(self, spec: EnvSpec) -> RewardView:
        return RewardView(
            init=lambda: (),
            scale=lambda known, rollout, discount: (rollout.reward, known),
            interrupt=lambda known: known,
        )


class RewardStatistics(NamedTuple):
    """What rewards have come to."""

    running: Array  # [B]: discounted sums of each environment's episode so far
    moments: Moments  # of those sums, at every step


@dataclass(frozen=True)
class NormalizedRewards:
    """Rewards over the running deviation of discounted sums of them; their sign and their zero stay."""

    reward_limit: float = setting(
        10.0, "Normalised rewards are clipped to plus and minus this.", limit=POSITIVE, rare=True
    )

    def build(self, spec: EnvSpec) -> RewardView:
        def init() -> RewardStatistics:
            return RewardStatistics(jnp.zeros(spec.own_envs), no_moments(jnp.float32(0)))

        def scale(
            known: RewardStatistics, rollout: Transition, discount: Array | float
        ) -> tuple[Array, RewardStatistics]:
            def step(running: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
                reward, ended = row
                total = discount * running + reward
                return jnp.where(ended, 0.0, total), total

            ended = rollout.terminated | rollout.truncated
            running, totals = jax.lax.scan(step, known.running, (rollout.reward, ended))
            moments = with_batch(known.moments, totals.reshape(-1), spec)
            scaled = rollout.reward * jax.lax.rsqrt(moments.variance + TINY)
            return jnp.clip(scaled, -self.reward_limit, self.reward_limit), RewardStatistics(running, moments)

        def interrupt(known: RewardStatistics) -> RewardStatistics:
            return known._replace(running=jnp.zeros_like(known.running))

        return RewardView(init, scale, interrupt)
