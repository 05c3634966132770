"""What one action does: the record that the rules fill, the sight that they look at, and hits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.envs.hackmatrix import board
from rollax.envs.hackmatrix.board import Cells
from rollax.envs.hackmatrix.state import State
from rollax.types import Array


class Play(NamedTuple):
    """A state in the middle of a step, and what the reward will want to know of it."""

    state: State
    kills: Array  # enemies and transmissions removed by the action, without scheduled ones
    picked_up: Array  # a pickup was walked onto
    missed: Array  # resources that a better siphon would have given
    wasted: Array  # RESET at 2 hp
    at_exit: Array  # the player reached the exit


def begin(state: State) -> Play:
    no, none = jnp.bool_(False), jnp.int32(0)
    return Play(state, none, no, none, no, no)


@dataclass(frozen=True)
class Sight:
    """A state as sets of cells, each made at most once."""

    state: State

    @cached_property
    def player(self) -> Cells:
        return board.cell_set(self.state.player.cell)

    @cached_property
    def blocks(self) -> Cells:
        return board.set_of_flags(self.state.grid.blocks)

    @cached_property
    def siphoned(self) -> Cells:
        return board.set_of_flags(self.state.grid.siphoned)

    @cached_property
    def enemies(self) -> Cells:
        return board.set_of_places(self.state.enemies.cell, self.state.enemies.alive)

    @cached_property
    def transmissions(self) -> Cells:
        return board.set_of_flags(self.state.transmissions.present)

    @cached_property
    def around(self) -> Cells:
        """The player's eight neighbours."""
        return self.player.around()

    def enemies_on(self, cells: Cells) -> Array:
        """Which living enemies stand on those cells: `bool[MAX_ENEMIES]`."""
        return self.state.enemies.alive & cells.has(self.state.enemies.cell)

    def enemies_of(self, kind: int) -> Array:
        return self.state.enemies.alive & (self.state.enemies.kind == kind)

    @cached_property
    def in_row(self) -> Array:
        enemies, player = self.state.enemies, self.state.player
        return enemies.alive & (board.row_of(enemies.cell) == board.row_of(player.cell))

    @cached_property
    def in_column(self) -> Array:
        enemies, player = self.state.enemies, self.state.player
        return enemies.alive & (board.col_of(enemies.cell) == board.col_of(player.cell))


def choose(base: Play, alternatives: Iterable[tuple[Array, Play]]) -> Play:
    """The play whose condition holds, else `base`.  At most one may hold.

    What an alternative left as it was in `base` costs nothing.
    """
    leaves, structure = jax.tree.flatten(base)
    chosen = list(leaves)
    for condition, other in alternatives:
        for place, leaf in enumerate(jax.tree.leaves(other)):
            if leaf is not leaves[place]:
                chosen[place] = jnp.where(condition, leaf, chosen[place])
    return jax.tree.unflatten(structure, chosen)


def change_player(play: Play, **values: Any) -> Play:
    return play._replace(state=play.state._replace(player=play.state.player._replace(**values)))


def change_game(play: Play, **values: Any) -> Play:
    return play._replace(state=play.state._replace(**values))


def hit(play: Play, targets: Array, damage: Array | int) -> Play:
    """Takes hp from enemies; those left with none are removed as kills, the others are stunned."""
    enemies = play.state.enemies
    hp = jnp.where(targets, jnp.maximum(enemies.hp - damage, 0), enemies.hp)
    dead = targets & (hp == 0)
    hurt = enemies.change(hp=hp, alive=enemies.alive & ~dead, stunned=enemies.stunned | (targets & ~dead))
    return change_game(play, enemies=hurt)._replace(kills=play.kills + jnp.sum(dead & ~enemies.scheduled))


def remove_transmissions(play: Play, cells: Array) -> Play:
    """Removes those on the cells of `bool[36]`, as kills."""
    trans = play.state.transmissions
    gone = trans.present & cells
    left = trans.change(present=trans.present & ~cells)
    return change_game(play, transmissions=left)._replace(kills=play.kills + jnp.sum(gone & ~trans.scheduled))
