"""From a name to an environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rollax import settings as named
from rollax.envs import atari, given, names, suites
from rollax.envs import gymnasium as gymnasium_envs
from rollax.envs import gymnax as gymnax_envs
from rollax.envs.adapters import to_task
from rollax.envs.hackmatrix import HackMatrix
from rollax.envs.host import HostTask
from rollax.envs.memory_tasks import MemoryChain, PositionOnlyCartPole, RepeatFirst, TraillessBreakout
from rollax.envs.protocol import EnvConfig, Task
from rollax.envs.treasurehunt import TreasureHunt
from rollax.envs.views import ViewConfig
from rollax.errors import ConfigError, EnvError, fails, told

# Our own, by name: dataclasses whose fields are what can be chosen of a world.
OWN: dict[str, Callable[[], Any]] = {
    **dict(
        zip(names.OWN, (HackMatrix, TreasureHunt, RepeatFirst, PositionOnlyCartPole, TraillessBreakout), strict=True)
    ),
    "MemoryChain-bsuite": MemoryChain,  # gymnax's, with its length to choose
}
# Outside JAX, by the beginnings of their names: dataclasses that make a `HostTask` of a name.
HOST: dict[str, Callable[[], Any]] = {names.ATARI: atari.Atari, names.GYMNASIUM: gymnasium_envs.GymnasiumWorld}


@dataclass(frozen=True)
class FixedWorld(EnvConfig):
    """An environment that has nothing to choose."""


def world_of(name: str) -> Any:
    """What can be chosen of an environment, as a dataclass with its defaults: one of our own is that itself."""
    suite = suites.suite_of(name)
    return (OWN.get(name) or host_world(name) or suites.WORLDS.get(suite or "") or FixedWorld)()


def host_world(name: str) -> Callable[[], Any] | None:
    """What makes environments of that name outside JAX; None for all others."""
    return next((world for prefix, world in HOST.items() if name.startswith(prefix)), None)


def own_module(name: str) -> str | None:
    """The module of the user's own that making the environment imports; None where it imports none.

    Gymnasium imports one too, where an id is `module:Id-v0`.
    """
    if name.startswith(names.GYMNASIUM):
        name = name.removeprefix(names.GYMNASIUM)
    elif host_world(name) or name in OWN or suites.suite_of(name) or name.startswith(named.GIVEN):
        return None
    return named.module_of(name) if named.is_own(name) else None


def make(name: str, world: Any = None, view: ViewConfig | None = None) -> Task | HostTask:
    """The environment of that name, with the choices of `world`, as `view` shows it.

    `package.module:make` calls a function of the user's, whose environment may be of any kind that has a name here.

    Raises ConfigError where the name is wrong, EnvError where the environment is.
    """
    named.check_text("env", name)
    view = view or ViewConfig()
    if host_world(name):
        return view.outside((world or world_of(name)).task(name), name)
    if name in OWN:
        env, params = world or world_of(name), None
    elif suites.suite_of(name):
        env, params = suites.make(name, world or world_of(name)), None
    elif named.is_own(name):
        env, params = suites.adapted(*_import(name))
    else:
        env, params = _gymnax(name)
    return view.of(to_task(env, params, name), name)


def make_inside(name: str, world: Any = None, view: ViewConfig | None = None) -> Task:
    """The environment of that name, which must be one in JAX."""
    task = make(name, world, view)
    if isinstance(task, HostTask):
        raise ConfigError(f"env={name!r} runs outside JAX; this needs an environment in JAX")
    return task


def _gymnax(name: str) -> tuple[Any, Any]:
    names.check_known(name)
    try:
        return gymnax_envs.make(name)
    except Exception as error:
        raise EnvError(f"{name} cannot be made: {told(error)}") from error


def _import(name: str) -> tuple[Any, Any]:
    make_env = (lambda: given.found(name)) if name.startswith(named.GIVEN) else named.find("env", name)
    try:
        made = make_env()
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{name} {fails(error)}") from error
    if any(kind.__module__.partition(".")[0] == "gymnasium" for kind in type(made).__mro__):
        raise ConfigError(f"{name} is an environment of Gymnasium; register it, and name it as in --env gymnasium:ID")
    if isinstance(made, tuple):
        if len(made) != 2:
            raise EnvError(f"{name} must return an environment, or an environment and its parameters")
        return made
    return made, getattr(made, "default_params", None)
