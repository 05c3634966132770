"""Every stream of random numbers of a run, by name: no two of them ever give the same key.

A member's key comes from its seed and is split into three `Roots`.  From the last of them every key of the run is
derived by folding in a number, and each stream has a range of numbers of its own.  A key that comes out is used once:
it is drawn from, or split by one rule into keys for environments, players, shards and gradient steps.
JAX's `split(key)[i]` is `fold_in(key, i)`, so a key that is split must not be folded with small numbers as well.

| way to run | from the first root | from the second | from the third |
| --- | --- | --- | --- |
| in JAX, and in a search | weights | first episodes | iterations, evaluations |
| environments outside JAX | weights | | iterations, starts of the environments, evaluations |
| actors | weights | | gradient steps, starts of the actors, evaluations |
| an actor, from its start's key | | first episodes | iterations |

`rollax eval` plays with `PLAYS`, from a key of its own seed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.types import Array, Key


class Roots(NamedTuple):
    """What a member's key is split into."""

    agent: Key  # its first weights
    envs: Key  # its environments' first episodes
    loop: Key  # all that follows: the key of a run's state


def roots(key: Key) -> Roots:
    return Roots(*jax.random.split(key, len(Roots._fields)))


class Stream(NamedTuple):
    """A range of numbers that are folded into one key."""

    name: str
    first: int
    count: int

    def key(self, root: Key, number: Array | int) -> Key:
        """The stream's key of that number, which must be below `count`."""
        if self.first == 0:
            return jax.random.fold_in(root, number)
        return jax.random.fold_in(root, jnp.uint32(self.first) + jnp.asarray(number).astype(jnp.uint32))


# From `Roots.loop`.
ITERATIONS = Stream("iterations", 0, 2**30)  # with actors: the learner's calls, of several gradient steps each
STARTS = Stream("starts", 2**30, 2**30)  # of environments outside JAX at an iteration, of actors at a gradient step
EVALUATIONS = Stream("evaluations", 2**31, 2**31)  # after an iteration; with actors after a gradient step
# From the key of the seed that `rollax eval` is given, which may be a member's.
PLAYS = Stream("plays", 2**31, 2**31)  # of members

STREAMS = (ITERATIONS, STARTS, EVALUATIONS)


def evaluation_keys(keys: Key, iteration: Array) -> Key:
    """Keys `[members]` that training never draws from, for an evaluation after that iteration."""
    return jax.vmap(lambda key: EVALUATIONS.key(key, iteration))(keys)


def play_keys(seed: int, members: Array) -> Key:
    """Keys `[members]` for episodes outside a run, which no run with that seed draws from."""
    root = jax.random.key(jnp.uint32(seed))
    return jax.vmap(lambda member: PLAYS.key(root, member))(members)


def actor_key(loop: Key, start: int, begun: int) -> Key:
    """The key of the actor that was the `begun`-th to begin since the run went on at gradient step `start`."""
    return jax.random.fold_in(STARTS.key(loop, start), begun)
