"""The player's own part of a step: walking, shooting and siphoning."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rollax.envs.hackmatrix import board, programs
from rollax.envs.hackmatrix.board import CELLS, SIZE
from rollax.envs.hackmatrix.play import (
    Play,
    Sight,
    begin,
    change_game,
    change_player,
    choose,
    hit,
    remove_transmissions,
)
from rollax.envs.hackmatrix.state import EMPTY, EXIT, NO_PROGRAM, NUM_PROGRAMS, PICKUP, Grid, State
from rollax.types import Array

SIPHON, FIRST_PROGRAM = 4, 5
NUM_ACTIONS = FIRST_PROGRAM + NUM_PROGRAMS
SHORTEST_INTERVAL = 4


def act(state: State, sight: Sight, action: Array, bits: Array) -> Play:
    """The state after the player's part; an action of -1 does nothing."""
    base = begin(state)
    runs = [(action == FIRST_PROGRAM + i, programs.run(base, sight, i, bits)) for i in range(NUM_PROGRAMS)]
    moves = (action >= 0) & (action < SIPHON)
    return choose(base, [(moves, move(base, sight, action)), (action == SIPHON, siphon(base, sight)), *runs])


def ends_turn(action: Array) -> Array:
    return ((action >= 0) & (action <= SIPHON)) | (action == FIRST_PROGRAM + programs.WAIT)


def move(play: Play, sight: Sight, direction: Array) -> Play:
    """Attacks the first thing in that line, whatever stands before the first block; walks if there is none."""
    player, enemies = play.state.player, play.state.enemies
    row_step = (direction == board.UP).astype(jnp.int32) - (direction == board.DOWN)
    col_step = (direction == board.RIGHT).astype(jnp.int32) - (direction == board.LEFT)
    steps = jnp.arange(1, SIZE)
    rows, cols = board.row_of(player.cell) + steps * row_step, board.col_of(player.cell) + steps * col_step
    inside = (rows >= 0) & (rows < SIZE) & (cols >= 0) & (cols < SIZE)
    line = jnp.where(inside, SIZE * rows + cols, player.cell)
    trans, foes = (inside & cells.has(line) for cells in (sight.transmissions, sight.enemies))
    stops = trans | foes | (inside & sight.blocks.has(line))
    first = board.first(stops)
    at_trans, at_foe = jnp.any(first & trans), jnp.any(first & foes & ~trans)
    target = jnp.sum(jnp.where(first, line, 0))
    struck = board.first(enemies.alive & (enemies.cell == target))  # the earliest on that cell
    attacked = hit(play, struck & at_foe, player.attack)
    attacked = remove_transmissions(attacked, (jnp.arange(CELLS) == target) & at_trans)
    return choose(attacked, [(~at_trans & ~at_foe, walk(play, line[0]))])


def walk(play: Play, cell: Array) -> Play:
    grid, here = play.state.grid, jnp.arange(CELLS) == cell
    pickup = jnp.any(here & (grid.content == PICKUP))
    content = jnp.where(here & pickup, EMPTY, grid.content)
    at_exit = jnp.any(here & (grid.content == EXIT))
    play = change_player(play, cell=cell, siphons=play.state.player.siphons + pickup)
    return change_game(play, grid=grid.change(content=content))._replace(picked_up=pickup, at_exit=at_exit)


# -- siphon


