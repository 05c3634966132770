"""Exact games from plain data, and the hidden values of a game as plain data.

The format, where only the player's row and col are required:

    player:        row, col; hp 3, credits 0, energy 0, dataSiphons 0, attackDamage 1, score 0
    enemies:       [{type, row, col, hp; stunned, spawnedFromSiphon, isFromScheduledTask, disabledTurns}]
    transmissions: [{row, col, turnsRemaining, enemyType; spawnedFromSiphon, isFromScheduledTask}]
    blocks:        [{row, col, type: data | program | question; siphoned, spawnCount,
                     points | programType | programActionIndex}]
    resources:     [{row, col, and one of dataSiphon: true | credits | energy}]
    ownedPrograms: [action indices 5 to 27]
    stage, turn, showActivated, scheduledTasksDisabled, exit {row, col}, siphonedCells [[row, col], ...],
    stepActive, atkPlusUses, scheduledTaskInterval, nextScheduledTaskTurn
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.hackmatrix.actions import FIRST_PROGRAM
from rollax.envs.hackmatrix.board import CELLS, SIZE
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.stages import FIRST_INTERVAL
from rollax.envs.hackmatrix.state import (
    BLOCK,
    ENEMY_NAMES,
    EXIT,
    LAST_STAGE,
    MAX_ENEMIES,
    MAX_HP,
    NO_PROGRAM,
    PICKUP,
    Enemies,
    Grid,
    History,
    Player,
    State,
    Transmissions,
)
from rollax.errors import ConfigError, did_you_mean

PROGRAM_NAMES = tuple(program.name for program in PROGRAMS)
DATA_POINTS, PROGRAM_SPAWN = 5, 2  # of scenario blocks that do not say
FIELDS = {
    "player": ("row", "col", "hp", "credits", "energy", "dataSiphons", "attackDamage", "score"),
    "enemies": (*("type", "row", "col", "hp", "stunned", "spawnedFromSiphon", "isFromScheduledTask", "disabledTurns"),),
    "transmissions": ("row", "col", "turnsRemaining", "enemyType", "spawnedFromSiphon", "isFromScheduledTask"),
    "blocks": ("row", "col", "type", "siphoned", "points", "spawnCount", "programType", "programActionIndex"),
    "resources": ("row", "col", "dataSiphon", "credits", "energy"),
    "exit": ("row", "col"),
}
NAMES = (
    *FIELDS, "ownedPrograms", "stage", "turn", "showActivated", "scheduledTasksDisabled", "siphonedCells", "stepActive",
    "atkPlusUses", "scheduledTaskInterval", "nextScheduledTaskTurn",
)  # fmt: skip
MOST = 30_000  # of a count that is packed with others
COUNTLESS = 1_000_000_000  # what nothing in the game limits


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


def load(data: dict[str, Any], history: History) -> State:
    """The game that a scenario describes.  Raises ConfigError that names every field that is wrong."""
    if not isinstance(data, dict):
        raise ConfigError("a scenario is an object with at least player: {row, col}")
    read = Reader()
    read.known(data, NAMES)
    values: dict[str, Any] = {
        "player": _player(read, data),
        "grid": _grid(read, data),
        "enemies": _enemies(read, data),
        "transmissions": _transmissions(read, data),
        "owned": np.uint32(_owned(read, data)),
        "stage": read.number(data, "stage", "", 1, 1, LAST_STAGE),
        "turn": read.number(data, "turn", "", 0, high=COUNTLESS),
        "exit": _exit(read, data),
        "show": read.flag(data, "showActivated", ""),
        "calm": read.flag(data, "scheduledTasksDisabled", ""),
        "step": read.flag(data, "stepActive", ""),
        "attack_uses": read.number(data, "atkPlusUses", "", 0),
        "interval": read.number(data, "scheduledTaskInterval", "", FIRST_INTERVAL),
        "next_task": read.number(data, "nextScheduledTaskTurn", "", FIRST_INTERVAL, high=COUNTLESS),
        "pending": 0,
        "dropped": 0,
        "history": history,
    }
    if read.problems:
        raise ConfigError(read.problems)
    kinds = {bool: jnp.bool_, int: jnp.int32}
    return jax.tree.map(lambda x: jnp.asarray(x, kinds.get(type(x))), State(**values))


def _player(read: Reader, data: dict) -> Player:
    player = data.get("player")
    if not isinstance(player, dict):
        read.problems.append("player is missing; give at least player: {row, col}")
        player = {"row": 0, "col": 0}
    read.known(player, FIELDS["player"], "player.")
    where = "player."
    values: dict[str, Any] = {
        "cell": read.cell(player, where),
        "hp": read.number(player, "hp", where, MAX_HP, 0, MAX_HP),
        "credits": read.number(player, "credits", where, 0, high=COUNTLESS),
        "energy": read.number(player, "energy", where, 0, high=COUNTLESS),
        "siphons": read.number(player, "dataSiphons", where, 0, high=COUNTLESS),
        "attack": read.number(player, "attackDamage", where, 1, high=COUNTLESS),
        "score": read.number(player, "score", where, 0, -COUNTLESS, COUNTLESS),
    }
    return Player(**values)


def _exit(read: Reader, data: dict) -> int:
    place = data.get("exit")
    if place is None:
        return CELLS - 1
    if not isinstance(place, dict):
        read.problems.append("exit must be an object with row and col")
        return CELLS - 1
    read.known(place, FIELDS["exit"], "exit.")
    return read.cell(place, "exit.")


def _owned(read: Reader, data: dict) -> int:
    last = FIRST_PROGRAM + len(PROGRAMS) - 1
    owned = 0
    for place, action in enumerate(read.items(data, "ownedPrograms")):
        item = {"action": action}
        owned |= 1 << (
            read.number(item, "action", f"ownedPrograms[{place}].", None, FIRST_PROGRAM, last) - FIRST_PROGRAM
        )
    return owned


def _enemies(read: Reader, data: dict) -> Enemies:
    entries = read.entries(data, "enemies")
    if len(entries) > MAX_ENEMIES:
        read.problems.append(f"enemies has {len(entries)} entries; at most {MAX_ENEMIES} fit")
    rows = [
        (
            True,
            ENEMY_NAMES.index(read.name(item, "type", where, ENEMY_NAMES)),
            read.cell(item, where),
            read.number(item, "hp", where, None, 1, 3),
            read.number(item, "disabledTurns", where, 0),
            read.flag(item, "stunned", where),
            read.flag(item, "spawnedFromSiphon", where),
            read.flag(item, "isFromScheduledTask", where),
        )
        for where, item in entries[:MAX_ENEMIES]
    ]
    names = ("alive", "kind", "cell", "hp", "disabled", "stunned", "from_siphon", "scheduled")
    columns = np.zeros((len(names), MAX_ENEMIES), np.int32)
    for place, row in enumerate(rows):
        columns[:, place] = row
    return Enemies.pack(**dict(zip(names, columns, strict=True)))


def _transmissions(read: Reader, data: dict) -> Transmissions:
    names = ("present", "turns", "kind", "order", "from_siphon", "scheduled")
    columns = np.zeros((len(names), CELLS), np.int32)
    seen: set[int] = set()
    for order, (where, item) in enumerate(read.entries(data, "transmissions")):
        cell = read.cell(item, where)
        read.once(cell, seen, where, "transmission")
        values = (
            True,
            read.number(item, "turnsRemaining", where, None),
            ENEMY_NAMES.index(read.name(item, "enemyType", where, ENEMY_NAMES)),
            order,
            read.flag(item, "spawnedFromSiphon", where),
            read.flag(item, "isFromScheduledTask", where),
        )
        columns[:, cell] = values
    return Transmissions.pack(**dict(zip(names, columns, strict=True)))


def _grid(read: Reader, data: dict) -> Grid:
    names = ("content", "program", "points", "spawn", "question", "credits", "energy", "siphoned", "centre")
    grid = {name: np.zeros(CELLS, np.int32) for name in names}
    grid["program"][:] = NO_PROGRAM
    seen: set[int] = set()
    for where, item in read.entries(data, "blocks"):
        cell = read.cell(item, where)
        read.once(cell, seen, where, "block")
        kind = read.name(item, "type", where, ("data", "program", "question"))
        program = _program(read, item, where) if kind != "data" else NO_PROGRAM
        if kind == "program" and program == NO_PROGRAM:
            read.problems.append(f"{where}programType is missing; give it or programActionIndex")
        points = read.number(item, "points", where, DATA_POINTS) if program == NO_PROGRAM else 0
        usual = points if program == NO_PROGRAM else PROGRAM_SPAWN
        grid["content"][cell] = BLOCK
        grid["program"][cell] = program
        grid["points"][cell] = points
        grid["spawn"][cell] = read.number(item, "spawnCount", where, usual)
        grid["question"][cell] = kind == "question"
        grid["siphoned"][cell] = read.flag(item, "siphoned", where)
    for where, item in read.entries(data, "resources"):
        cell = read.cell(item, where)
        credits_, energy = (read.number(item, name, where, 0) for name in ("credits", "energy"))
        if read.flag(item, "dataSiphon", where):
            grid["content"][cell] = PICKUP
        elif credits_:
            grid["credits"][cell], grid["energy"][cell] = credits_, 0
        elif energy:
            grid["credits"][cell], grid["energy"][cell] = 0, energy
    for place, pair in enumerate(read.items(data, "siphonedCells")):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            read.problems.append(f"siphonedCells[{place}] must be [row, col]")
            continue
        grid["siphoned"][read.cell({"row": pair[0], "col": pair[1]}, f"siphonedCells[{place}].")] = 1
    grid["content"][_exit(Reader(), data)] = EXIT
    empty = grid["content"] != BLOCK
    grid["program"][empty], grid["points"][empty], grid["spawn"][empty], grid["question"][empty] = NO_PROGRAM, 0, 0, 0
    return Grid.pack(**grid)


def _program(read: Reader, item: dict, where: str) -> int:
    """The program of a block, by name or by action; NO_PROGRAM if it names none."""
    if item.get("programType") is not None:
        return PROGRAM_NAMES.index(read.name(item, "programType", where, PROGRAM_NAMES))
    if item.get("programActionIndex") is not None:
        last = FIRST_PROGRAM + len(PROGRAMS) - 1
        return read.number(item, "programActionIndex", where, None, FIRST_PROGRAM, last) - FIRST_PROGRAM
    return NO_PROGRAM


def read(state: State) -> dict[str, Any]:
    """A game's values as plain Python, hidden ones included.

    `player` with the names of a scenario; `stage`, `turn_count`, `exit` (`row`, `col`), `owned_programs` (as actions),
    the flags `show`, `calm` and `step_active`, `atk_plus_uses`, `scheduled_task_interval`, `next_scheduled_task_turn`,
    `pending_siphon_transmissions`, `snapshots` (how often UNDO could go back), and, in their order, `enemies` (`row`,
    `col`, `type`, `hp`, `disabled_turns`, `is_stunned`, `spawned_from_siphon`, `is_from_scheduled_task`) and
    `transmissions` (`row`, `col`, `turns`, `type` and the same two origins).
    """
    host = jax.tree.map(np.asarray, jax.device_get(state._replace(history=state.history._replace(rows=jnp.zeros(0)))))
    player, enemies, trans = host.player, host.enemies, host.transmissions
    order = sorted(np.flatnonzero(trans.present).tolist(), key=lambda cell: int(trans.order[cell]))
    return {
        "player": {
            "row": int(player.cell) // SIZE,
            "col": int(player.cell) % SIZE,
            "hp": int(player.hp),
            "credits": int(player.credits),
            "energy": int(player.energy),
            "dataSiphons": int(player.siphons),
            "attackDamage": int(player.attack),
            "score": int(player.score),
        },
        "stage": int(host.stage),
        "turn_count": int(host.turn),
        "exit": {"row": int(host.exit) // SIZE, "col": int(host.exit) % SIZE},
        "owned_programs": [FIRST_PROGRAM + i for i in range(len(PROGRAMS)) if int(host.owned) >> i & 1],
        "show": bool(host.show),
        "calm": bool(host.calm),
        "step_active": bool(host.step),
        "atk_plus_uses": int(host.attack_uses),
        "scheduled_task_interval": int(host.interval),
        "next_scheduled_task_turn": int(host.next_task),
        "pending_siphon_transmissions": int(host.pending),
        "snapshots": int(host.history.count),
        "enemies": [
            {
                "row": int(enemies.cell[i]) // SIZE,
                "col": int(enemies.cell[i]) % SIZE,
                "type": ENEMY_NAMES[int(enemies.kind[i])],
                "hp": int(enemies.hp[i]),
                "disabled_turns": int(enemies.disabled[i]),
                "is_stunned": bool(enemies.stunned[i]),
                "spawned_from_siphon": bool(enemies.from_siphon[i]),
                "is_from_scheduled_task": bool(enemies.scheduled[i]),
            }
            for i in np.flatnonzero(enemies.alive)
        ],
        "transmissions": [
            {
                "row": cell // SIZE,
                "col": cell % SIZE,
                "turns": int(trans.turns[cell]),
                "type": ENEMY_NAMES[int(trans.kind[cell])],
                "spawned_from_siphon": bool(trans.from_siphon[cell]),
                "is_from_scheduled_task": bool(trans.scheduled[cell]),
            }
            for cell in order
        ],
    }
