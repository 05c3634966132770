"""The phases of an iteration, as scopes in the compiled program by which a profile tells operations apart."""

from __future__ import annotations

from typing import Any

import jax

ACTING = "acting"  # choosing actions
STEPPING = "stepping"  # the environments
REMEMBERING = "remembering"  # writing to the replay
SAMPLING = "sampling"  # choosing what to learn from, and fetching it
LEARNING = "learning"  # losses, gradients, optimizer
PHASES = (ACTING, STEPPING, REMEMBERING, SAMPLING, LEARNING)


def phase(name: str) -> Any:
    """A context: what is traced in it carries that name, and computes what it would without."""
    return jax.named_scope(name)
