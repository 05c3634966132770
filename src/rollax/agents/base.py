"""What an agent is, and the few pieces that all agents share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.networks.recurrence import entered
from rollax.rules.schedules import Scheduled, linear
from rollax.settings import NOT_NEGATIVE, POSITIVE, SHARE, setting
from rollax.types import Array, Carry, Decision, Discrete, EnvSpec, Key, Metrics, Observation, Params, Transition

Learner = Any  # weights, optimizer, hyper-parameters: a NamedTuple with a field `params`, the weights that act
Memory = Any  # past data: a pytree, `()` for agents that keep none
Progress = tuple[Any, Memory]  # what learns, and the memory, from one gradient step of an iteration to the next
OptimizerName = Literal["adam", "radam", "rmsprop"]


class Opinion(NamedTuple):
    """What an agent thinks of observations `[B, ...]`, as far as it can say, for people who watch it."""

    scores: Array | None = None  # [B, A]: of the numbers below the greedy action has the largest
    returns: Any = None  # a `ReturnDistribution` of all actions
    policy: Any = None  # a `Distribution` over actions
    value: Array | None = None  # [B]: the return that it expects


class Agent(ABC):
    """An algorithm in one environment.  All methods are pure: what changes is in learner, memory and carry.

    The caller owns all three.  `init`, `act` and `learn` must be written, and there must be a field `spec`; all else
    has defaults that are right for most.
    """

    if TYPE_CHECKING:  # to a reader both are attributes, however a subclass comes by them

        @property
        def metric_names(self) -> tuple[str, ...]: ...

        @property
        def spec(self) -> EnvSpec: ...

    else:
        metric_names = ("loss",)  # what `learn` reports: `loss`, then the agent's own

    @abstractmethod
    def init(self, key: Key, hparams: Any) -> tuple[Learner, Memory]:
        """A new learner and an empty memory."""

    def initial_carry(self, num: int) -> Carry:
        """What it remembers at the beginning of an episode, for so many environments: a tree of arrays `[num, ...]`."""
        return ()

    def greedy_carry(self, num: int) -> Carry:
        """The same for who never explores: without what is remembered of exploring alone."""
        return self.initial_carry(num)

    def enter(self, carry: Carry, fresh: Array) -> Carry:
        """The carry as it is at these observations: the initial one where an episode begins.

        Who reads a carry calls this first; a `Recurrence` does so itself.  Nothing else in the library clears one.
        """
        return entered(self.initial_carry(fresh.shape[0]), carry, fresh)

    @abstractmethod
    def act(
        self, learner: Learner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        """Legal actions for observations `[B, ...]`, of which `fresh` `bool[B]` are the first of an episode."""

    def remember(self, memory: Memory, rollout: Transition) -> Memory:
        """The memory with a rollout `[T, B, ...]` added."""
        return memory

    @abstractmethod
    def learn(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Learner, Memory, Metrics]:
        """One iteration's learning; the metrics are scalars, named as in `metric_names`."""

    def interrupt(self, memory: Memory, obs: Observation) -> Memory:
        """The memory, told that the next rollout does not follow on the last, which led to `obs` `[B, ...]`."""
        return memory

    def doubtful(self, learner: Learner) -> Any:
        """What of the learner may stop being finite although `loss` and `grad_norm` of its metrics are finite.

        The loop looks at it after each iteration, and keeps the weights as they were if something is wrong: at all
        weights, unless an agent knows better.  One whose weights change by `apply_gradients` alone returns ().
        """
        return learner.params

    def concern(self, metrics: dict[str, float], done: float) -> str | None:
        """What a user should know, and do, about these metrics after that share of the run; mostly nothing."""
        return None

    def with_weights(self, learner: Learner, params: Params) -> Learner:
        """A learner that starts from these weights wherever it would have used its own."""
        return learner._replace(params=params)

    def fitted(self, members: Sequence[Mapping[str, float]]) -> Agent:
        """The agent without what none of these members needs, each of which has hyper-parameters by their names.

        It must compute for them what it computed before.
        """
        return self

    def apart(self, learner: Learner) -> Learner:
        """The learner as a loop in which it only acts wants it."""
        return learner

    @property
    def hides_nans(self) -> bool:
        """Whether its arithmetic makes NaNs that it does not use; `--check` then looks at the environment alone."""
        return False

    def scores(self, learner: Learner, carry: Carry, obs: Observation, fresh: Array) -> Array | None:
        """Numbers `[B, A]` of which the greedy action has the largest, before illegal ones are masked.

        An agent that has none returns None: it cannot be exported as ONNX, and there is nothing to compare in its view.
        """
        return None

    def opinion(self, learner: Learner, carry: Carry, obs: Observation, fresh: Array) -> Opinion:
        """What it thinks of these observations when it does not explore."""
        return Opinion(scores=self.scores(learner, carry, obs, fresh))


