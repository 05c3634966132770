"""Environments that a program hands over as objects, and the names under which its runs know them."""

from __future__ import annotations

from typing import Any

from rollax.errors import ConfigError, warn
from rollax.settings import GIVEN, name_here

_OBJECTS: dict[str, Any] = {}


def name_for(env: Any) -> Any:
    """The name of an environment: a name is one already, and an object gets one.

    A class or a function that stands in a module is `package.module:name`, and is found again by that.  All else is
    known by its class in this program only, so that who resumes or loads a run of it hands it over again.
    """
    if isinstance(env, str) or not (callable(env) or hasattr(env, "step")):
        return env  # what is no name at all is refused by who reads it
    name, new = name_here(env, _OBJECTS)
    if new:
        warn(
            f"env={name}: this environment was given as an object, so another program cannot import it by name; "
            "to resume or load its run there, hand it over again with env="
        )
    return name


def hand_over(name: str, env: Any) -> None:
    """Gives an environment to the runs that know it by that name.  Raises ConfigError for runs that can find theirs."""
    if not name.startswith(GIVEN):
        raise ConfigError(f"env: this run finds its environment by its name, {name}; leave env= out")
    _OBJECTS[name] = env


def found(name: str) -> Any:
    """The environment, or what makes it.  Raises ConfigError where no program has handed it over here."""
    if name not in _OBJECTS:
        raise ConfigError(
            f"env={name!r} was an object of another program; hand it over again, as in "
            "rollax.resume(run_dir, env=...) or rollax.load(run_dir, env=...)"
        )
    made = _OBJECTS[name]
    return made() if callable(made) and not hasattr(made, "step") else made
