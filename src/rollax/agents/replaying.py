"""What all agents do alike that learn from replayed transitions: remember, draw, and say how wrong they were."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from rollax.agents.base import AgentConfig, Learner, Lessons, OptimizerHParams, Progress, Stepwise, share_problems
from rollax.memory.replay import Buffer, Replay, Request, Sample
from rollax.memory.uniform import UniformReplay
from rollax.networks.torsos import MixedTorso, Torso
from rollax.rules.schedules import Scheduled, linear
from rollax.settings import COUNT, COUNT_OR_NONE, POSITIVE, SHARE, setting
from rollax.tracing import REMEMBERING, SAMPLING, phase
from rollax.types import Array, EnvSpec, Key, Metrics, Observation, Transition


@struct.dataclass
class ReplayHParams(OptimizerHParams):
    """Numbers that such agents have alike, and that may differ between the members of a population."""

    discount: float = setting(0.99, "Discount factor of future rewards.", limit=SHARE, group="targets")
    replay_limit: int = setting(
        0,
        "Number of the newest transitions that a uniform replay buffer draws from; 0 draws from all.",
        limit=COUNT_OR_NONE,
        group="replay",
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
    importance_schedule: Scheduled = setting(
        None,
        "Importance-sampling exponent as a table of environment steps and values, "
        "like 0:0.4,1e5:1, or package.module:function.",
        limit=SHARE,
        group="replay",
        searchable=False,
        rare=True,
    )

    def importance(self, env_steps: Array | float) -> Array:
        """The importance-sampling exponent after so many environment steps of learning."""
        if self.importance_schedule is not None:
            return self.importance_schedule.at(env_steps)
        return linear(self.importance_start, self.importance_end, env_steps / self.importance_steps)


@dataclass(frozen=True)
class ReplayConfig(AgentConfig):
    """What such agents choose alike."""

    torso: Torso = MixedTorso()
    replay: Replay = UniformReplay()
    batch_size: int = setting(
        128, "Number of transitions of each gradient step.", limit=COUNT, group="optimizer", memory=True
    )
    gradient_steps: int = setting(1, "Number of gradient steps in each iteration.", limit=COUNT, group="optimizer")

    def problems(self, spec: EnvSpec) -> list[str]:
        if self.replay.sequential != self.reads_sequences:
            return [self.other_replay()]
        parts = self.replay.problems(spec) + self.torso.problems(spec.observation)
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


class StepKeys(NamedTuple):
    """The keys of one gradient step."""

    draw: Key  # what it learns from
    loss: Key  # what else is random in it, as noise and levels of networks are


@dataclass(frozen=True)
class Replaying(Stepwise):
    """An agent whose gradient steps each learn from a batch that its replay draws.

    Its learner has `hparams`, a `ReplayHParams`, and `gradient_steps`.
    """

    config: Any  # a ReplayConfig
    spec: EnvSpec

    @property
    def updates(self) -> int:
        return self.config.gradient_steps

    @abstractmethod
    def improve(
        self, learner: Any, sample: Sample, key: Key, env_steps: Array | None = None
    ) -> tuple[Any, Array, Metrics]:
        """The learner after a gradient step, and how wrong it was about each of the sample.

        `env_steps` is where schedules stand, if others collect than who learns.
        """

    def noted(self, learner: Learner) -> Metrics:
        """What `learn` reports beside the means of its gradient steps: how things stood before the first."""
        return {}

    @cached_property
    def buffer(self) -> Buffer:
        """Where it remembers."""
        return self.config.replay.build(self.spec)

    @property
    def own_batch(self) -> int:
        """What this shard draws of a batch."""
        return self.spec.share(self.config.batch_size)

    def remember(self, memory: Any, rollout: Transition) -> Any:
        return self.buffer.add(memory, rollout)

    def interrupt(self, memory: Any, obs: Observation) -> Any:
        return self.buffer.interrupt(memory, obs)

    def begin(self, learner: Any, memory: Any, rollout: Transition, key: Key) -> tuple[Progress, Lessons]:
        del rollout  # `remember` has put it into the memory
        return (learner, memory), Lessons(self.noted(learner), self.step_keys(key))

    def conclude(self, progress: Progress, lessons: Lessons, metrics: Metrics) -> tuple[Any, Any, Metrics]:
        return *progress, {**metrics, **lessons.shared}

    def step_keys(self, key: Key) -> StepKeys:
        """The keys `[updates]` of an iteration's gradient steps."""
        pairs = jax.random.split(key, (self.updates, 2))
        return StepKeys(pairs[:, 0], pairs[:, 1])

    def step(self, progress: Progress, shared: Any, own: StepKeys) -> tuple[Progress, Metrics]:
        """A gradient step, if the memory is ready for it; else it is counted, and changes nothing."""
        learner, memory = progress

        def learn() -> tuple[Progress, Metrics]:
            sample = self.draw(learner, memory, own.draw)
            after, priority, metrics = self.improve(learner, sample, own.loss)
            return (after, self.settle(learner.hparams, memory, sample.handle, priority)), metrics

        def wait() -> tuple[Progress, Metrics]:
            metrics = {name: jnp.float32(0) for name in self.metric_names if name not in self.noted(learner)}
            return (learner._replace(gradient_steps=learner.gradient_steps + 1), memory), metrics

        ready = self.buffer.ready(memory, self.own_batch)
        return learn() if ready is True else jax.lax.cond(ready, learn, wait)

    def draw(self, learner: Any, memory: Any, key: Key) -> Sample:
        """What the next gradient step learns from.  Of the learner it needs the numbers, not the weights."""
        hp = learner.hparams
        importance = hp.importance(self.env_steps(learner))
        with phase(SAMPLING):
            return self.buffer.sample(memory, key, Request(self.own_batch, hp.discount, importance, hp.replay_limit))

    def draw_all(self, learner: Any, memory: Any, keys: Key) -> Sample:
        """What each gradient step of an iteration learns from, `[updates, ...]`, if none has changed the memory yet."""

        def draw(number: Array, key: Key) -> Sample:
            return self.draw(learner._replace(gradient_steps=learner.gradient_steps + number), memory, key)

        return jax.vmap(draw)(jnp.arange(self.updates), keys)  # four times as fast as one by one

    def settle(self, hparams: ReplayHParams, memory: Any, handle: Any, priority: Array) -> Any:
        """The memory, told how wrong the learner was about a sample."""
        with phase(REMEMBERING):
            return self.buffer.reprioritize(memory, handle, priority, hparams.priority_exponent)

    def settle_all(self, hparams: ReplayHParams, memory: Any, handles: Any, priorities: Array) -> Any:
        """The same for the samples of all gradient steps of an iteration, `[updates, ...]`, one after the other."""

        def settle(memory: Any, result: tuple[Any, Array]) -> tuple[Any, None]:
            return self.settle(hparams, memory, *result), None

        return jax.lax.scan(settle, memory, (handles, priorities))[0]