class AgentDecider(NamedTuple):
    """An agent with what it has learnt, as an environment's decider."""

    agent: Any
    learner: Learner
    explore: bool

    def in_a_loop(self) -> AgentDecider:
        """The same, for a loop through which what it has learnt does not change."""
        return self._replace(learner=self.agent.apart(self.learner))

    def all(self, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        return self.agent.act(self.learner, carry, obs, fresh, key, explore=self.explore)

    def one(self, player: Any, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        return self.agent.act_as(self.learner, player, carry, obs, fresh, key, explore=self.explore)


class Lessons(NamedTuple):
    """What an iteration learns from."""

    shared: Any  # by all of its gradient steps
    each: Any  # a tree of [updates, ...]: for each step its own


class LearningInParts(ABC):
    """An iteration of learning as `updates` equal steps, which a caller may take one by one.

    `begin` says what there is to learn, `step` learns one part of it, `conclude` tidies up.  What the steps change is
    in the progress: what learns, and the memory.
    """

    @property
    @abstractmethod
    def updates(self) -> int:
        """Gradient steps of one iteration."""

    @abstractmethod
    def begin(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Progress, Lessons]:
        """Where the first step starts from, and the lessons."""

    @abstractmethod
    def step(self, progress: Progress, shared: Any, own: Any) -> tuple[Progress, Metrics]:
        """The progress after one step, with what the lessons hold for all and for it, and its metrics: scalars."""

    @abstractmethod
    def conclude(self, progress: Progress, lessons: Lessons, metrics: Metrics) -> tuple[Learner, Memory, Metrics]:
        """Learner and memory after the last step, from the means of the steps' metrics all that `learn` reports."""


class Stepwise(LearningInParts, Agent):
    """An agent whose iteration of learning consists of equal steps."""

    def env_steps(self, learner: Learner) -> Array:
        """Environment steps since learning began, which schedules count, of a learner that counts `gradient_steps`."""
        return learner.gradient_steps / self.updates * self.spec.steps_per_iteration

    def learn(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Learner, Memory, Metrics]:
        progress, lessons = self.begin(learner, memory, rollout, key)
        progress, metrics = jax.lax.scan(lambda old, own: self.step(old, lessons.shared, own), progress, lessons.each)
        return self.conclude(progress, lessons, jax.tree.map(jnp.mean, metrics))


class AgentConfig(ABC):
    """What shapes an agent's compiled program: subclasses are frozen dataclasses of settings and parts."""

    takes: ClassVar[tuple[type, ...]] = (Discrete,)  # the kinds of action spaces that the agent can act in

    @property
    def replay(self) -> Any:
        """The `Replay` of those that learn from past transitions; None for others."""
        return None

    @abstractmethod
    def build(self, spec: EnvSpec) -> Agent:
        """The agent in that environment."""

    def problems(self, spec: EnvSpec) -> list[str]:
        """What is wrong with these settings for that environment, each with its fix."""
        return []

    def least_warm_up(self, spec: EnvSpec) -> int:
        """Iterations without learning that `learn` needs to have happened."""
        return 0

    def rows_of_an_update(self, spec: EnvSpec) -> int:
        """Transitions that one gradient step learns from."""
        return spec.steps_per_iteration


class Recipe(NamedTuple):
    """What stands behind an agent's name."""

    choices: AgentConfig
    hparams: Any
    loop: dict[str, int] = {}  # what it wants of the loop that collects its data, by the names of its fields


@struct.dataclass
class OptimizerHParams:
    """How gradients become steps."""

    settings_group: ClassVar[str] = "optimizer"

    learning_rate: float = setting(5e-4, "Learning rate of the optimizer at the start.", limit=NOT_NEGATIVE)
    learning_rate_end: float = setting(
        1.0, "Share of the learning rate that is left in the end; 1 keeps it constant.", limit=SHARE
    )
    learning_rate_steps: float = setting(
        100_000.0, "Number of environment steps over which the learning rate falls.", limit=POSITIVE
    )
    learning_rate_schedule: Scheduled = setting(
        None,
        "Learning rate as a table of environment steps and values, like 0:1e-3,1e5:1e-4, or package.module:function.",
        limit=NOT_NEGATIVE,
        searchable=False,
        rare=True,
    )
    optimizer_eps: float = setting(
        1e-8, "Epsilon that is added to the optimizer's denominator.", limit=NOT_NEGATIVE, rare=True
    )
    max_grad_norm: float = setting(10.0, "Gradients are clipped to this global norm.", limit=POSITIVE)

    def rate(self, env_steps: Array | float) -> Array:
        """The learning rate after so many environment steps of learning."""
        if self.learning_rate_schedule is not None:
            return self.learning_rate_schedule.at(env_steps)
        return self.learning_rate * linear(1.0, self.learning_rate_end, env_steps / self.learning_rate_steps)


HIDING_OPTIMIZERS = ("radam",)  # its square roots are NaN before its fifth step, and not used


def make_optimizer(
    name: OptimizerName, hparams: OptimizerHParams, env_steps: Array | float | None = None
) -> optax.GradientTransformation:
    """The rule that turns gradients into steps, as it stands at that time; None where only its state is wanted.

    The state does not depend on the time, and a schedule that is missing is not missed.
    """
    rate = hparams.learning_rate if env_steps is None else hparams.rate(env_steps)
    eps = hparams.optimizer_eps
    rules = {
        "adam": lambda: optax.adam(rate, eps=eps),
        "radam": lambda: optax.radam(rate, eps=eps),
        "rmsprop": lambda: optax.rmsprop(rate, decay=0.95, eps=eps, centered=True),
    }
    return optax.chain(clip_by_norm(hparams.max_grad_norm), rules[name]())


def clip_by_norm(largest: Array | float) -> optax.GradientTransformation:
    """Gradients with at most this global norm; NaN, all of them, where one of them is no finite number."""

    def clip(grads: Params) -> Params:
        norm = optax.tree.norm(grads)
        divisor = jnp.where(jnp.isfinite(norm), norm, jnp.nan)
        return jax.tree.map(lambda grad: jax.lax.select(norm < largest, grad, grad / divisor * largest), grads)

    return optax.stateless(lambda grads, params: clip(grads))


class Descent(NamedTuple):
    """A step down the gradient."""

    params: Params
    opt_state: optax.OptState
    grad_norm: Array  # of the gradient before it was clipped: finite where all of it is


def apply_gradients(
    name: OptimizerName,
    hparams: OptimizerHParams,
    env_steps: Array | float,
    grads: Params,
    opt_state: optax.OptState,
    params: Params,
) -> Descent:
    """The weights and the optimizer's state after one step.

    The weights are always finite.  After a gradient that is not, the optimizer's state is NaN, and so is every later
    step: the weights stay for ever what they were before it.
    """
    updates, opt_state = make_optimizer(name, hparams, env_steps).update(grads, opt_state, params)
    return Descent(last_finite(optax.apply_updates(params, updates), params), opt_state, optax.tree.norm(grads))


def last_finite(after: Params, before: Params) -> Params:
    """The weights after a step, and before it where they would not be finite."""
    return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(new), new, old), after, before)


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


def batch_size(obs: Observation) -> int:
    """Observations in a batch `[B, ...]`."""
    return jax.tree.leaves(obs.features)[0].shape[0]


def blank_features(spec: EnvSpec) -> Any:
    """A batch of one observation's features, all zero: what a network is initialised with."""
    return jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), spec.observation.features)
