"""Stacks of frames, of which a ring keeps each frame once.

Of an observation that is a stack only the newest frame is stored, and beside it how many of the older ones were blank.
The others are the newest frames of the rows before, also where those are of a life that was lost.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rollax.memory.rows import expand, look_up
from rollax.types import Array, EnvSpec, Observation


def newest(obs: Observation, spec: EnvSpec) -> Observation:
    """Observations, or their shapes, as a ring keeps them: of stacks the last frame."""
    if spec.stack == 1:
        return obs
    features = obs.features
    if isinstance(features, jax.ShapeDtypeStruct):
        return obs._replace(features=jax.ShapeDtypeStruct(features.shape[:-1], features.dtype))
    return obs._replace(features=features[..., -1])


def blank_frames(obs: Observation, spec: EnvSpec) -> Array:
    """How many frames of each stack `[..., H, W, stack]`, from the oldest on, are blank, for whatever reason."""
    if spec.stack == 1:
        return jnp.int32(0)
    blank = ~jnp.any(obs.features[..., :-1] != 0, axis=(-3, -2))
    return jnp.sum(jnp.cumprod(blank, axis=-1), axis=-1)


def restack(obs: Observation, stored: Array, env: Array, older: Array, blank: Array) -> Observation:
    """Observations `[batch, H, W]`, each the newest frame of its stack, as stacks `[batch, H, W, stack]`.

    The older frames lie in `stored` at the places `older` `[batch, stack - 1]`, the oldest first; of each stack the
    first `blank` `[batch]` are from before the episode, and blank.
    """
    stack = older.shape[1] + 1
    ages = jnp.arange(stack - 1, 0, -1)
    frames = look_up(stored, env[:, None], older)
    frames = jnp.where(expand(ages[None] < stack - blank[:, None], frames), frames, 0)
    return obs._replace(features=jnp.moveaxis(jnp.concatenate([frames, obs.features[:, None]], axis=1), 1, -1))
