"""The DQN family: DQN, Double, Dueling, n-step, prioritised, Noisy, C51, QR-DQN, IQN, Munchausen, Rainbow.

One update rule serves them all.  A member of the family is a choice of parts: a head says what a return is made of,
streams are the layers before it, a replay says which transitions come back, a backup says what follows the next
state, `double` says whose values choose there.  `FAMILY`, at the end, names the choices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct

from rollax.agents.base import (
    AgentConfig,
    OptimizerHParams,
    OptimizerName,
    Recipe,
    make_optimizer,
    share_problems,
)
from rollax.agents.q_learner import NoisyActing, QLearner
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Buffer, Replay, Request, Sample
from rollax.memory.uniform import UniformReplay
from rollax.networks.heads import CategoricalHead, Head, ImplicitQuantileHead, QuantileHead, ScalarHead, Streams
from rollax.networks.torsos import MLP, Torso
from rollax.networks.weights import FlaxWeights, TorchWeights
from rollax.rules.backups import GreedyBackup, MunchausenBackup
from rollax.rules.returns import BellmanError, ReturnDistribution
from rollax.rules.schedules import Exploration, LinearEpsilon, PeriodicTarget, linear
from rollax.settings import COUNT, COUNT_OR_NONE, POSITIVE, SHARE, setting
from rollax.tracing import REMEMBERING, SAMPLING, mean_over, phase
from rollax.types import Array, Carry, Decision, EnvSpec, Key, Metrics, Observation, Params, Transition


@struct.dataclass
class MeanLoss:
    """What a gradient step makes smaller: the mean loss of a batch."""

    def value(self, losses: Array) -> Array:
        """One number of losses `[batch]`."""
        # The compiler would fold the gradient's first factor, 1, into other constants, and round otherwise than it does
        # for any other weight of the loss.
        return jax.lax.optimization_barrier(jnp.mean(losses))


@struct.dataclass
class DQNHParams(OptimizerHParams):
    """Numbers that may differ between the members of a population.  All are traced; parts are made of such numbers."""

    exploration: Exploration = LinearEpsilon()
    discount: float = setting(0.99, "Discount factor of future rewards.", limit=SHARE, group="targets")
    huber_kappa: float = setting(
        1.0, "Bellman error beyond which the Huber loss grows linearly.", limit=POSITIVE, group="targets", rare=True
    )
    target: PeriodicTarget = PeriodicTarget()
    replay_limit: int = setting(
        0,
        "Number of the newest transitions that a uniform replay buffer draws from; 0 draws from all.",
        limit=COUNT_OR_NONE,
        group="replay",
        rare=True,
    )
    objective: MeanLoss = MeanLoss()
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
        at_most="importance_end",
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
class DQNConfig(AgentConfig):
    """Choices that shape the compiled program.  All are static."""

    torso: Torso = MLP()
    streams: Streams = setting(Streams(), group="network")
    head: Head = ScalarHead()
    double: bool = setting(
        False,
        "Use Double DQN: the online network chooses the next action, the target network evaluates it.",
        group="targets",
    )
    backup: GreedyBackup = GreedyBackup()
    replay: Replay = UniformReplay()
    acting: NoisyActing = NoisyActing()
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
        if self.replay.sequential != self.reads_sequences:
            return [self.other_replay()]
        parts = self.replay.problems(spec) + self.torso.problems(spec.observation) + self.head.problems()
        return parts + share_problems(spec, "batch_size", self.batch_size) + self.batch_problems(spec)

    @property
    def reads_sequences(self) -> bool:
        """Whether it learns from sequences in place of single transitions."""
        return False

    def other_replay(self) -> str:
        """Why its replay does not fit, with the fix."""
        return "replay=sequences is for an agent that remembers; set --replay uniform, or take `rollax train r2d2`"

    def batch_problems(self, spec: EnvSpec) -> list[str]:
        """Whether the replay, once it is full, has as many windows as a gradient step draws."""
        most = self.replay.most_windows(spec)
        if self.batch_size <= most or most < 1:  # a replay that holds none says so itself
            return []
        return [
            f"batch_size={self.batch_size} is more than the {most} transitions that capacity={self.replay.capacity} "
            f"has to draw from; the most is batch_size={most // spec.shards * spec.shards}"
        ]

    def least_warm_up(self, spec: EnvSpec) -> int:
        return self.replay.least_warm_up(spec)

    def rows_of_an_update(self, spec: EnvSpec) -> int:
        return self.batch_size


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


class StepKeys(NamedTuple):
    """The keys of one gradient step."""

    draw: Key  # what it learns from
    loss: Key  # noise and levels of the networks


@dataclass(frozen=True)
class DQN(QLearner):
    """A member of the family in one environment."""

    config: DQNConfig

    @cached_property
    def buffer(self) -> Buffer:
        """Where it remembers."""
        return self.config.replay.build(self.spec)

    @property
    def own_batch(self) -> int:
        """What this shard draws of a batch."""
        return self.spec.share(self.config.batch_size)

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

    def remember(self, memory: Any, rollout: Transition) -> Any:
        return self.buffer.add(memory, rollout)

    def interrupt(self, memory: Any, obs: Observation) -> Any:
        return self.buffer.interrupt(memory, obs)

    def lessons(self, learner: DQNLearner, rollout: Transition, key: Key) -> tuple[tuple, StepKeys]:
        del rollout  # `remember` has put it into the memory
        return (), self.step_keys(key)

    def step_keys(self, key: Key) -> StepKeys:
        """The keys `[updates]` of an iteration's gradient steps."""
        pairs = jax.random.split(key, (self.updates, 2))
        return StepKeys(pairs[:, 0], pairs[:, 1])

    def step(
        self, progress: tuple[DQNLearner, Any], shared: Any, own: StepKeys
    ) -> tuple[tuple[DQNLearner, Any], Metrics]:
        """A gradient step, if the memory is ready for it; else it is counted, and changes nothing."""
        learner, memory = progress

        def learn() -> tuple[tuple[DQNLearner, Any], Metrics]:
            sample = self.draw(learner, memory, own.draw)
            after, priority, metrics = self.improve(learner, sample, own.loss)
            return (after, self.settle(learner.hparams, memory, sample.handle, priority)), metrics

        def wait() -> tuple[tuple[DQNLearner, Any], Metrics]:
            metrics = {"loss": jnp.float32(0), "grad_norm": jnp.float32(0)}
            return (learner._replace(gradient_steps=learner.gradient_steps + 1), memory), metrics

        ready = self.buffer.ready(memory, self.own_batch)
        return learn() if ready is True else jax.lax.cond(ready, learn, wait)

    def draw(self, learner: DQNLearner, memory: Any, key: Key) -> Sample:
        """What the next gradient step learns from.  Of the learner it needs the numbers, not the weights."""
        hp = learner.hparams
        importance = linear(hp.importance_start, hp.importance_end, self.env_steps(learner) / hp.importance_steps)
        with phase(SAMPLING):
            return self.buffer.sample(memory, key, Request(self.own_batch, hp.discount, importance, hp.replay_limit))

    def draw_all(self, learner: DQNLearner, memory: Any, keys: Key) -> Sample:
        """What each gradient step of an iteration learns from, `[updates, ...]`, if none has changed the memory yet."""

        def draw(number: Array, key: Key) -> Sample:
            return self.draw(learner._replace(gradient_steps=learner.gradient_steps + number), memory, key)

        return jax.vmap(draw)(jnp.arange(self.updates), keys)  # four times as fast as one by one

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

    def settle(self, hparams: DQNHParams, memory: Any, handle: Any, priority: Array) -> Any:
        """The memory, told how wrong the learner was about a sample."""
        with phase(REMEMBERING):
            return self.buffer.reprioritize(memory, handle, priority, hparams.priority_exponent)

    def settle_all(self, hparams: DQNHParams, memory: Any, handles: Any, priorities: Array) -> Any:
        """The same for the samples of all gradient steps of an iteration, `[updates, ...]`, one after the other."""

        def settle(memory: Any, result: tuple[Any, Array]) -> tuple[Any, None]:
            return self.settle(hparams, memory, *result), None

        return jax.lax.scan(settle, memory, (handles, priorities))[0]

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
