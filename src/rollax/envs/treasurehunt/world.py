"""The rules: who stands where, what appears, what is seen, and what a move does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.types import Array

EMPTY, WALL, GEM, BONE, FOOD, PLAYER = range(6)  # what can be on a cell
NUM_KINDS = 6
UP, DOWN, LEFT, RIGHT = range(4)
UNROLLED = 8  # players, at most, whose moves are compiled one by one


class World(NamedTuple):
    """One board."""

    top: Array  # int8[H, W]: a kind for each cell; row 0 is the highest
    position: Array  # int32[players]: the cell of each, rows one after the other


@dataclass(frozen=True)
class Rules:
    """What does not change while a game is played.  All methods are pure."""

    height: int
    width: int
    players: int
    radius: int  # how far a player sees, in cells
    spawn_prob: float
    treasures: tuple[int, ...]  # the kinds that appear, each as often as the others
    values: tuple[float, ...]  # of each kind, to who steps on it or against it
    channel: tuple[int, ...]  # of each kind in an observation; channel 0, of what is empty, stays blank
    num_channels: int
    sand: int  # the channel of free ground, which is seen under everything; 0 where it is not shown
    walls_on_ground: bool  # the border is seen twice: on the ground as well

    @property
    def side(self) -> int:
        """Cells across what a player sees."""
        return 2 * self.radius + 1

    @property
    def observation_size(self) -> int:
        return self.num_channels * self.side**2

    @cached_property
    def border(self) -> np.ndarray:
        """Where the wall is: `bool[H, W]`."""
        inside = np.zeros((self.height, self.width), bool)
        inside[1:-1, 1:-1] = True
        return ~inside

    @cached_property
    def codes(self) -> np.ndarray:
        """What each kind adds to the channels: `[kinds, channels]`."""
        codes = np.zeros((NUM_KINDS, self.num_channels), np.float32)
        for kind in range(1, NUM_KINDS):
            codes[kind, self.channel[kind]] = 1.0
        return codes

    @cached_property
    def ground(self) -> np.ndarray:
        """What the ground adds to the channels, everywhere and always: `[H, W, channels]`."""
        seen = np.zeros((self.height, self.width, self.num_channels), np.float32)
        if self.walls_on_ground:
            seen[self.border] += self.codes[WALL]
        if self.sand:
            seen[~self.border, self.sand] += 1.0
        return seen

    @property
    def num_free(self) -> int:
        return (self.height - 2) * (self.width - 2)

    def start(self, lots: Array) -> World:
        """A new board without a treasure: the highest of uniform numbers `[num_free]` say where the players stand."""
        free = np.flatnonzero(~self.border)
        position = jnp.asarray(free, jnp.int32)[jax.lax.top_k(lots, self.players)[1]]
        top = jnp.where(jnp.asarray(self.border), WALL, EMPTY).astype(jnp.int8)
        return World(top.reshape(-1).at[position].set(PLAYER).reshape(top.shape), position)

    def spawn(self, world: World, lots: Array) -> World:
        """The board after each empty cell had its chance to hold a treasure: uniform numbers `[H, W]` say where."""
        drawn = lots / self.spawn_prob  # below 1 with the chance that is asked for
        kind = jnp.asarray(self.treasures, jnp.int8)[
            jnp.minimum((drawn * len(self.treasures)).astype(jnp.int32), len(self.treasures) - 1)
        ]
        return world._replace(top=jnp.where((world.top == EMPTY) & (drawn < 1), kind, world.top))

    def observe(self, world: World) -> Array:
        """What each player sees: `float32[players, channels * side * side]`."""
        return jax.vmap(lambda player: self.observe_one(world, player))(jnp.arange(self.players))

    def observe_one(self, world: World, player: Array | int) -> Array:
        """What one player sees, both layers of the board added up; all that is outside is one wall high."""
        top = jnp.pad(world.top, self.radius, constant_values=WALL)
        ground = jnp.pad(jnp.asarray(self.ground), [(self.radius, self.radius)] * 2 + [(0, 0)])
        corner = (world.position[player] // self.width, world.position[player] % self.width)
        kinds = jax.lax.dynamic_slice(top, corner, (self.side, self.side))
        below = jax.lax.dynamic_slice(ground, (*corner, 0), (self.side, self.side, self.num_channels))
        seen = jnp.asarray(self.codes)[kinds.astype(jnp.int32)] + below
        return jnp.moveaxis(seen, -1, 0).reshape(-1)

    def move(self, world: World, player: Array | int, action: Array) -> tuple[World, Array]:
        """One player's move, and the value of what is on the cell that it wanted to go to."""
        here, flat = world.position[player], world.top.reshape(-1)
        there = here + self.steps[action]
        found = flat[there]
        reward = self.value(found)
        free = (found != WALL) & (found != PLAYER)
        there = jnp.where(free, there, here)
        flat = flat.at[here].set(EMPTY).at[there].set(PLAYER)
        return World(flat.reshape(world.top.shape), world.position.at[player].set(there)), reward

    def move_all(self, world: World, actions: Array, order: Array | None = None) -> tuple[World, Array]:
        """All players' moves, one after the other, in that order if there is one: rewards `[players]`.

        As `move` for each in turn.  Only where the players stand depends on the moves before, so the board itself is
        looked at once and changed once.
        """
        here = world.position
        there = here + self.steps[actions]
        turn = jnp.arange(self.players) if order is None else order
        flat = world.top.reshape(-1)
        found = flat[there]

        def step(place: Array, player: Array) -> tuple[Array, Array]:
            taken = jnp.any(place == there[player])
            free = ~taken & (found[player] != WALL)
            return jnp.where((jnp.arange(self.players) == player) & free, there, place), taken

        place, taken = jax.lax.scan(step, here, turn, unroll=self.players <= UNROLLED)
        blocked = jnp.zeros(self.players, bool).at[turn].set(taken)
        # What stood there at first as a player has gone when it is entered: it is worth as little as an empty cell.
        reward = jnp.where(blocked, self.value(PLAYER), self.value(found))
        cell = jnp.arange(flat.size)[:, None]
        flat = jnp.where(jnp.any(cell == here, axis=1), EMPTY, flat)
        flat = jnp.where(jnp.any(cell == place, axis=1), PLAYER, flat).astype(jnp.int8)
        return World(flat.reshape(world.top.shape), place), reward

    @property
    def steps(self) -> Array:
        """How far each action goes, in cells."""
        return jnp.asarray([-self.width, self.width, -1, 1], jnp.int32)

    def value(self, kind: Array | int) -> Array:
        return jnp.asarray(self.values, jnp.float32)[jnp.asarray(kind, jnp.int32)]
