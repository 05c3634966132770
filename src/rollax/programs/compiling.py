"""How hard a CPU's compiler tries; those of other devices are left alone."""

from __future__ import annotations

from typing import Any

import jax

# LLVM's later levels double the time to compile and gain nothing where the arithmetic is in library calls.
# An environment with much arithmetic of its own is another matter: HackMatrix steps 2.5 times as fast with all of them.
# What runs for a moment is compiled by XLA's older emitters, while it has them: they take two thirds of the time, and
# what they make takes up to 1.3 times as long.  What runs once is not optimized at all.
OLDER: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
FULL: dict[str, Any] = {}
LIGHT: dict[str, Any] = {"xla_backend_optimization_level": 1}
BRIEF: dict[str, Any] = LIGHT | OLDER
NONE: dict[str, Any] = {"xla_backend_optimization_level": 0} | OLDER


def usual(*, costly: bool) -> dict[str, Any]:
    """The level for a program with an environment in it, which may be costly."""
    return FULL if costly else LIGHT


def brief(*, costly: bool) -> dict[str, Any]:
    """The same for one that runs for a moment only."""
    return FULL if costly else BRIEF


def compiler_options(level: dict[str, Any], *, on_cpu: bool | None = None) -> dict[str, Any] | None:
    """For `lowered.compile(...)`, at one of the levels above; it will run on the default backend, unless said."""
    return level if (jax.default_backend() == "cpu" if on_cpu is None else on_cpu) else None
