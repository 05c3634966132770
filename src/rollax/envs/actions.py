"""Actions as environments have them: what a space is made of, in words, by chance, and scaled to its bounds."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.errors import EnvError
from rollax.types import Array, Box, Discrete, Joint, Key, MultiDiscrete, Space, action_shape, size_of


def box(name: str, low: Any, high: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Box:
    """A box with these bounds, one for all numbers or one for each.  Raises EnvError where they leave no room."""
    ends = [np.broadcast_to(np.asarray(end, np.float64), shape).reshape(-1) for end in (low, high)]
    lows, highs = (np.where(np.abs(end) < 1e30, end, usual) for end, usual in zip(ends, (-1.0, 1.0), strict=True))
    if not lows.size:
        raise EnvError(f"{name}: its box of actions has no numbers; give it at least one")
    if not np.all(lows < highs):
        worst = int(np.argmin(highs - lows))
        raise EnvError(
            f"{name}: number {worst} of an action goes from {lows[worst]:g} to {highs[worst]:g}, where an end that is "
            "not bounded counts as -1 or 1; give both ends"
        )
    kind = np.dtype(dtype)
    # Numbers are float32 inside JAX, where float64 does not exist.
    return Box(tuple(lows.tolist()), tuple(highs.tolist()), tuple(shape), str(kind))


def for_environment(space: Space, action: Any) -> Any:
    """Actions `[...]` of an agent, NumPy's or JAX's, as the environment takes them: scaled to bounds they never leave.

    Of a `Discrete` space they are that already; others are arrays `[..., *shape]`, or a tree of them.
    """
    if isinstance(space, Discrete):
        return action
    if isinstance(space, Joint):
        parts, start = [], 0
        for part in space.parts:
            if isinstance(part, Discrete):
                parts.append(_whole(action[..., start], part.n))
            else:
                parts.append(for_environment(part, action[..., start : start + size_of(part)]))
            start += max(1, size_of(part))
        return jax.tree.unflatten(space.structure, parts)
    lead = action.shape[:-1]
    if isinstance(space, MultiDiscrete):
        return _whole(action, np.array(space.counts)).reshape(*lead, *space.shape)
    maths: Any = np if isinstance(action, np.ndarray) else jnp
    low, high = np.array(space.low, np.float32), np.array(space.high, np.float32)
    share = (maths.clip(action, -1.0, 1.0) + 1.0) / 2.0
    # The last rounding could pass the upper bound.
    scaled = maths.clip(low + share * (high - low), low, high).reshape(*lead, *space.shape)
    if np.dtype(space.dtype).kind in "iu":
        scaled = maths.round(scaled)
    return scaled.astype(jax.dtypes.canonicalize_dtype(space.dtype) if maths is jnp else space.dtype)


def _whole(numbers: Any, counts: Any) -> Any:
    """Choices that are said in floating-point numbers, as whole ones that there are."""
    maths: Any = np if isinstance(numbers, np.ndarray) else jnp
    return maths.clip(maths.round(numbers), 0, counts - 1).astype(np.int32)


def random_action(space: Space, key: Key, lead: tuple[int, ...], legal: Array | None = None) -> Array:
    """Actions `[*lead, ...]` by chance: every legal one is as likely as any other."""
    if isinstance(space, Discrete):
        if legal is None:
            return jax.random.randint(key, lead, 0, space.n)
        chances = jax.random.uniform(key, legal.shape)
        return jnp.argmax(jnp.where(legal, chances, -1.0), axis=-1)
    share = jax.random.uniform(key, action_shape(space, lead).shape)
    counts = choices_of(space)
    return jnp.where(counts > 0, jnp.minimum(jnp.floor(share * counts), counts - 1), 2.0 * share - 1.0)


def few_actions(space: Space, most: int) -> list[np.ndarray]:
    """Up to so many actions that differ in all of their numbers, as an agent says them."""
    if isinstance(space, Discrete):
        return [np.array(action, np.int32) for action in range(min(space.n, most))]
    counts = choices_of(space)
    numbers = [
        np.where(counts > 0, number % np.maximum(counts, 1), -1 + 2 * number / (most - 1)) for number in range(most)
    ]
    return [number.astype(np.float32) for number in numbers]


def choices_of(space: Space) -> np.ndarray:
    """Of every number of an action how many choices it has; 0 for one of a box."""
    parts = space.parts if isinstance(space, Joint) else (space,)
    counts = []
    for part in parts:
        if isinstance(part, Discrete):
            counts.append(part.n)
        else:
            counts += part.counts if isinstance(part, MultiDiscrete) else [0] * len(part.low)
    return np.array(counts, np.float32)


def in_words(space: Space) -> str:
    """A space, as a line shows it: `6 actions`, `an action is 2 numbers in [-1, 1]`."""
    if isinstance(space, Discrete):
        return f"{space.n} actions"
    parts = space.parts if isinstance(space, Joint) else (space,)
    return "an action is " + " and ".join(map(_part_in_words, parts))


def _part_in_words(part: Discrete | MultiDiscrete | Box) -> str:
    if isinstance(part, Discrete):
        return f"one of {part.n} choices"
    if isinstance(part, MultiDiscrete):
        return f"{len(part.counts)} choices among {_listed(part.counts)}"
    low, high = set(part.low), set(part.high)
    bounds = f"[{min(low):g}, {max(high):g}]" if len(low) == len(high) == 1 else "bounds of their own"
    count = len(part.low)
    return f"{count} number{'s' if count > 1 else ''} in {bounds}"


def _listed(counts: tuple[int, ...]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else ", ".join(map(str, counts))


def space_of(name: str, space: Any) -> Space | None:
    """A space of gymnax's, Gymnasium's or of any library with the same fields; None for a kind that is not known.

    Fields tell: `n` of discrete ones, `nvec`, `low` and `high` of a box, `spaces` of several in one.
    """
    inner = getattr(space, "spaces", None)
    if inner is not None:
        keyed = hasattr(inner, "keys")
        found = {key: space_of(name, inner[key]) for key in (inner.keys() if keyed else range(len(inner)))}
        if None in found.values() or any(isinstance(part, Joint) and not part.parts for part in found.values()):
            return None
        return _joint(dict(found) if keyed else tuple(found.values()))
    if hasattr(space, "nvec"):
        counts = np.asarray(space.nvec)
        return MultiDiscrete(tuple(counts.reshape(-1).tolist()), counts.shape)
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = tuple(getattr(space, "shape", None) or np.shape(space.low))
        kind = np.dtype(getattr(space, "dtype", np.float32))
        return box(name, space.low, space.high, shape, kind if kind.kind in "iuf" else np.float32)
    count = getattr(space, "n", None)
    shape = tuple(getattr(space, "shape", ()) or ())
    if count is None or (np.ndim(count) == 0 and not shape and int(count) < 1):
        return None
    if np.ndim(count) or shape:  # flags, each of which is on or off
        return MultiDiscrete((2,) * math.prod(shape), shape)
    return Discrete(int(count))


def _joint(tree: Any) -> Joint:
    """Several spaces in one; those that are several themselves become branches."""

    def is_part(node: Any) -> bool:
        return isinstance(node, (Discrete, MultiDiscrete, Box, Joint))

    def opened(part: Any) -> Any:
        return jax.tree.unflatten(part.structure, part.parts) if isinstance(part, Joint) else part

    tree = jax.tree.map(opened, tree, is_leaf=is_part)
    parts, structure = jax.tree.flatten(tree, is_leaf=is_part)
    return Joint(tuple(parts), structure)
