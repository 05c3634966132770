"""The 6 x 6 board as bits: sets of cells, their neighbours, and how far apart cells are.

A set of cells is two words of 18 bits, rows 0 to 2 and rows 3 to 5, so that what a rule says of a whole board is a few
operations on numbers, and a thousand games are a thousand numbers.  Cell `6 * row + col` is bit `cell`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.types import Array

SIZE, CELLS, HALF = 6, 36, 18
CORNERS = (0, 5, 30, 35)
UP, DOWN, LEFT, RIGHT = range(4)  # the order in which ties are broken, everywhere
ROW_STEP, COL_STEP = (1, -1, 0, 0), (0, 0, -1, 1)
# A shortest walk has no short cuts, and no walk without short cuts on 6 x 6 cells has more than 24 of them.
LONGEST_WALK = 23

_ALL = (1 << HALF) - 1
_FIRST_COLUMN = sum(1 << (SIZE * row) for row in range(3))
_LAST_COLUMN = _FIRST_COLUMN << (SIZE - 1)


def word(number: int) -> Array:
    return jnp.uint32(number)


class Cells(NamedTuple):
    """A set of cells."""

    low: Array  # uint32, rows 0 to 2
    high: Array  # uint32, rows 3 to 5

    def __and__(self, other: Cells) -> Cells:
        return Cells(self.low & other.low, self.high & other.high)

    def __or__(self, other: Cells) -> Cells:
        return Cells(self.low | other.low, self.high | other.high)

    def __invert__(self) -> Cells:
        return Cells(self.low ^ word(_ALL), self.high ^ word(_ALL))

    def any(self) -> Array:
        return (self.low | self.high) != 0

    def size(self) -> Array:
        return (jax.lax.population_count(self.low) + jax.lax.population_count(self.high)).astype(jnp.int32)

    def has(self, cell: Array) -> Array:
        """Whether a cell is in the set; cells may be an array."""
        half = jnp.where(cell < HALF, self.low, self.high)
        return (half >> (cell % HALF).astype(jnp.uint32)) & 1 == 1

    def within(self, other: Cells) -> Array:
        """Whether every cell of this set is in the other."""
        return ~(self & ~other).any()

    def flags(self) -> Array:
        """The set as `bool[36]`."""
        places = jnp.arange(HALF, dtype=jnp.uint32)
        return jnp.concatenate([(self.low >> places) & 1, (self.high >> places) & 1]) == 1

    def shift(self, direction: int) -> Cells:
        """Every cell's neighbour in a direction; what leaves the board is gone."""
        low, high, row = self.low, self.high, word(SIZE)
        if direction == UP:
            return Cells((low << row) & word(_ALL), ((high << row) & word(_ALL)) | (low >> word(HALF - SIZE)))
        if direction == DOWN:
            return Cells((low >> row) | ((high << word(HALF - SIZE)) & word(_ALL)), high >> row)
        if direction == LEFT:
            keep = word(_ALL ^ _FIRST_COLUMN)
            return Cells((low & keep) >> word(1), (high & keep) >> word(1))
        keep = word(_ALL ^ _LAST_COLUMN)
        return Cells((low & keep) << word(1), (high & keep) << word(1))

    def adjacent(self) -> Cells:
        """All cells next to one of the set, in the four directions."""
        return self.shift(UP) | self.shift(DOWN) | self.shift(LEFT) | self.shift(RIGHT)

    def cross(self) -> Cells:
        return self | self.adjacent()

    def around(self) -> Cells:
        """The eight neighbours of a single cell."""
        sides = self.shift(LEFT) | self.shift(RIGHT)
        rows = sides | self
        return sides | rows.shift(UP) | rows.shift(DOWN)


def where(condition: Array, one: Cells, other: Cells) -> Cells:
    return Cells(jnp.where(condition, one.low, other.low), jnp.where(condition, one.high, other.high))