def siphon(play: Play, sight: Sight) -> Play:
    """Takes what the five cells of the cross hold, if nobody has yet."""
    state, grid, player = play.state, play.state.grid, play.state.player
    cross = sight.player.cross().flags()
    fresh = cross & ~grid.siphoned
    blocks, free = fresh & grid.blocks, fresh & ~grid.blocks
    data, program = blocks & (grid.program == NO_PROGRAM), blocks & (grid.program != NO_PROGRAM)
    taken = grid.change(
        spawn=jnp.where(blocks, 0, grid.spawn),
        question=grid.question & ~blocks,
        credits=jnp.where(free, 0, grid.credits),
        energy=jnp.where(free, 0, grid.energy),
        siphoned=grid.siphoned | cross,
        centre=grid.centre | sight.player.flags(),
    )
    play = change_player(
        play,
        score=player.score + jnp.sum(jnp.where(data, grid.points, 0)),
        credits=player.credits + jnp.sum(jnp.where(free, grid.credits, 0)),
        energy=player.energy + jnp.sum(jnp.where(free, grid.energy, 0)),
        siphons=player.siphons - 1,
    )
    play = change_game(
        play,
        grid=taken,
        owned=state.owned | program_bits(grid, program),
        pending=state.pending + jnp.sum(jnp.where(blocks, grid.spawn, 0)),
        interval=jnp.maximum(SHORTEST_INTERVAL, state.interval - 1),
        next_task=state.next_task + 5,
    )
    return play._replace(missed=missed_resources(state, sight))


def program_bits(grid: Grid, cells: Array) -> Array:
    """The set of programs on those cells of `bool[36]`."""
    bits = jnp.uint32(1) << jnp.maximum(grid.program, 0).astype(jnp.uint32)
    return jax.lax.reduce(jnp.where(cells, bits, jnp.uint32(0)), jnp.uint32(0), jax.lax.bitwise_or, (0,))


def missed_resources(state: State, sight: Sight) -> Array:
    """Credits and energy beyond this siphon's that another place would have given, for the same points and programs."""
    grid = state.grid
    fresh = ~grid.siphoned
    free, blocks = fresh & ~grid.blocks, fresh & grid.blocks
    data = blocks & (grid.program == NO_PROGRAM)
    new_bits = jnp.uint32(1) << jnp.maximum(grid.program, 0).astype(jnp.uint32)
    new_bits = jnp.where(blocks & (grid.program != NO_PROGRAM), new_bits & ~state.owned, jnp.uint32(0))
    stands = ~grid.blocks  # a cell with a block yields nothing
    credits_ = jnp.where(stands, cross_sum(jnp.where(free, grid.credits, 0)), 0)
    energy = jnp.where(stands, cross_sum(jnp.where(free, grid.energy, 0)), 0)
    count = jnp.where(stands, cross_sum(data.astype(jnp.int32)), 0)
    gained = jnp.where(stands, cross_union(new_bits), jnp.uint32(0))

    here = jnp.arange(CELLS) == state.player.cell

    def own(values: Array) -> Array:
        return jnp.sum(jnp.where(here, values, 0), dtype=values.dtype)

    valuable = (own(count) > 0) | (own(gained) != 0)
    # Where there is something to win, only places that reach all of the same blocks compare: their points are then
    # the same exactly if they are as many.
    wanted = sight.player.cross() & board.set_of_flags(blocks)
    reaches = cross_sum(wanted.flags().astype(jnp.int32)) == wanted.size()
    candidate = stands & (reaches | ~valuable) & (count == own(count)) & (gained == own(gained))
    no_less = (credits_ >= own(credits_)) & (energy >= own(energy))
    better = candidate & no_less & ((credits_ > own(credits_)) | (energy > own(energy)))
    missed = [jnp.max(jnp.where(better, what - own(what), 0)) for what in (credits_, energy)]
    return missed[0] + missed[1]


def neighbourhood(values: Array) -> list[Array]:
    """`[36]` values of each cell and of its neighbours in the four directions, 0 beyond the board."""
    square = jnp.pad(values.reshape(SIZE, SIZE), 1)
    cuts = ((1, 1), (2, 1), (0, 1), (1, 0), (1, 2))
    return [square[row : row + SIZE, col : col + SIZE].reshape(CELLS) for row, col in cuts]


def cross_sum(values: Array) -> Array:
    """For each cell the sum over its cross."""
    return sum(neighbourhood(values)[1:], values)


def cross_union(words: Array) -> Array:
    """For each cell the union of the bits over its cross."""
    first, *others = neighbourhood(words)
    for other in others:
        first = first | other
    return first
