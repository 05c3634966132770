"""From a name to an environment."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rollax import settings as named
from rollax.envs import atari
from rollax.envs import gymnasium as gymnasium_envs
from rollax.envs import gymnax as gymnax_envs
from rollax.envs.adapters import to_task
from rollax.envs.hackmatrix import HackMatrix
from rollax.envs.host import HostTask
from rollax.envs.protocol import EnvConfig, Task
from rollax.envs.treasurehunt import TreasureHunt
from rollax.errors import ConfigError, EnvError, fails, told
from rollax.types import Box

# Our own, by name: dataclasses whose fields are what can be chosen of a world.
OWN: dict[str, Callable[[], Any]] = {"HackMatrix-v0": HackMatrix, "TreasureHunt-v0": TreasureHunt}
# Outside JAX, by the beginnings of their names: dataclasses that make a `HostTask` of a name.
HOST: dict[str, Callable[[], Any]] = {atari.PREFIX: atari.Atari, gymnasium_envs.PREFIX: gymnasium_envs.GymnasiumWorld}


@dataclass(frozen=True)
class FixedWorld(EnvConfig):
    """An environment that has nothing to choose."""


def world_of(name: str) -> Any:
    """What can be chosen of an environment, as a dataclass with its defaults: one of our own is that itself."""
    return (OWN.get(name) or host_world(name) or FixedWorld)()


def host_world(name: str) -> Callable[[], Any] | None:
    """What makes environments of that name outside JAX; None for all others."""
    return next((world for prefix, world in HOST.items() if name.startswith(prefix)), None)


def own_module(name: str) -> str | None:
    """The module of the user's own that making the environment imports; None where it imports none.

    Gymnasium imports one too, where an id is `module:Id-v0`.
    """
    if name.startswith(gymnasium_envs.PREFIX):
        name = name.removeprefix(gymnasium_envs.PREFIX)
    elif host_world(name) or name in OWN:
        return None
    return named.module_of(name) if named.is_own(name) else None


def names() -> list[str]:
    """All environments that can be named without a module, those without discrete actions left out."""
    return [*inside_names(), *atari.names()]


def inside_names() -> list[str]:
    """Those of them that are in JAX."""
    return [*OWN, *gymnax_envs.names()]


def make(name: str, world: Any = None) -> Task | HostTask:
    """The environment of that name, with the choices of `world`; `package.module:make` calls a function of the user's.

    Raises ConfigError where the name is wrong, EnvError where the environment is.
    """
    named.check_text("env", name)
    if host_world(name):
        return (world or world_of(name)).task(name)
    if name in OWN:
        env, params = world or world_of(name), None
    elif named.is_own(name):
        env, params = _import(name)
    else:
        env, params = _gymnax(name)
    task = to_task(env, params, name)
    if isinstance(task.action, Box):
        numbers = len(task.action.low)
        raise ConfigError(
            f"env={name!r} has no discrete actions, but {numbers} continuous ones; an agent for them is still missing"
        )
    return task


def make_inside(name: str, world: Any = None) -> Task:
    """The environment of that name, which must be one in JAX."""
    task = make(name, world)
    if isinstance(task, HostTask):
        raise ConfigError(f"env={name!r} runs outside JAX, and this is only for environments in JAX")
    return task


def _gymnax(name: str) -> tuple[Any, Any]:
    if not gymnax_envs.knows(name):
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.0)
        folded = {known.lower(): known for known in names()}
        guess = folded.get(name.lower(), near[0])
        raise ConfigError(f"env={name!r} is not known; did you mean {guess}? `rollax list` shows all")
    try:
        return gymnax_envs.make(name)
    except Exception as error:
        raise EnvError(f"{name} cannot be made: {told(error)}") from error


def _import(name: str) -> tuple[Any, Any]:
    make_env = named.find("env", name)
    try:
        made = make_env()
    except (Exception, SystemExit) as error:
        raise EnvError(f"{name} {fails(error)}") from error
    if isinstance(made, tuple):
        if len(made) != 2:
            raise EnvError(f"{name} must return an environment, or an environment and its parameters")
        return made
    return made, getattr(made, "default_params", None)