def everywhere() -> Cells:
    return Cells(word(_ALL), word(_ALL))


def nowhere() -> Cells:
    return Cells(word(0), word(0))


def cell_set(cell: Array) -> Cells:
    """The set of that one cell."""
    bit = word(1) << (cell % HALF).astype(jnp.uint32)
    return Cells(jnp.where(cell < HALF, bit, word(0)), jnp.where(cell < HALF, word(0), bit))


def set_of_flags(flags: Array) -> Cells:
    """The cells whose flag in `bool[36]` is set."""
    bits = word(1) << jnp.arange(HALF, dtype=jnp.uint32)
    halves = jnp.where(flags.reshape(2, HALF), bits, word(0)).sum(axis=1, dtype=jnp.uint32)
    return Cells(halves[0], halves[1])


def set_of_places(cells: Array, present: Array) -> Cells:
    """The cells where one of the present things stands."""
    one = cell_set(cells)
    low, high = (jax.lax.reduce(jnp.where(present, half, word(0)), word(0), jax.lax.bitwise_or, (0,)) for half in one)
    return Cells(low, high)


def first(flags: Array) -> Array:
    """The first of the flags that are set, alone."""
    return (jnp.arange(len(flags)) == jnp.argmax(flags)) & flags


def number_before(flags: Array) -> Array:
    """For each place, how many of the flags before it are set."""
    place = jnp.arange(len(flags))
    return jnp.sum((place[None, :] < place[:, None]) & flags[None, :], axis=1)


def row_of(cell: Array) -> Array:
    return cell // SIZE


def col_of(cell: Array) -> Array:
    return cell % SIZE


def manhattan(one: Array, other: Array) -> Array:
    return jnp.abs(row_of(one) - row_of(other)) + jnp.abs(col_of(one) - col_of(other))


@jax.jit
def first_neighbour(cell: Array, wanted: Cells) -> Array:
    """The first wanted cell next to a cell, in the order of directions; the cell itself if there is none."""
    here, found = cell_set(cell), cell
    for direction in (RIGHT, LEFT, DOWN, UP):
        step = SIZE * ROW_STEP[direction] + COL_STEP[direction]
        found = jnp.where((here.shift(direction) & wanted).any(), cell + step, found)
    return found


@jax.jit
def walk(start: Cells, passable: Cells, goal: Cells) -> tuple[Array, Cells]:
    """How far the nearest goals are from the start, and which they are.

    Steps go in four directions onto passable cells.  Without a way the distance is 0 and the set is empty.
    """
    reached, found, steps = start, start & goal, jnp.int32(0)
    for _ in range(LONGEST_WALK):
        searching = ~found.any()
        reached = reached | (reached.adjacent() & passable)
        found = where(searching, reached & goal, found)
        steps = steps + searching
    return jnp.where(found.any(), steps, 0), found


@jax.jit
def reach(start: Cells, passable: Cells) -> Cells:
    """The start and every cell that can be walked to from there."""
    for _ in range(LONGEST_WALK):
        start = start | (start.adjacent() & passable)
    return start


@jax.jit
def nth(cells: Cells, number: Array) -> Cells:
    """The set of only the cell that has so many of the others before it."""
    below = jax.lax.population_count(cells.low).astype(jnp.int32)
    in_low = number < below
    left = jnp.where(in_low, number, number - below)
    half, place = jnp.where(in_low, cells.low, cells.high), jnp.zeros_like(number, jnp.uint32)
    for width in (16, 8, 4, 2, 1):
        part = (half >> place) & word((1 << width) - 1)
        count = jax.lax.population_count(part).astype(jnp.int32)
        beyond = left >= count
        place = jnp.where(beyond, place + width, place)
        left = jnp.where(beyond, left - count, left)
    bit = word(1) << jnp.minimum(place, HALF)
    return Cells(jnp.where(in_low, bit, word(0)), jnp.where(in_low, word(0), bit))
