"""What a player sees, and which actions are legal."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rollax.envs.hackmatrix import board, programs
from rollax.envs.hackmatrix.board import SIZE
from rollax.envs.hackmatrix.play import Sight
from rollax.envs.hackmatrix.state import (
    CRYPTOG,
    EXIT,
    NO_PROGRAM,
    NUM_PROGRAMS,
    PICKUP,
    Enemies,
    State,
    earliest,
)
from rollax.types import Array

CHANNELS = 42


class View(NamedTuple):
    """The three arrays of an observation."""

    player: Array  # float32[10]
    programs: Array  # int32[23], 1 for an owned one
    grid: Array  # float32[6, 6, 42]


def observe(state: State) -> View:
    return View(observe_player(state), owned_programs(state).astype(jnp.int32), observe_grid(state))


def owned_programs(state: State) -> Array:
    return (state.owned >> jnp.arange(NUM_PROGRAMS, dtype=jnp.uint32)) & 1 == 1


def observe_player(state: State) -> Array:
    player = state.player
    numbers = (
        board.row_of(player.cell) / 5,
        board.col_of(player.cell) / 5,
        player.hp / 3,
        jnp.minimum(player.credits / 50, 1),
        jnp.minimum(player.energy / 50, 1),
        (state.stage - 1) / 7,
        player.siphons / 10,
        (player.attack - 1) / 2,
        state.show,
        state.calm,
    )
    return jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])


def observe_grid(state: State) -> Array:
    grid, trans, sight = state.grid, state.transmissions, Sight(state)
    blocks, plain = grid.blocks, grid.blocks & ~grid.question
    data, program = plain & (grid.program == NO_PROGRAM), plain & (grid.program != NO_PROGRAM)
    shown = program[:, None] & (grid.program[:, None] == jnp.arange(NUM_PROGRAMS))
    uncovered = ~blocks | grid.siphoned
    columns = [
        enemy_channels(state, sight),
        channel(data),
        channel(program),
        channel(blocks & grid.question),
        channel(jnp.where(data, grid.points / 9, 0)),
        channel(blocks & grid.siphoned),
        shown.astype(jnp.float32),
        channel(jnp.where(plain, grid.spawn / 9, 0)),
        channel(jnp.where(trans.present, jnp.minimum(trans.turns / 4, 1), 0)),
        channel(jnp.where(uncovered, grid.credits / 3, 0)),
        channel(jnp.where(uncovered, grid.energy / 3, 0)),
        channel(grid.content == PICKUP),
        channel(grid.content == EXIT),
        channel(grid.centre),
    ]
    return jnp.concatenate(columns, axis=1).reshape(SIZE, SIZE, CHANNELS)


def channel(values: Array) -> Array:
    return values.astype(jnp.float32)[:, None]


def enemy_channels(state: State, sight: Sight) -> Array:
    """`[36, 7]`: type, hp, stun and origin of the first enemy of each cell, if it is seen."""
    enemies = state.enemies
    seen = earliest(enemies) & ((enemies.kind != CRYPTOG) | sight.in_row | sight.in_column | state.show)
    stands = (jnp.arange(board.CELLS)[:, None] == enemies.cell[None, :]) & seen[None, :]
    first = Enemies(jnp.sum(jnp.where(stands, enemies.words[None, :], 0), axis=1))  # at most one on a cell
    kinds = [first.alive & (first.kind == kind) for kind in range(4)]
    return jnp.stack(
        [jnp.asarray(part, jnp.float32) for part in (*kinds, first.hp / 3, first.stunned, first.from_siphon)], axis=1
    )


def legal(state: State) -> Array:
    """Which of the 28 actions are legal."""
    sight = Sight(state)
    here = sight.player
    enterable = ~sight.blocks | sight.enemies
    directions = [(here.shift(direction) & enterable).any() for direction in range(4)]
    return jnp.concatenate([jnp.stack([*directions, state.player.siphons > 0]), programs.runnable(sight)])
