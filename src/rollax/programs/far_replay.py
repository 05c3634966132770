"""A replay in the machine's own memory, while the learner is on an accelerator.

What an iteration learns from is drawn before its first gradient step, and priorities are told after its last: between
the two, memory and learner need nothing of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from rollax.agents.base import Learner, LearningInParts, Lessons, Memory, Progress
from rollax.agents.replaying import Replaying
from rollax.memory.replay import Sample
from rollax.types import Array, Key, Metrics, Transition


class Draws(NamedTuple):
    """All that an iteration learns from: leaves lead with its gradient steps, but for `noted`."""

    samples: Sample
    keys: Key
    noted: Metrics  # see `Replaying.noted`


class NewPriorities(NamedTuple):
    """How wrong the learner was about what was drawn: leaves lead with the gradient steps."""

    handles: Any
    priorities: Array  # [updates, batch]


@dataclass(frozen=True)
class FarReplay(LearningInParts):
    """The learning of an agent with a replay: it takes `Draws` in place of the memory, and gives `NewPriorities`."""

    agent: Replaying

    @property
    def updates(self) -> int:
        return self.agent.updates

    # -- where the memory is

    def light(self, learner: Learner) -> Learner:
        """What drawing needs of a learner."""
        return learner._replace(params=(), target_params=(), opt_state=())

    def draw(self, learner: Learner, memory: Memory, key: Key) -> Draws:
        """All samples of an iteration, with a learner that is `light`."""
        keys = self.agent.step_keys(key)
        return Draws(self.agent.draw_all(learner, memory, keys.draw), keys.loss, self.agent.noted(learner))

    def settle(self, hparams: Any, memory: Memory, new: NewPriorities) -> Memory:
        """The memory, told what the learner found."""
        return self.agent.settle_all(hparams, memory, new.handles, new.priorities)

    # -- where the learner is

    def begin(self, learner: Learner, memory: Draws, rollout: Transition, key: Key) -> tuple[Progress, Lessons]:
        del rollout, key  # both were used in drawing
        priorities = jnp.zeros((self.updates, self.agent.config.batch_size))
        each = (jnp.arange(self.updates), memory.samples, memory.keys)
        return ((learner, priorities), ()), Lessons(memory.noted, each)

    def step(self, progress: Progress, shared: Array, own: tuple[Array, Sample, Key]) -> tuple[Progress, Metrics]:
        (learner, priorities), _ = progress
        number, sample, key = own
        learner, priority, metrics = self.agent.improve(learner, sample, key)
        return ((learner, priorities.at[number].set(priority)), ()), metrics

    def conclude(
        self, progress: Progress, lessons: Lessons, metrics: Metrics
    ) -> tuple[Learner, NewPriorities, Metrics]:
        (learner, priorities), _ = progress
        _, samples, _ = lessons.each
        return learner, NewPriorities(samples.handle, priorities), {**metrics, **lessons.shared}
