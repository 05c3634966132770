"""The state of a game in arrays of fixed size, and the history that UNDO goes back in."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from rollax.envs.hackmatrix.board import CELLS
from rollax.envs.hackmatrix.packing import Field, Packed
from rollax.types import Array

EMPTY, BLOCK, PICKUP, EXIT = range(4)  # contents of a cell
VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)
ENEMY_NAMES = ("virus", "daemon", "glitch", "cryptog")
ENEMY_MAX_HP = (2, 3, 2, 2)
NO_PROGRAM = -1  # in a block: it holds data
MAX_HP, LAST_STAGE, NUM_PROGRAMS = 3, 8, 23
MAX_ENEMIES = 32


class Player(NamedTuple):
    cell: Array
    hp: Array
    credits: Array
    energy: Array
    siphons: Array  # data siphons in hand
    attack: Array  # what an attack takes
    score: Array


@struct.dataclass
class Grid(Packed):
    """What the 36 cells hold: `[36]` each."""

    look: Array
    load: Array
    resource: Array

    content = Field("look", 0, 2)
    question = Field("look", 2, 1)  # of a block: what it holds is hidden
    siphoned = Field("look", 3, 1)
    centre = Field("look", 4, 1)  # somebody siphoned standing here
    program = Field("look", 5, 5, lowest=NO_PROGRAM)  # of a block: what it holds, or NO_PROGRAM
    points = Field("load", 0, 15)  # of a data block
    spawn = Field("load", 15, 15)  # of a block: transmissions that its siphoning brings
    credits = Field("resource", 0, 15)
    energy = Field("resource", 15, 15)

    @property
    def blocks(self) -> Array:
        return self.content == BLOCK


@struct.dataclass
class Enemies(Packed):
    """`[MAX_ENEMIES]` each, in order of creation; the places of the dead are empty until the next turn."""

    words: Array

    alive = Field("words", 0, 1)
    cell = Field("words", 1, 6)
    kind = Field("words", 7, 2)
    hp = Field("words", 9, 3)  # to 4: a scenario's virus with 3 becomes a daemon with 4
    stunned = Field("words", 12, 1)
    from_siphon = Field("words", 13, 1)
    scheduled = Field("words", 14, 1)
    disabled = Field("words", 15, 15)  # turns that it still sits out


@struct.dataclass
class Transmissions(Packed):
    """At most one on a cell: `[36]` each."""

    words: Array
    order: Array  # the earlier of two has the smaller number

    present = Field("words", 0, 1)
    kind = Field("words", 1, 2)  # of the enemy that it becomes
    from_siphon = Field("words", 3, 1)
    scheduled = Field("words", 4, 1)
    turns = Field("words", 5, 20)


class History(NamedTuple):
    """The last snapshots, a ring."""

    rows: Array  # int32[depth, words]
    count: Array
    head: Array  # where the next one goes
    dropped: Array  # snapshots of this game that had no place


class State(NamedTuple):
    player: Player
    grid: Grid
    enemies: Enemies
    transmissions: Transmissions
    owned: Array  # uint32: bit i is program i
    stage: Array
    turn: Array
    exit: Array  # the exit position, a cell
    show: Array
    calm: Array
    step: Array  # the next enemy turn is skipped
    attack_uses: Array  # of ATK+, in this stage
    interval: Array  # turns between scheduled spawns
    next_task: Array  # the turn of the next one
    pending: Array  # transmissions that siphons still owe
    dropped: Array  # enemies of this game that found no place
    history: History


def no_enemies() -> Enemies:
    return Enemies(jnp.zeros(MAX_ENEMIES, jnp.int32))


def no_transmissions() -> Transmissions:
    return Transmissions(*(jnp.zeros(CELLS, jnp.int32) for _ in range(2)))


def empty_grid() -> Grid:
    return Grid(*(jnp.zeros(CELLS, jnp.int32) for _ in range(3)))


def max_hp(kind: Array) -> Array:
    return jnp.where(kind == DAEMON, ENEMY_MAX_HP[DAEMON], ENEMY_MAX_HP[VIRUS])


def earliest(enemies: Enemies) -> Array:
    """Which enemies are the first of their cell: `bool[MAX_ENEMIES]`."""
    place = jnp.arange(MAX_ENEMIES)
    same = enemies.cell[:, None] == enemies.cell[None, :]
    before = place[None, :] < place[:, None]
    return enemies.alive & ~jnp.any(same & before & enemies.alive[None, :], axis=1)


# -- history


def snapshot(state: State) -> Array:
    """What UNDO brings back, as int32 words: no stage, exit, interval, next task, pending, step, and no origins."""
    enemies, trans = (things.change(from_siphon=0, scheduled=0) for things in (state.enemies, state.transmissions))
    game = [*state.player, state.owned.astype(jnp.int32), state.turn, state.show, state.calm, state.attack_uses]
    numbers = jnp.stack([number.astype(jnp.int32) for number in game])
    return jnp.concatenate([numbers, *jax.tree.leaves((enemies, trans, state.grid))])


NUM_NUMBERS = len(Player._fields) + 5
SNAPSHOT_WORDS = NUM_NUMBERS + MAX_ENEMIES + 5 * CELLS


def restore(state: State, words: Array) -> State:
    """The state with all that a snapshot holds."""
    parts = (state.enemies, state.transmissions, state.grid)
    leaves, structure = jax.tree.flatten(parts)
    ends = list(itertools.accumulate([NUM_NUMBERS, *(len(leaf) for leaf in leaves[:-1])]))
    numbers, *parts = jnp.split(words, ends)
    enemies, trans, grid = jax.tree.unflatten(structure, parts)
    *player, owned, turn, show, calm, attack_uses = numbers
    return state._replace(
        player=Player(*player),
        grid=grid,
        enemies=enemies,
        transmissions=trans,
        owned=owned.astype(jnp.uint32),
        turn=turn,
        show=show == 1,
        calm=calm == 1,
        attack_uses=attack_uses,
    )


def empty_history(depth: int) -> History:
    return History(jnp.zeros((depth, SNAPSHOT_WORDS), jnp.int32), jnp.int32(0), jnp.int32(0), jnp.int32(0))


def push(history: History, words: Array, wanted: Array) -> History:
    """The history with one more snapshot, if wanted; of a full one the oldest is gone."""
    depth = history.rows.shape[0]
    place = jnp.arange(depth) == jnp.where(wanted, history.head, depth)
    full = history.count == depth
    return History(
        rows=jnp.where(place[:, None], words, history.rows),
        count=jnp.where(wanted, jnp.minimum(history.count + 1, depth), history.count),
        head=jnp.where(wanted, (history.head + 1) % depth, history.head),
        dropped=history.dropped + (wanted & full),
    )


def pop(state: State) -> State:
    """UNDO: the state that the newest snapshot holds, which leaves the history."""
    history = state.history
    depth = history.rows.shape[0]
    newest = (history.head - 1) % depth
    words = jnp.sum(jnp.where((jnp.arange(depth) == newest)[:, None], history.rows, 0), axis=0)
    restored = restore(state, words)
    return restored._replace(history=history._replace(count=history.count - 1, head=newest))


def pick(condition: Array, one: State, other: State) -> State:
    """One of two states; what both share costs nothing."""
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), one, other)
