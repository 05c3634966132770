"""The data that everyone passes around: observations, transitions, and what an agent knows of its environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

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


class MultiDiscrete(NamedTuple):
    """Several choices at once, each numbered from 0: an array of that shape."""

    counts: tuple[int, ...]  # of the flattened array
    shape: tuple[int, ...]


class Box(NamedTuple):
    """An array of numbers, each within its own bounds; an end that is not bounded counts as -1 or 1."""

    low: tuple[float, ...]  # of the flattened array, as `high`
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"  # of what the environment takes; whole numbers are rounded


class Joint(NamedTuple):
    """Several of these at once: the leaves of a tree, in the order of JAX's trees."""

    parts: tuple[Discrete | MultiDiscrete | Box, ...]
    structure: Any  # the tree's


# What may be done in an environment.  Of a `Discrete` space an agent chooses a number, `int32[...]`.  Of every other
# it speaks in one vector `float32[..., size_of(space)]`: choices as whole numbers, the numbers of a box in [-1, 1].
Space = Discrete | MultiDiscrete | Box | Joint


def size_of(space: Space) -> int:
    """How many numbers an action has; 0 for a `Discrete` space, whose action is a number without an axis."""
    if isinstance(space, Joint):
        return sum(max(1, size_of(part)) for part in space.parts)
    if isinstance(space, MultiDiscrete):
        return len(space.counts)
    return len(space.low) if isinstance(space, Box) else 0


def action_shape(space: Space, lead: tuple[int, ...] = ()) -> jax.ShapeDtypeStruct:
    """An action as an agent speaks of it, with these axes before its own."""
    if isinstance(space, Discrete):
        return jax.ShapeDtypeStruct(lead, jnp.int32)
    return jax.ShapeDtypeStruct((*lead, size_of(space)), jnp.float32)


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
