"""One environment of Gymnasium whose answers are examined.  It is made in workers too, so nothing here needs JAX."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rollax.envs.names import GYMNASIUM
from rollax.errors import ConfigError, EnvError, demand, fails, told


class Facts(NamedTuple):
    """What an environment says of itself."""

    action_space: Any
    observation_space: Any
    time_limit: int | None  # the registered one
    render_modes: tuple[str, ...]
    render_fps: int


class Outcome(NamedTuple):
    """A step: where the environment stands now, which is the next episode where one ended, and what just happened."""

    shown: list[np.ndarray]
    reward: float
    terminated: bool
    truncated: bool
    last: list[np.ndarray] | None  # the true last observation of an episode that ended


class Leaf(NamedTuple):
    """One array of an observation: what the space says of it, and how it is kept."""

    where: str  # in the observation, as `["place"]`
    shape: tuple[int, ...]
    dtype: np.dtype
    low: Any  # None where every number of the dtype is allowed
    high: Any
    kept: np.dtype
    counts: bool = False  # it is a number below some other, and 0 stands for the lowest

    def examined(self, value: Any, call: str) -> np.ndarray:
        """The value as an array, which is still the environment's.  Raises EnvError for another shape or kind."""
        array = np.asarray(value)
        fits = array.dtype == self.dtype or np.can_cast(array.dtype, self.dtype, "same_kind")
        if not fits or array.shape != self.shape:
            is_array = isinstance(value, (np.ndarray, np.generic))
            shown = f"{array.dtype}{list(array.shape)}" if is_array else shortened(value)
            wanted = f"{self.dtype}{list(self.shape)}"
            raise EnvError(f"{call} returned {shown} as observation{self.where}; observation_space says {wanted}")
        return array

    def settle(self, rows: np.ndarray, call: str, bounded: bool) -> None:
        """Brings kept rows `[N, ...]` to what is seen of them.  Raises EnvError for bounds; a NaN is left to others."""
        if self.low is not None and (bounded or self.counts):
            beyond = (rows < self.low) | (rows > self.high)
            if beyond.any():
                raise EnvError(
                    f"{call} returned an observation{self.where} with {rows[beyond].reshape(-1)[0]:g}, outside the "
                    "bounds of observation_space; correct one of the two"
                    + ("" if self.counts else ", or allow it with --no-check-space")
                )
        if self.counts:
            rows -= self.low


class Examined:
    """One environment.  What it returns must be what its spaces say: else EnvError, which does not name it yet."""

    def __init__(self, name: str):
        gymnasium = gymnasium_for(name)
        self.env = made(name, lambda: gymnasium.make(name.removeprefix(GYMNASIUM)))
        self.leaves = list(leaves_of(name, self.env.observation_space))
        self.alone = not isinstance(self.env.observation_space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple))

    def facts(self) -> Facts:
        env = self.env
        limit = env.spec.max_episode_steps if env.spec is not None else None
        fps = int(env.metadata.get("render_fps") or 30)
        return Facts(env.action_space, env.observation_space, limit, tuple(env.metadata.get("render_modes", ())), fps)

    def reset(self, seed: int | None = None) -> list[np.ndarray]:
        answer = self.env.reset() if seed is None else self.env.reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise EnvError(f"reset must return 2 values, observation and info, and not {shortened(answer)}")
        return self.seen(answer[0], "reset")

    def step(self, action: Any) -> Outcome:
        answer = self.env.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            count = f"{len(answer)} values" if isinstance(answer, tuple) else shortened(answer)
            raise EnvError(f"step must return 5 values, as Gymnasium's environments do, and not {count}")
        raw, reward, terminated, truncated, _ = answer
        if type(reward) is not float and not is_number(reward):
            raise EnvError(f"step must return one number as reward, not {shortened(reward)}")
        if type(terminated) is not bool or type(truncated) is not bool:
            for what, flag in (("terminated", terminated), ("truncated", truncated)):
                if not isinstance(flag, (bool, np.bool_)):
                    raise EnvError(f"step must return a bool as {what}, not {shortened(flag)}")
        shown, last = self.seen(raw, "step"), None
        if terminated and not truncated and not all(np.isfinite(leaf).all() for leaf in shown):
            raise EnvError("step ended an episode with an observation that is not finite")  # nobody else looks at it
        if terminated or truncated:
            last = [leaf.copy() for leaf in shown]
            shown = self.reset()
        return Outcome(shown, float(reward), bool(terminated), bool(truncated), last)

    def seen(self, raw: Any, call: str) -> list[np.ndarray]:
        """The arrays of an observation, which the environment may change with its next step."""
        if self.alone:
            return [self.leaves[0].examined(raw, call)]
        values = parts_of(self.env.observation_space, raw, call)
        return [leaf.examined(value, call) for leaf, value in zip(self.leaves, values, strict=True)]

    def close(self) -> None:
        self.env.close()


