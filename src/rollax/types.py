"""The data that everyone passes around: observations, transitions, and what an agent knows of its environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

Array = jax.Array
Key = jax.Array
Params = Any
Metrics = dict[str, Array]
Carry = Any  # what an agent remembers within an episode: a tree of [B, ...], `()` for agents that remember nothing


class Observation(NamedTuple):
    """What an agent sees, and which actions it may take there."""

    features: Any  # an array, or a pytree of arrays
    legal: Array | None = None  # bool[..., num_actions]; None means that every action is legal


class Discrete(NamedTuple):
    """One of `n` actions, numbered from 0."""

    n: int


class Box(NamedTuple):
    """A vector of numbers, each within its own bounds.  Agents speak of [-1, 1]; the environment's `Task` scales."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Space = Discrete | Box


class Transition(NamedTuple):
    """One step of one environment; in a rollout every field is `[T, B, ...]`."""

    obs: Observation
    action: Array
    reward: Array
    terminated: Array  # the task ended: nothing follows
    truncated: Array  # time ran out: the future still has value
    next_obs: Observation  # the true successor, also where time ran out; after a termination nobody may ask for it
    notes: Any = ()  # what `act` noted for `learn`
    fresh: Array | None = None  # whether `obs` is the first of an episode
    carry: Carry = ()  # as `act` got it; who reads it clears it where `fresh`


class Decision(NamedTuple):
    """What an agent decides for observations `[B, ...]`."""

    action: Array
    notes: Any = ()  # what `learn` should be told of it
    carry: Carry = ()  # what the agent remembers from here on


class EnvSpec(NamedTuple):
    """All that an agent may know of where it acts.

    Counts, here and in every configuration, are those of a whole member.  Where it is spread over several devices,
    each of them holds a `share`.
    """

    observation: Observation  # of jax.ShapeDtypeStruct, without a batch axis
    action: Space
    num_envs: int
    rollout_length: int
    # Two truncations of one environment are at least this many steps apart.  1 promises nothing.
    truncation_interval: int = 1
    # Above 1, an observation is a picture [H, W, stack] of so many successive frames, the newest last; frames from
    # before the episode are blank: all zero.
    stack: int = 1
    restarts: bool = False  # a run that is resumed begins new episodes: its environments are not part of its state
    shards: int = 1  # devices that share the environments and the memory of one learner

    @property
    def num_actions(self) -> int:
        """How many discrete actions there are to choose from."""
        return count_of(self.action)

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one iteration: of all environments together."""
        return self.num_envs * self.rollout_length

    @property
    def own_envs(self) -> int:
        """Environments of one shard."""
        return self.share(self.num_envs)

    def share(self, count: int) -> int:
        """What one shard has of so many."""
        return count // self.shards


def count_of(space: Space) -> int:
    """The number of actions in a discrete space; who asks must know that it is one."""
    assert isinstance(space, Discrete), space
    return space.n
