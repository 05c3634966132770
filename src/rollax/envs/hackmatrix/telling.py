"""What happened in a move of HackMatrix, in sentences, and why an action is not legal."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np

from rollax.envs.hackmatrix.actions import FIRST_PROGRAM, SIPHON
from rollax.envs.hackmatrix.board import SIZE
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.screen import price_of
from rollax.envs.hackmatrix.state import ENEMY_NAMES, State

DIRECTIONS = ("up", "down", "left", "right")
SIDES = ("above you", "below you", "on your left", "on your right")
UNDO = next(index for index, program in enumerate(PROGRAMS) if program.name == "undo")


def told(before: State, action: int, outcome: Any) -> list[str]:
    """What the player's part did, what the enemies' part did, and how a stage or the game ended.

    `outcome` is the environment's own, of that action in the state `before`.
    """
    before, done = jax.device_get((before, outcome))
    said = [_player_part(before, action, done.acted)]
    if _turns_passed(done.acted, done.state):
        said += _enemy_part(done.acted, done.state)
    if done.completed:
        said.append(f"You reached the exit: stage {int(done.state.stage)} begins.")
    if done.won:
        said.append("You won: the last stage is done.")
    elif done.over and int(done.state.player.hp) == 0:
        said.append(f"You died, because {_attackers(done)} hit you, and you had {_hp(done.acted)} hp left.")
    elif done.over:
        said.append("The game is over, because that action was not legal.")
    elif np.any(done.attacked):
        said.append(f"{_attackers(done).capitalize()} hit you: hp {_hp(done.acted)} to {_hp(done.state)}.")
    return said


def _hp(state: State) -> int:
    return int(state.player.hp)


def _turns_passed(acted: State, after: State) -> bool:
    return int(after.stage) == int(acted.stage) and int(after.turn) != int(acted.turn)


# -- the player's part


def _player_part(before: State, action: int, acted: State) -> str:
    if action == FIRST_PROGRAM + UNDO:
        return "You ran undo: the game is one turn back."
    if action >= FIRST_PROGRAM:
        index = action - FIRST_PROGRAM
        did = f"You ran {PROGRAMS[index].name} for {price_of(index)}"
        return _sentence(did, [*_removed(before, acted), *_hurt(before, acted)])
    if action == SIPHON:
        return _sentence("You siphoned", _siphoned(before, acted))
    struck = [*_removed(before, acted), *_hurt(before, acted)]
    if struck:
        return _sentence(f"You shot {DIRECTIONS[action]}", struck)
    if int(before.player.cell) == int(acted.player.cell):
        return f"You could not go {DIRECTIONS[action]}."
    found = ["found a data siphon"] if int(acted.player.siphons) > int(before.player.siphons) else []
    return _sentence(f"You walked {DIRECTIONS[action]}", found)


def _sentence(start: str, parts: list[str]) -> str:
    return f"{start}: {', '.join(parts)}." if parts else f"{start}."


def _removed(before: State, after: State) -> list[str]:
    """Enemies and transmissions that are gone."""
    gone = before.enemies.alive & ~after.enemies.alive
    kinds = Counter(ENEMY_NAMES[int(kind)] for kind in before.enemies.kind[gone])
    lost = int(np.sum(before.transmissions.present & ~after.transmissions.present))
    parts = [counted(number, name) for name, number in kinds.items()]
    parts += [counted(lost, "transmission")] if lost else []
    return [f"removed {together(parts)}"] if parts else []


def _hurt(before: State, after: State) -> list[str]:
    """Enemies that lost hp and are still there, as the same kind."""
    one, other = before.enemies, after.enemies
    hurt = one.alive & other.alive & (one.kind == other.kind) & (other.hp < one.hp)
    named = [f"the {ENEMY_NAMES[int(one.kind[i])]} ({int(other.hp[i])} hp left)" for i in np.flatnonzero(hurt)]
    return [f"hit {together(named)}"] if named else []


def _siphoned(before: State, acted: State) -> list[str]:
    names = {"score": "point", "credits": "credit", "energy": "energy"}
    gains = {name: int(getattr(acted.player, name)) - int(getattr(before.player, name)) for name in names}
    parts = [counted(more, names[name]) for name, more in gains.items() if more]
    new = int(acted.owned) & ~int(before.owned)
    parts += [program.name for i, program in enumerate(PROGRAMS) if new >> i & 1]
    owed = int(acted.pending) - int(before.pending)
    return [
        f"got {together(parts)}" if parts else "got nothing",
        *([f"woke {counted(owed, 'transmission')}"] if owed else []),
    ]


# -- the enemies' part


def _enemy_part(acted: State, after: State) -> list[str]:
    here = acted.transmissions
    due = here.present & (here.turns <= 1)
    arrived, new = int(np.sum(due)), int(np.sum(after.transmissions.present & ~(here.present & ~due)))
    said = []
    if arrived:
        said.append(
            f"{counted(arrived, 'transmission').capitalize()} became {'an enemy' if arrived == 1 else 'enemies'}."
        )
    if new:
        said.append(f"{counted(new, 'transmission').capitalize()} appeared.")
    return said


def _attackers(done: Any) -> str:
    """Who hit the player, and from where."""
    enemies, player = done.state.enemies, divmod(int(done.state.player.cell), SIZE)
    return together(
        [
            f"the {ENEMY_NAMES[int(enemies.kind[i])]} {_side(player, divmod(int(enemies.cell[i]), SIZE))}"
            for i in np.flatnonzero(done.attacked)
        ]
    )


def _side(player: tuple[int, int], other: tuple[int, int]) -> str:
    """Where a neighbour stands; row 0 is the lowest."""
    if other[0] != player[0]:
        return SIDES[0 if other[0] > player[0] else 1]
    return SIDES[2 if other[1] < player[1] else 3]


# -- what cannot be done


def why_not(state: State, action: int) -> str:
    """Why an action is not legal in a state, in a few words."""
    if action < SIPHON:
        return f"a block or the edge of the board is {SIDES[action]}"
    if action == SIPHON:
        return "you have no data siphon"
    index = action - FIRST_PROGRAM
    program, player = PROGRAMS[index], state.player
    if not int(state.owned) >> index & 1:
        return f"you do not own {program.name}"
    if int(player.credits) < program.credits or int(player.energy) < program.energy:
        return f"{program.name} costs {price_of(index)}, and you have {int(player.credits)}c {int(player.energy)}e"
    return f"{program.name} would do nothing now"


# -- words


def counted(number: int, name: str) -> str:
    """`a virus`, `2 viruses`, `3 energy`."""
    if name == "energy":
        return f"{number} energy"
    if number == 1:
        return f"a {name}"
    return f"{number} {name}{'es' if name.endswith('s') else 's'}"


def together(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
