"""Any Gymnasium environment with discrete actions, by its id: `gymnasium:CartPole-v1`."""

from __future__ import annotations

import functools
import multiprocessing
import signal
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from rollax.envs.host import HostStep, HostTask
from rollax.envs.protocol import EnvConfig
from rollax.errors import ConfigError, EnvError
from rollax.extras import demand
from rollax.settings import COUNT_OR_NONE, POSITIVE, setting
from rollax.types import Discrete, Observation

PREFIX = "gymnasium:"


@dataclass(frozen=True)
class GymnasiumWorld(EnvConfig):
    """How environments of Gymnasium are stepped."""

    vectorization: Literal["sync", "async"] = setting(
        "sync", "Whether environments are stepped one after the other or each in a process of its own."
    )
    least_time: int = setting(
        0,
        "Fewest steps of an episode that a time limit cuts; 0 takes the registered limit.",
        limit=COUNT_OR_NONE,
        rare=True,
    )
    env_seconds: float = setting(
        60.0, "Seconds that a step of the environments may take before the run is ended.", limit=POSITIVE, rare=True
    )

    def task(self, name: str) -> HostTask:
        gymnasium = _gymnasium(name)
        if name.startswith(f"{PREFIX}ALE/"):
            raise ConfigError(f"env={name!r}: Atari's games have names of their own: {name.removeprefix(PREFIX)}")
        single = _made(name, lambda: gymnasium.make(name.removeprefix(PREFIX)))
        space, spec = single.action_space, single.spec
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise ConfigError(
                f"env={name!r} has no discrete actions ({space}); an agent for continuous actions is still missing"
            )
        seen, drawn = single.observation_space, single.metadata.get("render_modes", ())
        single.close()
        states = int(seen.n) if isinstance(seen, gymnasium.spaces.Discrete) else 0
        if states:
            features: Any = jax.ShapeDtypeStruct((states,), np.float32)
        else:
            features = jax.tree.map(_shape, _sample(name, seen))
        return HostTask(
            name=name,
            open=lambda count: GymnasiumEnvs(name, count, self, int(space.start), seen if states else None),
            observation=Observation(features),
            action=Discrete(int(space.n)),
            truncation_interval=self.least_time or max(1, spec.max_episode_steps or 1),
            one_hot=states,
            seconds=self.env_seconds,
            camera=(lambda: GymnasiumCamera(name, int(space.start))) if "rgb_array" in drawn else None,
            pictures_per_second=int(single.metadata.get("render_fps", 30)),
        )


class GymnasiumEnvs:
    """A vector environment of Gymnasium."""

    def __init__(self, name: str, count: int, world: GymnasiumWorld, first_action: int, states: Any):
        gymnasium = _gymnasium(name)
        self.first_action, self.states = first_action, states
        makers = [functools.partial(_one, name.removeprefix(PREFIX))] * count
        mode = gymnasium.vector.AutoresetMode.SAME_STEP
        if world.vectorization == "async":
            # A fork of a process with JAX's threads would hang.
            vector = functools.partial(gymnasium.vector.AsyncVectorEnv, context="spawn")
        else:
            vector = gymnasium.vector.SyncVectorEnv
        self.envs = _made(name, lambda: vector(makers, autoreset_mode=mode))

    def reset(self, seeds: np.ndarray) -> Any:
        return self._copied(self.envs.reset(seed=[int(seed) for seed in seeds])[0])

    def step(self, action: np.ndarray) -> HostStep:
        shown, reward, terminated, truncated, info = self.envs.step(action + self.first_action)
        shown, ended, last = self._copied(shown), terminated | truncated, None
        if ended.any():
            last = jax.tree.map(np.copy, shown)
            for number in np.flatnonzero(info["_final_obs"]):
                own = self._copied(info["final_obs"][number])
                jax.tree.map(lambda rows, row, at=number: rows.__setitem__(at, row), last, own)
        return HostStep(shown, reward.astype(np.float32), terminated, truncated, ended, last)

    def _copied(self, shown: Any) -> Any:
        if self.states is not None:
            return np.array(shown, np.int32) - int(self.states.start)
        return jax.tree.map(lambda x: np.array(x, _kept(np.asarray(x).dtype)), shown)

    def close(self) -> None:
        self.envs.close()


class GymnasiumCamera:
    """One environment of Gymnasium that shows how it is drawn."""

    def __init__(self, name: str, first_action: int):
        self.name, self.first_action = name, first_action
        self.env = _made(name, lambda: _gymnasium(name).make(name.removeprefix(PREFIX), render_mode="rgb_array"))

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        self.env.reset(seed=int(seeds[0]))
        return self.picture()

    def step(self, action: np.ndarray) -> HostStep:
        _, reward, terminated, truncated, _ = self.env.step(int(action[0]) + self.first_action)
        flags = (np.array([flag]) for flag in (terminated, truncated, terminated or truncated))
        return HostStep(self.picture(), np.array([reward], np.float32), *flags)

    def picture(self) -> np.ndarray:
        return _made(self.name, self.env.render)[None]

    def close(self) -> None:
        self.env.close()


def _one(id_: str) -> Any:
    """One environment, here or in a process of its own, whose end is for the run to decide."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    import gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(id_)


def _gymnasium(name: str) -> Any:
    demand("gymnasium", f"env={name!r}")
    import gymnasium

    return gymnasium


def _made(name: str, make: Any) -> Any:
    """What `make` makes; one line for what is missing or unknown."""
    gymnasium = _gymnasium(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an old version, say: it was asked for by its id
            return make()
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(f"env={name!r} needs what is not installed: {_line(error)}") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"env={name!r}: {_line(error)}") from error
    except Exception as error:
        raise EnvError(f"{name} cannot be made: {type(error).__name__}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _sample(name: str, space: Any) -> Any:
    sample = space.sample()
    kinds = {np.asarray(leaf).dtype.kind for leaf in jax.tree.leaves(sample)}
    if not kinds <= set("biuf"):
        raise ConfigError(f"env={name!r} shows {space}; rollax sees arrays of numbers, or several of them")
    return sample


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    array = np.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, _kept(array.dtype))


def _kept(dtype: np.dtype) -> np.dtype:
    """As what numbers are kept: bytes and flags as they are, all else as float32."""
    return dtype if dtype in (np.uint8, np.bool_) else np.dtype(np.float32)
