"""What an agent is, and the few pieces that all agents share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.settings import NOT_NEGATIVE, POSITIVE, SHARE, setting
from rollax.types import Array, EnvSpec, Key, Metrics, Observation, Params, Transition

Learner = Any  # weights, optimizer, hyper-parameters: a pytree with a field `params`, the weights that act
Carry = tuple[Any, Any]  # what learns, and the memory, from one gradient step of an iteration to the next
Memory = Any  # past data: a pytree, `()` for agents that keep none
OptimizerName = Literal["adam", "radam", "rmsprop"]


class Agent(Protocol):
    """Four verbs, all pure.  Whatever changes is in the learner and the memory, which the caller owns."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `learn` reports: `loss`, then the agent's own."""
        ...

    @property
    def spec(self) -> EnvSpec:
        """Where it acts."""
        ...

    def init(self, key: Key, hparams: Any) -> tuple[Learner, Memory]:
        """A new learner and an empty memory."""
        ...

    def act(self, learner: Learner, obs: Observation, key: Key, *, explore: bool) -> tuple[Array, Any]:
        """Legal actions `[B]` for observations `[B, ...]`, and what `learn` should be told of them."""
        ...

    def remember(self, memory: Memory, rollout: Transition) -> Memory:
        """The memory with a rollout `[T, B, ...]` added."""
        ...

    def learn(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Learner, Memory, Metrics]:
        """One iteration's learning; the metrics are scalars, named as in `metric_names`."""
        ...

    def interrupt(self, memory: Memory, obs: Observation) -> Memory:
        """The memory, told that the next rollout does not follow on the last, which led to `obs` `[B, ...]`."""
        ...

    def concern(self, metrics: dict[str, float], done: float) -> str | None:
        """What a user should know, and do, about these metrics after that share of the run; mostly nothing."""
        ...

    def with_weights(self, learner: Learner, params: Params) -> Learner:
        """A learner that starts from these weights wherever it would have used its own."""
        ...


class Lessons(NamedTuple):
    """What an iteration learns from."""

    shared: Any  # by all of its gradient steps
    each: Any  # a tree of [updates, ...]: for each step its own


class Stepwise(ABC):
    """An agent whose iteration of learning is `updates` equal steps, which a caller may also take one by one.

    `begin` says what there is to learn, `step` learns one part of it, `conclude` tidies up.  What the steps change is
    in the carry: what learns, and the memory.
    """

    @property
    @abstractmethod
    def updates(self) -> int:
        """Gradient steps of one iteration."""

    @abstractmethod
    def begin(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Carry, Lessons]:
        """The carry of the first step, and the lessons."""

    @abstractmethod
    def step(self, carry: Carry, shared: Any, own: Any) -> tuple[Carry, Metrics]:
        """The carry after one step, with what the lessons hold for all and for it, and its metrics: scalars."""

    @abstractmethod
    def conclude(self, carry: Carry, lessons: Lessons, metrics: Metrics) -> tuple[Learner, Memory, Metrics]:
        """Learner and memory after the last step, from the means of the steps' metrics all that `learn` reports."""

    def learn(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Learner, Memory, Metrics]:
        carry, lessons = self.begin(learner, memory, rollout, key)
        carry, metrics = jax.lax.scan(lambda carry, own: self.step(carry, lessons.shared, own), carry, lessons.each)
        return self.conclude(carry, lessons, jax.tree.map(jnp.mean, metrics))

    def part(self, carry: Carry, lessons: Lessons, first: Array, count: int) -> tuple[Carry, Metrics]:
        """So many steps from that one on; the metrics are `[count]`."""
        own = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, count), lessons.each)
        return jax.lax.scan(lambda carry, own: self.step(carry, lessons.shared, own), carry, own)


class Choices(Protocol):
    """An agent's choices that shape the compiled program: a frozen dataclass."""

    def build(self, spec: EnvSpec) -> Agent:
        """The agent in that environment."""
        ...

    def problems(self, spec: EnvSpec) -> list[str]:
        """What is wrong with these choices for that environment, each with its fix."""
        ...

    def least_warm_up(self, spec: EnvSpec) -> int:
        """Iterations without learning that `learn` needs to have happened."""
        ...


class Recipe(NamedTuple):
    """What stands behind an agent's name."""

    choices: Choices
    hparams: Any
    loop: dict[str, int] = {}  # what it wants of the loop that collects its data, by the names of its fields


