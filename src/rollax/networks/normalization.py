"""Running statistics, and the parts that bring observations and rewards to a common size with them."""

from __future__ import annotations

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


class Observations(Protocol):
    """What a network is shown of an observation's features.  What was learnt of them is part of the weights."""

    def init(self, spec: EnvSpec) -> Any: ...

    def show(self, known: Any, features: Any) -> Any:
        """Features `[B, ...]` as the network gets them."""
        ...

    def update(self, known: Any, features: Any, spec: EnvSpec) -> Any:
        """What is known after features `[N, ...]` were seen."""
        ...


@dataclass(frozen=True)
class RawObservations:
    """Features as they are."""

    def init(self, spec: EnvSpec) -> tuple:
        return ()

    def show(self, known: tuple, features: Any) -> Any:
        return features

    def update(self, known: tuple, features: Any, spec: EnvSpec) -> tuple:
        return known


@dataclass(frozen=True)
class NormalizedObservations:
    """Features less their running mean, over their running deviation, within limits."""

    observation_limit: float = setting(
        10.0, "Normalised observations are clipped to plus and minus this.", limit=POSITIVE, group="network", rare=True
    )

    def init(self, spec: EnvSpec) -> Moments:
        return no_moments(spec.observation.features)

    def show(self, known: Moments, features: Any) -> Any:
        def scaled(x: Array, mean: Array, variance: Array) -> Array:
            deviations = (x.astype(jnp.float32) - mean) * jax.lax.rsqrt(variance + TINY)
            return jnp.clip(deviations, -self.observation_limit, self.observation_limit)

        return jax.tree.map(scaled, features, known.mean, known.variance)

    def update(self, known: Moments, features: Any, spec: EnvSpec) -> Moments:
        return with_batch(known, features, spec)


class Rewards(Protocol):
    """What is learnt from in place of rewards.  What it remembers is part of the agent's memory."""

    def init(self, spec: EnvSpec) -> Any: ...

    def scale(self, known: Any, rollout: Transition, discount: Array | float, spec: EnvSpec) -> tuple[Array, Any]:
        """Rewards `[T, B]` to learn from, and what is known after this rollout."""
        ...

    def interrupt(self, known: Any) -> Any:
        """What is known, told that the next rollout begins new episodes."""
        ...


@dataclass(frozen=True)
class RawRewards:
    """Rewards as they are."""

    def init(self, spec: EnvSpec) -> tuple:
        return ()

    def scale(self, known: tuple, rollout: Transition, discount: Array | float, spec: EnvSpec) -> tuple[Array, tuple]:
        return rollout.reward, known

    def interrupt(self, known: tuple) -> tuple:
        return known


class RewardStatistics(NamedTuple):
    """What rewards have come to."""

    running: Array  # [B]: discounted sums of each environment's episode so far
    moments: Moments  # of those sums, at every step


@dataclass(frozen=True)
class NormalizedRewards:
    """Rewards over the running deviation of discounted sums of them; their sign and their zero stay."""

    reward_limit: float = setting(
        10.0, "Normalised rewards are clipped to plus and minus this.", limit=POSITIVE, group="targets", rare=True
    )

    def init(self, spec: EnvSpec) -> RewardStatistics:
        return RewardStatistics(jnp.zeros(spec.own_envs), no_moments(jnp.float32(0)))

    def scale(
        self, known: RewardStatistics, rollout: Transition, discount: Array | float, spec: EnvSpec
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

    def interrupt(self, known: RewardStatistics) -> RewardStatistics:
        return known._replace(running=jnp.zeros_like(known.running))
