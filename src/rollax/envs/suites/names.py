"""The names of the suites, which are known without importing any of them."""

from __future__ import annotations

from typing import NamedTuple


class Suite(NamedTuple):
    """A library of environments in JAX."""

    package: str  # as it is installed
    version: str  # that fits, or how it begins
    example: str


SUITES = {
    "jumanji": Suite("jumanji", "1.1.", "Game2048-v1"),
    "pgx": Suite("pgx", "2.6.", "2048"),
    "xminigrid": Suite("xminigrid", "0.9.", "MiniGrid-Empty-8x8"),
    "navix": Suite("navix", "0.7.", "Navix-DoorKey-5x5-v0"),
    "craftax": Suite("craftax", "1.6.", "Craftax-Symbolic-v1"),
    "octax": Suite("octax", "0.1.", "brix"),
    "brax": Suite("brax", "0.14.", "ant"),
}


def suite_of(name: str) -> str | None:
    """The suite that an environment's name begins with, as in `jumanji:Game2048-v1`; None for all other names."""
    suite, colon, _ = name.partition(":")
    return suite if colon and suite in SUITES else None
