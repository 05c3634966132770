"""Things of the user's own, by the name `package.module:name`."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from rollax.errors import ConfigError, EnvError


def is_own(name: str) -> bool:
    """Whether a name is one of the user's own things."""
    return ":" in name


def find(slot: str, name: str) -> Any:
    """What stands under that name in that module.

    Raises ConfigError, which speaks of `slot`, where there is no such thing, EnvError where its module fails.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{slot}={name!r}: there is no module {error.name!r}; is it on PYTHONPATH?") from error
    except Exception as error:
        raise EnvError(f"{module_name} fails on import: {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, dir(module), n=1)
        hint = f"; did you mean {module_name}:{near[0]}?" if near else ""
        raise ConfigError(f"{slot}={name!r}: {module_name} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def name_of(kind: type) -> str:
    """The name under which `find` finds a class again."""
    return f"{kind.__module__}:{kind.__qualname__}"
