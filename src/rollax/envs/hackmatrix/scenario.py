"""Exact games from plain data.

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

from rollax.envs.hackmatrix import state
from rollax.envs.hackmatrix.actions import FIRST_PROGRAM
from rollax.envs.hackmatrix.board import CELLS
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.scenario_reader import FIELDS, Reader
from rollax.envs.hackmatrix.stages import FIRST_INTERVAL
from rollax.envs.hackmatrix.state import Enemies, Grid, History, Player, State, Transmissions
from rollax.errors import ConfigError

PROGRAM_NAMES = tuple(program.name for program in PROGRAMS)
DATA_POINTS, PROGRAM_SPAWN = 5, 2  # of scenario blocks that do not say
NAMES = (
    *FIELDS, "ownedPrograms", "stage", "turn", "showActivated", "scheduledTasksDisabled", "siphonedCells", "stepActive",
    "atkPlusUses", "scheduledTaskInterval", "nextScheduledTaskTurn",
)  # fmt: skip
COUNTLESS = 1_000_000_000  # what nothing in the game limits


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
        "stage": read.number(data, "stage", "", 1, 1, state.LAST_STAGE),
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
        "hp": read.number(player, "hp", where, state.MAX_HP, 0, state.MAX_HP),
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
    if len(entries) > state.MAX_ENEMIES:
        read.problems.append(f"enemies has {len(entries)} entries; at most {state.MAX_ENEMIES} fit")
    rows = [
        (
            True,
            state.ENEMY_NAMES.index(read.name(item, "type", where, state.ENEMY_NAMES)),
            read.cell(item, where),
            read.number(item, "hp", where, None, 1, 3),
            read.number(item, "disabledTurns", where, 0),
            read.flag(item, "stunned", where),
            read.flag(item, "spawnedFromSiphon", where),
            read.flag(item, "isFromScheduledTask", where),
        )
        for where, item in entries[: state.MAX_ENEMIES]
    ]
    names = ("alive", "kind", "cell", "hp", "disabled", "stunned", "from_siphon", "scheduled")
    columns = np.zeros((len(names), state.MAX_ENEMIES), np.int32)
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
            state.ENEMY_NAMES.index(read.name(item, "enemyType", where, state.ENEMY_NAMES)),
            order,
            read.flag(item, "spawnedFromSiphon", where),
            read.flag(item, "isFromScheduledTask", where),
        )
        columns[:, cell] = values
    return Transmissions.pack(**dict(zip(names, columns, strict=True)))


def _grid(read: Reader, data: dict) -> Grid:
    names = ("content", "program", "points", "spawn", "question", "credits", "energy", "siphoned", "centre")
    grid = {name: np.zeros(CELLS, np.int32) for name in names}
    grid["program"][:] = state.NO_PROGRAM
    seen: set[int] = set()
    for where, item in read.entries(data, "blocks"):
        cell = read.cell(item, where)
        read.once(cell, seen, where, "block")
        kind = read.name(item, "type", where, ("data", "program", "question"))
        program = _program(read, item, where) if kind != "data" else state.NO_PROGRAM
        if kind == "program" and program == state.NO_PROGRAM:
            read.problems.append(f"{where}programType is missing; give it or programActionIndex")
        points = read.number(item, "points", where, DATA_POINTS) if program == state.NO_PROGRAM else 0
        usual = points if program == state.NO_PROGRAM else PROGRAM_SPAWN
        grid["content"][cell] = state.BLOCK
        grid["program"][cell] = program
        grid["points"][cell] = points
        grid["spawn"][cell] = read.number(item, "spawnCount", where, usual)
        grid["question"][cell] = kind == "question"
        grid["siphoned"][cell] = read.flag(item, "siphoned", where)
    for where, item in read.entries(data, "resources"):
        cell = read.cell(item, where)
        credits_, energy = (read.number(item, name, where, 0) for name in ("credits", "energy"))
        if read.flag(item, "dataSiphon", where):
            grid["content"][cell] = state.PICKUP
        elif credits_:
            grid["credits"][cell], grid["energy"][cell] = credits_, 0
        elif energy:
            grid["credits"][cell], grid["energy"][cell] = 0, energy
    for place, pair in enumerate(read.items(data, "siphonedCells")):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            read.problems.append(f"siphonedCells[{place}] must be [row, col]")
            continue
        grid["siphoned"][read.cell({"row": pair[0], "col": pair[1]}, f"siphonedCells[{place}].")] = 1
    grid["content"][_exit(Reader(), data)] = state.EXIT
    empty = grid["content"] != state.BLOCK
    grid["program"][empty], grid["points"][empty], grid["spawn"][empty], grid["question"][empty] = (
        state.NO_PROGRAM,
        0,
        0,
        0,
    )
    return Grid.pack(**grid)


def _program(read: Reader, item: dict, where: str) -> int:
    """The program of a block, by name or by action; state.NO_PROGRAM if it names none."""
    if item.get("programType") is not None:
        return PROGRAM_NAMES.index(read.name(item, "programType", where, PROGRAM_NAMES))
    if item.get("programActionIndex") is not None:
        last = FIRST_PROGRAM + len(PROGRAMS) - 1
        return read.number(item, "programActionIndex", where, None, FIRST_PROGRAM, last) - FIRST_PROGRAM
    return state.NO_PROGRAM
