"""The enemies' part of a step: transmissions arrive, enemies attack or move, new transmissions appear."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.envs.hackmatrix import board
from rollax.envs.hackmatrix.board import CELLS, Cells
from rollax.envs.hackmatrix.play import Sight
from rollax.envs.hackmatrix.state import (
    GLITCH,
    MAX_ENEMIES,
    VIRUS,
    Enemies,
    State,
    Transmissions,
    max_hp,
)
from rollax.types import Array


class Spawns(NamedTuple):
    """Transmissions that are about to appear."""

    scheduled: Array  # bool: one of the schedule, which comes first
    from_siphon: Array  # how many a siphon owes
    plain: Array  # how many a stage begins with


def no_spawns() -> Spawns:
    return Spawns(jnp.bool_(False), jnp.int32(0), jnp.int32(0))


def enemy_turn(state: State, order_bits: Array, spawn_bits: Array) -> tuple[State, Array]:
    """All of a turn but its snapshot, and which of the enemies attacked: `bool[MAX_ENEMIES]`."""
    state = arrive(state._replace(turn=state.turn + 1))
    state, attacked = enemies_act(state, order_bits)
    scheduled = ~state.calm & (state.turn >= state.next_task)
    next_task = jnp.where(scheduled, state.turn + state.interval, state.next_task)
    spawns = Spawns(scheduled, state.pending, jnp.int32(0))
    sight, enemies = Sight(state), state.enemies
    scene = Scene(sight.player, sight.enemies, sight.transmissions, sight.blocks)
    trans = spawn(state.transmissions, scene, spawns, spawn_bits)
    recovered = enemies.change(disabled=jnp.maximum(enemies.disabled - 1, 0), stunned=jnp.zeros_like(enemies.stunned))
    after = state._replace(next_task=next_task, pending=jnp.int32(0), enemies=recovered, transmissions=trans)
    return after, attacked


def arrive(state: State) -> State:
    """Transmissions whose time has come are enemies now, in their order and after all others; the rest tick."""
    trans = state.transmissions
    due = trans.present & (trans.turns <= 1)
    born = Enemies.pack(
        alive=due,
        cell=jnp.arange(CELLS),
        kind=trans.kind,
        hp=max_hp(trans.kind),
        from_siphon=trans.from_siphon,
        scheduled=trans.scheduled,
        disabled=jnp.ones(CELLS, jnp.int32),
    )
    alive = state.enemies.alive
    earlier = due[None, :] & (trans.order[None, :] < trans.order[:, None])
    old_place, new_place = board.number_before(alive), jnp.sum(alive) + jnp.sum(earlier, axis=1)
    lists = ((old_place, alive, state.enemies.words), (new_place, due, born.words))
    lands = [(jnp.arange(MAX_ENEMIES)[:, None] == place) & there for place, there, _ in lists]
    moved = [jnp.sum(jnp.where(here, words, 0), axis=1) for here, (_, _, words) in zip(lands, lists, strict=True)]
    enemies = Enemies(moved[0] + moved[1])
    left = trans.change(present=trans.present & ~due, turns=jnp.maximum(trans.turns - 1, 0))
    dropped = jnp.maximum(jnp.sum(alive) + jnp.sum(due) - MAX_ENEMIES, 0)
    return state._replace(enemies=enemies, transmissions=left, dropped=state.dropped + dropped)


def enemies_act(state: State, bits: Array) -> tuple[State, Array]:
    """Two sub-steps, the second of viruses only; in each one enemy after the other, in random order.

    Comes back with the enemies that attacked.
    """
    sight, enemies, player = Sight(state), state.enemies, state.player.cell
    able = enemies.alive & (enemies.disabled == 0) & ~enemies.stunned
    quick = able & (enemies.kind == VIRUS)
    first = random_order(able, bits[:MAX_ENEMIES])
    second = random_order(quick, bits[MAX_ENEMIES : 2 * MAX_ENEMIES]) + jnp.sum(able)
    blocked, transmissions = sight.blocks, sight.transmissions
    number = jnp.sum(able) + jnp.sum(quick)

    def act(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        turn, cells, attacked = carry
        again = quick & ~attacked & (second == turn)
        mine = (able & (first == turn)) | again
        cell = jnp.sum(jnp.where(mine, cells, 0))
        glitch = jnp.any(mine & (enemies.kind == GLITCH))
        near = board.manhattan(cell, player) == 1
        others = board.set_of_places(cells, enemies.alive & ~mine) | transmissions
        target = next_cell(cell, player, board.where(glitch, board.everywhere(), ~blocked), others)
        moved = jnp.where(mine & ~near, target, cells)
        return turn + 1, moved, attacked | (mine & near)

    start = (jnp.int32(0), enemies.cell, jnp.zeros(MAX_ENEMIES, bool))
    _, cells, attacked = jax.lax.while_loop(lambda carry: carry[0] < number, act, start)
    # Nobody attacks twice in a turn: who attacked first has no second sub-step.
    hp = jnp.maximum(state.player.hp - jnp.sum(attacked), 0)
    moved = state._replace(enemies=enemies.change(cell=cells), player=state.player._replace(hp=hp))
    return moved, attacked


def next_cell(cell: Array, player: Array, open_cells: Cells, occupied: Cells) -> Array:
    """Where an enemy goes that is not next to the player; it may stay."""
    here, goal = board.cell_set(cell), board.cell_set(player)
    neighbours, free = here.adjacent() & open_cells, open_cells & ~occupied
    _, around = board.walk(goal & open_cells, free, neighbours & free)
    _, through = board.walk(goal & open_cells, open_cells, neighbours)
    queue = board.first_neighbour(cell, through)
    beside = neighbours & free
    nearer = closer(cell, player) & beside
    fallback = board.first_neighbour(cell, board.where(nearer.any(), nearer, beside))
    second = jnp.where(through.any() & ~occupied.has(queue), queue, fallback)
    return jnp.where(around.any(), board.first_neighbour(cell, around), second)


def closer(cell: Array, player: Array) -> Cells:
    """The neighbours of a cell in whose direction the player is."""
    here, found = board.cell_set(cell), board.nowhere()
    ahead = (
        board.row_of(player) > board.row_of(cell),
        board.row_of(player) < board.row_of(cell),
        board.col_of(player) < board.col_of(cell),
        board.col_of(player) > board.col_of(cell),
    )
    for direction, wanted in enumerate(ahead):
        found = found | board.where(wanted, here.shift(direction), board.nowhere())
    return found


def random_order(able: Array, bits: Array) -> Array:
    """A place in a uniformly random order for each that is able."""
    place = jnp.arange(len(bits))
    before = (bits[None, :] > bits[:, None]) | ((bits[None, :] == bits[:, None]) & (place[None, :] < place[:, None]))
    return jnp.sum(before & able[None, :], axis=1)


# -- spawning


class Scene(NamedTuple):
    """What spawning looks at."""

    player: Cells
    enemies: Cells
    transmissions: Cells
    blocks: Cells


def spawn(trans: Transmissions, scene: Scene, spawns: Spawns, bits: Array) -> Transmissions:
    """New transmissions on random empty cells, those outside the line of fire first; without a cell they are lost."""
    empty = ~(scene.player | scene.enemies | scene.transmissions | scene.blocks)
    safe, empty = (empty & ~line_of_fire(scene)).flags(), empty.flags()
    lottery = jnp.where(safe, bits | jnp.uint32(1 << 31), bits & jnp.uint32((1 << 31) - 1))
    # The two lowest bits choose the type; what chooses the cell is above them.
    place = random_order(empty, lottery >> 2)
    scheduled = spawns.scheduled.astype(jnp.int32)
    new = empty & (place < scheduled + spawns.from_siphon + spawns.plain)
    of_siphon = new & (place >= scheduled) & (place < scheduled + spawns.from_siphon)
    latest = jnp.max(jnp.where(trans.present, trans.order, -1))
    fresh = Transmissions.pack(
        present=new,
        kind=(bits & 3).astype(jnp.int32),
        from_siphon=of_siphon,
        scheduled=place < scheduled,
        turns=jnp.ones(CELLS, jnp.int32),
        order=latest + 1 + place,
    )
    return jax.tree.map(lambda one, other: jnp.where(new, one, other), fresh, trans)


def line_of_fire(scene: Scene) -> Cells:
    """Cells in the player's row and column with no enemy and no block between."""
    open_cells, fire = ~(scene.enemies | scene.blocks), board.nowhere()
    for direction in range(4):
        ray = scene.player.shift(direction)
        for _ in range(board.SIZE - 2):
            fire = fire | ray
            ray = (ray & open_cells).shift(direction)
        fire = fire | ray
    return fire