@struct.dataclass
class OptimizerHParams:
    """How gradients become steps."""

    learning_rate: float = setting(
        5e-4, "Learning rate of the optimizer at the start.", limit=NOT_NEGATIVE, group="optimizer"
    )
    learning_rate_end: float = setting(
        1.0, "Share of the learning rate that is left in the end; 1 keeps it constant.", limit=SHARE, group="optimizer"
    )
    learning_rate_steps: float = setting(
        100_000.0, "Number of environment steps over which the learning rate falls.", limit=POSITIVE, group="optimizer"
    )
    optimizer_eps: float = setting(
        1e-8, "Epsilon that is added to the optimizer's denominator.", limit=NOT_NEGATIVE, group="optimizer", rare=True
    )
    max_grad_norm: float = setting(
        10.0, "Gradients are clipped to this global norm.", limit=POSITIVE, group="optimizer"
    )


@struct.dataclass
class ExplorationHParams:
    """How often an action is random."""

    epsilon_start: float = setting(1.0, "Share of random actions at the start.", limit=SHARE, group="exploration")
    epsilon_end: float = setting(0.05, "Share of random actions in the end.", limit=SHARE, group="exploration")
    epsilon_steps: float = setting(
        25_000.0,
        "Number of environment steps after the warm-up over which the share of random actions falls.",
        limit=POSITIVE,
        group="exploration",
    )
    epsilon_decay: float = setting(
        0.0,
        "Share by which epsilon shrinks in every iteration, in place of the linear schedule; 0 keeps that.",
        limit=SHARE,
        group="exploration",
        rare=True,
    )


def make_optimizer(
    name: OptimizerName, hparams: OptimizerHParams, env_steps: Array | float = 0.0
) -> optax.GradientTransformation:
    """The rule that turns gradients into steps, as it stands at that time; its state does not depend on it."""
    share = linear(1.0, hparams.learning_rate_end, env_steps / hparams.learning_rate_steps)
    rate, eps = hparams.learning_rate * share, hparams.optimizer_eps
    rules = {
        "adam": lambda: optax.adam(rate, eps=eps),
        "radam": lambda: optax.radam(rate, eps=eps),
        "rmsprop": lambda: optax.rmsprop(rate, decay=0.95, eps=eps, centered=True),
    }
    return optax.chain(optax.clip_by_global_norm(hparams.max_grad_norm), rules[name]())


def apply_gradients(
    name: OptimizerName,
    hparams: OptimizerHParams,
    env_steps: Array | float,
    grads: Params,
    opt_state: optax.OptState,
    params: Params,
) -> tuple[Params, optax.OptState]:
    """The weights and the optimizer's state after one step."""
    updates, opt_state = make_optimizer(name, hparams, env_steps).update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def epsilon_at(hparams: ExplorationHParams, env_steps: Array | float, steps_per_iteration: int) -> Array:
    """The share of random actions after so many environment steps."""
    falling = linear(hparams.epsilon_start, hparams.epsilon_end, env_steps / hparams.epsilon_steps)
    left = (1.0 - hparams.epsilon_decay) ** jnp.round(env_steps / steps_per_iteration)
    shrinking = jnp.maximum(hparams.epsilon_start * left, hparams.epsilon_end)
    return jnp.where(hparams.epsilon_decay > 0, shrinking, falling)


def share_problems(spec: EnvSpec, name: str, count: int) -> list[str]:
    """Whether so many can be shared out evenly."""
    if count % spec.shards == 0:
        return []
    near = max(count // spec.shards, 1) * spec.shards
    return [f"{name}={count} cannot be shared out to {spec.shards} devices; try {name}={near}"]


def own_axes(memory: Memory) -> Any:
    """For `vmap` over learners that advance together: 0 for what each has of its own, None for what all share.

    Its integer scalars are counters that are the same for all.  Shared, they address every learner's memory at once;
    one index for each would make each write a loop.
    """

    def axis(leaf: Any) -> int | None:
        return None if leaf.ndim == 0 and jnp.issubdtype(leaf.dtype, jnp.integer) else 0

    return jax.tree.map(axis, memory)


def blank_features(spec: EnvSpec) -> Any:
    """A batch of one observation's features, all zero: what a network is initialised with."""
    return jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), spec.observation.features)


def linear(start: Array | float, end: Array | float, fraction: Array | float) -> Array:
    """From `start` at 0 to `end` at 1, and constant beyond.  All three may be traced."""
    return start + (end - start) * jnp.clip(fraction, 0.0, 1.0)
