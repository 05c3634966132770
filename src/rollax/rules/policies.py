"""From scores to actions."""

from __future__ import annotations

import jax.numpy as jnp

from rollax.types import Array


def mask_illegal(scores: Array, legal: Array | None) -> Array:
    """Scores `[..., A]` with illegal actions at the lowest finite value, so that `0 * score` stays 0."""
    if legal is None:
        return scores
    return jnp.where(legal, scores, jnp.finfo(scores.dtype).min)


def greedy(scores: Array, legal: Array | None) -> Array:
    """The best legal action; the first of several equal ones."""
    return jnp.argmax(mask_illegal(scores, legal), axis=-1).astype(jnp.int32)


def epsilon_greedy(coins: Array, scores: Array, legal: Array | None, epsilon: Array | float) -> Array:
    """With probability `epsilon` a uniform draw among the legal actions, else the greedy one.

    `coins` are two uniform numbers for each row, `[2, ...]`: below `epsilon` the first says that the second chooses.
    """
    num_actions = scores.shape[-1]
    chance, choice = coins
    if legal is None:
        random_action = (choice * num_actions).astype(jnp.int32)
    else:
        rank = (choice * jnp.sum(legal, axis=-1)).astype(jnp.int32)  # the rank-th legal action
        random_action = jnp.argmax(jnp.cumsum(legal, axis=-1) > rank[..., None], axis=-1).astype(jnp.int32)
    return jnp.where(chance < epsilon, random_action, greedy(scores, legal))
