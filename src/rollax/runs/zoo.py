"""Trained policies that come with the package, by names like `zoo:ppo-CartPole`.

Each is a folder of data without code: `config.json`, `weights.safetensors` (of one member, in half precision) and
`card.json`, which says where it comes from and what it scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from rollax.errors import CheckpointError, ConfigError, did_you_mean
from rollax.runs.reader import check_format, check_shape, opened, read_json, sha256_of

PREFIX = "zoo:"
CARD, CONFIG, WEIGHTS = "card.json", "config.json", "weights.safetensors"
SHAPE = {
    "agent": str,
    "env": str,
    "score": (int, float),
    "deviation": (int, float),
    "episodes": int,
    "seed": int,
    "steps": int,
    "seconds": (int, float),
    "machine": str,
    "commit": str,
    "versions": dict,
    "files": {CONFIG: str, WEIGHTS: str},
}


def is_named(where: Any) -> bool:
    """Whether a place is one of the zoo's, and no folder."""
    return str(where).startswith(PREFIX)


def home() -> Path:
    """The folder of all entries."""
    return Path(str(files("rollax").joinpath("zoo")))


def names() -> list[str]:
    """All entries, in the order of their names."""
    return sorted(path.parent.name for path in home().glob(f"*/{CARD}"))


def entry(where: Any) -> Entry:
    """An entry by its name, with `zoo:` or without.  ConfigError where there is none."""
    name = str(where).removeprefix(PREFIX)
    if name not in names():
        raise ConfigError(f"{PREFIX}{name} is not in the zoo; {did_you_mean(name, names())}; `rollax zoo` lists all")
    return Entry(home() / name)


@dataclass(frozen=True)
class Entry:
    """One policy of the zoo, or of a folder of the same kind."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def card(self) -> dict[str, Any]:
        """Where it comes from and what it scores."""
        path = self.folder / CARD
        card = read_json(path)
        check_format(card, path)
        check_shape(card, SHAPE, str(path))
        return card

    @cached_property
    def config(self) -> Any:
        """The run's configuration as plain data."""
        return read_json(self.verified(CONFIG))

    def verified(self, name: str) -> Path:
        """A file of it that is as it was written."""
        path = self.folder / name
        if sha256_of(path) != self.card["files"][name]:
            raise CheckpointError(f"{path} is damaged; install rollax again")
        return path

    def arrays(self) -> dict[str, Any]:
        """The weights by path, as they are stored."""
        from safetensors.numpy import load

        with opened(self.verified(WEIGHTS)) as file:
            return load(file.read())


def listed(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """What the list of the zoo says of each."""
    columns = ("agent", "env", "score", "deviation", "episodes", "steps", "seconds", "machine", "commit")
    return [{"name": f"{PREFIX}{one.name}"} | {column: one.card[column] for column in columns} for one in entries]
