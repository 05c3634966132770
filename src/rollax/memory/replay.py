"""What a replay is: settings, built once for an environment into a buffer of past transitions.

buffer = UniformReplay(capacity=10_000, n_step=3).build(spec)
state = buffer.add(buffer.init(), rollout)
sample = buffer.sample(state, key, Request(batch_size=128, discount=0.99))
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from rollax.memory.ring import Ring
from rollax.memory.rows import MOST_BLANK
from rollax.settings import COUNT, setting
from rollax.types import Array, EnvSpec, Key, Observation, Transition


class Request(NamedTuple):
    """What a gradient step asks of a replay."""

    batch_size: int  # windows from what this shard has
    discount: Array | float
    importance_exponent: Array | float = 0.0  # beta: 1 corrects the sampling bias in full, 0 not at all
    limit: Array | int = (
        0  # above 0, draw from only so many of the newest transitions; a replay without a limit ignores it
    )


class Sample(NamedTuple):
    """What a replay shows to one gradient step."""

    batch: Any  # a Batch, or a SequenceBatch
    weight: Array | float  # [batch], what each loss is multiplied by
    handle: Any  # where the sample came from, for `reprioritize`


class Buffer(ABC):
    """A replay in one environment: pure functions of a state, a pytree that the caller owns."""

    @abstractmethod
    def init(self) -> Any:
        """An empty memory."""

    @abstractmethod
    def add(self, state: Any, rollout: Transition) -> Any:
        """The memory with a rollout `[T, B, ...]` in place of its oldest rows."""

    @abstractmethod
    def interrupt(self, state: Any, obs: Observation) -> Any:
        """The memory, told that the next rollout does not follow on the last, which led to `obs` `[B, ...]`."""

    def ready(self, state: Any, batch_size: int) -> Array | bool:
        """Whether there is enough to draw such a batch; `True` where a warm-up sees to it."""
        return True

    @abstractmethod
    def sample(self, state: Any, key: Key, request: Request) -> Sample:
        """Draws windows.  At least `n_step + 1` rows must have been added, or the buffer be `ready`."""

    def reprioritize(self, state: Any, handle: Any, priority: Array, exponent: Array | float) -> Any:
        """The memory, told how wrong the predictions for a sample were; most do not care."""
        return state


@dataclass(frozen=True)
class Replay(ABC):
    """A replay's settings.  One of your own is a subclass, whose `build` returns a buffer of your own."""

    sequential: ClassVar[bool] = False  # its samples are sequences, and not single transitions

    capacity: int = setting(
        10_000,
        "Number of transitions that the replay buffer holds, of all environments together.",
        limit=COUNT,
        memory=True,
    )
    n_step: int = setting(
        1, "Number of rewards that an n-step target sums before it bootstraps.", limit=COUNT, group="targets"
    )

    @abstractmethod
    def build(self, spec: EnvSpec) -> Buffer:
        """The replay in that environment, for which it must have no problems."""

    def problems(self, spec: EnvSpec) -> list[str]:
        """What is wrong with this replay for that environment, each with its fix."""
        return []

    def most_windows(self, spec: EnvSpec) -> int:
        """How many windows there are to draw from once it is full, of all shards together."""
        return self.capacity

    def least_warm_up(self, spec: EnvSpec) -> int:
        """Iterations that must have been added before anything is drawn."""
        return -(-(self.n_step + 1) // spec.rollout_length)


@dataclass(frozen=True)
class RingReplay(Replay):
    """A replay whose transitions lie in a ring."""

    def ring(self, spec: EnvSpec) -> Ring:
        return Ring(spec, self.capacity, self.n_step)

    def most_windows(self, spec: EnvSpec) -> int:
        return spec.num_envs * self.ring(spec).most_starts

    def problems(self, spec: EnvSpec) -> list[str]:
        found = []
        unit = spec.steps_per_iteration
        least = unit * math.ceil((self.n_step + spec.stack) / spec.rollout_length)
        least += unit if spec.stack > 1 else 0  # the oldest stacks lose their past before they are overwritten
        least += 2 * unit if spec.restarts else 0  # there is a step on either side of a filler
        if spec.stack > MOST_BLANK:
            found.append(f"stack={spec.stack} is more frames than a row can count; the most is stack={MOST_BLANK}")
        if self.capacity < least:
            found.append(f"capacity={self.capacity} holds no complete window; the least is capacity={least}")
        elif self.capacity % unit:
            found.append(
                f"capacity={self.capacity} is not a multiple of num_envs * rollout_length = {unit}; "
                f"try capacity={round(self.capacity / unit) * unit}"
            )
        return found
