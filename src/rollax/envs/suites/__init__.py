"""Environments of other libraries in JAX, by name: `jumanji:Game2048-v1`; and objects of theirs.

Each library is an extra of its own, and imported by its own module here, when one of its environments is made.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import Any, Literal

from rollax.envs.protocol import EnvConfig
from rollax.envs.suites.names import SUITES, suite_of
from rollax.errors import ConfigError, EnvError, demand, did_you_mean, fails
from rollax.settings import setting


@dataclass(frozen=True)
class BraxWorld(EnvConfig):
    """What can be chosen of a body in Brax."""

    backend: Literal["generalized", "positional", "spring", "mjx"] = setting(
        "spring", "The physics that Brax computes with.", group="environment"
    )


# What can be chosen of a suite's environments; of the others nothing can.
WORLDS = {"brax": BraxWorld}


def make(name: str, world: Any) -> Any:
    """The environment of a name that begins with a suite's.

    Raises ConfigError where the suite is not installed, or has no such environment; EnvError where it fails.
    """
    suite = suite_of(name)
    assert suite is not None
    module, own = module_of(suite, f"env={name!r}"), name.partition(":")[2]
    known = module.names()
    if own not in known and own.rstrip("0123456789") not in known:
        raise ConfigError(f"env={name!r} is none of {suite}'s; {did_you_mean(own, known)}")
    try:
        return module.make(own, *vars(world).values()) if suite in WORLDS else module.make(own)
    except (ConfigError, EnvError):
        raise
    except Exception as error:
        raise EnvError(f"{name} {fails(error)}") from error


def adapted(env: Any, params: Any) -> tuple[Any, Any]:
    """An environment in our protocol, with its parameters: one that is a suite's own is brought to it."""
    roots = (kind.__module__.partition(".")[0] for kind in type(env).__mro__)
    suite = next((root for root in roots if root in SUITES), None)
    return (env, params) if suite is None else (module_of(suite, type(env).__name__).adapted(env, params), None)


def module_of(suite: str, wanted: str) -> Any:
    """What adapts a suite.  Raises ConfigError where it is not installed, or in another version."""
    demand(suite, wanted)
    about = SUITES[suite]
    found = importlib.metadata.version(about.package)
    if not found.startswith(about.version):
        raise ConfigError(
            f"{wanted} needs {suite} {about.version}, and {found} is installed: pip install 'rollax[{suite}]'"
        )
    try:
        return importlib.import_module(f"rollax.envs.suites.{suite}")
    except ImportError as error:
        raise EnvError(f"{wanted}: {suite} {fails(error)}, on import") from error