def gymnasium_for(name: str) -> Any:
    demand("gymnasium", f"env={name!r}")
    import gymnasium

    return gymnasium


def made(name: str, make: Callable[[], Any]) -> Any:
    """What `make` makes; one line for what is missing or unknown."""
    gymnasium = gymnasium_for(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an old version, say: it was asked for by its id
            return make()
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(f"env={name!r} needs what is not installed: {told(error).partition(': ')[2]}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"env={name!r}: {told(error).partition(': ')[2]}") from error
    except (Exception, SystemExit) as error:
        raise EnvError(f"{name} cannot be made: it {fails(error)}") from error


def leaves_of(name: str, space: Any, where: str = "") -> Iterator[Leaf]:
    """The arrays of an observation, in the order of JAX's trees.  Raises ConfigError for what is no numbers."""
    spaces = gymnasium_for(name).spaces
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces):
            yield from leaves_of(name, space.spaces[key], f"{where}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for number, part in enumerate(space.spaces):
            yield from leaves_of(name, part, f"{where}[{number}]")
    elif isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start) + int(space.n) - 1
        alone = not where  # then it is kept as a number, and seen as flags
        yield Leaf(where, (), space.dtype, low, high, np.dtype(np.int32 if alone else np.float32), alone)
    elif isinstance(space, spaces.MultiDiscrete):
        yield Leaf(where, space.shape, space.dtype, space.start, space.start + space.nvec - 1, kept_as(space.dtype))
    elif isinstance(space, spaces.MultiBinary):
        yield Leaf(where, space.shape, space.dtype, 0, 1, kept_as(space.dtype))
    elif isinstance(space, spaces.Box) and space.dtype.kind in "biuf":
        kept = kept_as(space.dtype)
        low, high = (None, None) if is_free(space) else (space.low.astype(kept), space.high.astype(kept))
        yield Leaf(where, space.shape, space.dtype, low, high, kept)
    else:
        raise ConfigError(f"env={name!r} shows {space}; rollax sees arrays of numbers, or several of them")


def put(rows: list[np.ndarray], number: int, leaves: list[np.ndarray]) -> None:
    """Writes the arrays of one environment into the rows of all."""
    for row, leaf in zip(rows, leaves, strict=True):
        row[number] = leaf


def settle(leaves: list[Leaf], rows: list[np.ndarray], call: str, bounded: bool) -> None:
    """Brings rows that environments have written to what is seen of them, which must lie within bounds."""
    for leaf, own in zip(leaves, rows, strict=True):
        leaf.settle(own, call, bounded)


def parts_of(space: Any, raw: Any, call: str) -> list[Any]:
    """The arrays of an observation that has several."""
    inner = getattr(space, "spaces", None)
    if inner is None:
        return [raw]
    if isinstance(inner, Mapping):
        keys = sorted(inner)
        fits = isinstance(raw, Mapping) and set(raw) == set(keys)
    else:
        keys = list(range(len(inner)))
        fits = isinstance(raw, (tuple, list)) and len(raw) == len(keys)
    if not fits:
        raise EnvError(f"{call} returned {shortened(raw)} as observation; observation_space has {keys}")
    return [value for key in keys for value in parts_of(inner[key], raw[key], call)]


def is_free(space: Any) -> bool:
    """Whether a box allows every number of its dtype."""
    if space.dtype.kind == "f":
        return bool(np.isneginf(space.low).all() and np.isposinf(space.high).all())
    if space.dtype.kind == "b":
        return True
    limits = np.iinfo(space.dtype)
    return bool((space.low <= limits.min).all() and (space.high >= limits.max).all())


def is_number(value: Any) -> bool:
    """Whether it is a real number: Python's, or NumPy's, also as an array without axes."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def kept_as(dtype: np.dtype) -> np.dtype:
    """As what numbers are kept: bytes and flags as they are, all else as float32."""
    return np.dtype(dtype) if dtype in (np.uint8, np.bool_) else np.dtype(np.float32)


def shortened(value: Any) -> str:
    """A value as a line can show it."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    text = " ".join(repr(value).split())
    return f"{text[:60]} ({type(value).__name__})" if value is not None else text
