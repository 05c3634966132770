"""Takes the values of a scenario out of plain data, and collects what is wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rollax.envs.hackmatrix.board import SIZE
from rollax.errors import did_you_mean

FIELDS = {
    "player": ("row", "col", "hp", "credits", "energy", "dataSiphons", "attackDamage", "score"),
    "enemies": (*("type", "row", "col", "hp", "stunned", "spawnedFromSiphon", "isFromScheduledTask", "disabledTurns"),),
    "transmissions": ("row", "col", "turnsRemaining", "enemyType", "spawnedFromSiphon", "isFromScheduledTask"),
    "blocks": ("row", "col", "type", "siphoned", "points", "spawnCount", "programType", "programActionIndex"),
    "resources": ("row", "col", "dataSiphon", "credits", "energy"),
    "exit": ("row", "col"),
}
MOST = 30_000  # of a count that is packed with others


class Reader:
    """Takes values out of a scenario and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def number(self, data: Any, name: str, where: str, default: int | None, low: int = 0, high: int = MOST) -> int:
        value = default if data.get(name) is None else data[name]
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            missing = "is missing" if value is None else f"is {value!r}"
            self.problems.append(f"{where}{name} {missing}; give a whole number from {low} to {high}")
            return low
        if not low <= value <= high:
            self.problems.append(f"{where}{name} is {value}; it must be from {low} to {high}")
            return low
        return int(value)

    def flag(self, data: Any, name: str, where: str) -> bool:
        value = data.get(name)
        if value is not None and not isinstance(value, bool | np.bool_):
            self.problems.append(f"{where}{name} is {value!r}; give true or false")
        return value is not None and bool(value)

    def name(self, data: Any, name: str, where: str, known: tuple[str, ...]) -> str:
        value = data.get(name)
        if value not in known:
            self.problems.append(f"{where}{name} is {value!r}; {did_you_mean(str(value), known)}")
            return known[0]
        return value

    def cell(self, data: Any, where: str) -> int:
        row, col = (self.number(data, name, where, None, 0, SIZE - 1) for name in ("row", "col"))
        return SIZE * row + col

    def entries(self, data: Any, name: str) -> list[tuple[str, dict]]:
        value = data.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or not all(isinstance(item, dict) for item in value):
            self.problems.append(f"{name} must be a list of objects")
            return []
        for place, item in enumerate(value):
            self.known(item, FIELDS[name], f"{name}[{place}].")
        return [(f"{name}[{place}].", item) for place, item in enumerate(value)]

    def items(self, data: Any, name: str) -> list[Any]:
        value = data.get(name)
        if value is None or isinstance(value, list | tuple):
            return list(value or ())
        self.problems.append(f"{name} must be a list")
        return []

    def known(self, data: dict, names: tuple[str, ...], where: str = "") -> None:
        self.problems += [
            f"{where}{name} is no field; {did_you_mean(name, names)}" for name in data if name not in names
        ]

    def once(self, cell: int, seen: set[int], where: str, what: str) -> None:
        if cell in seen:
            self.problems.append(f"{where}row, col: there is another {what} on ({cell // SIZE}, {cell % SIZE}) already")
        seen.add(cell)
