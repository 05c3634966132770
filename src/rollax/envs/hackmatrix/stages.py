"""New games, the boards that stages begin with, and what completing a stage does."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.envs.hackmatrix import board
from rollax.envs.hackmatrix.board import CELLS, CORNERS, Cells
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.state import (
    BLOCK,
    EMPTY,
    EXIT,
    LAST_STAGE,
    MAX_HP,
    NO_PROGRAM,
    NUM_PROGRAMS,
    PICKUP,
    Enemies,
    Grid,
    History,
    Player,
    State,
    Transmissions,
    empty_grid,
    no_enemies,
    no_transmissions,
    pick,
)
from rollax.envs.hackmatrix.turns import Scene, no_spawns, random_order, spawn
from rollax.types import Array, Key

FEWEST_BLOCKS, MOST_BLOCKS = 5, 11
TRIES_AT_ONCE, ROUNDS = 25, 4  # a hundred placements of the blocks are tried
FIRST_INTERVAL = 12


class Beginning(NamedTuple):
    """What is new in a stage: its board, its exit, and the transmissions with those that came along."""

    grid: Grid
    exit: Array
    transmissions: Transmissions


def new_game(bits: Array, history: History) -> State:
    """A game before its first stage is set up, from two random words."""
    corner = pick_one(CORNERS, bits[0] % 4)
    bonus = bits[1] % 3
    none = jnp.int32(0)
    player = Player(
        cell=corner,
        hp=jnp.int32(MAX_HP),
        # Of one type, as after a step: a weakly typed number would compile the step a second time.
        credits=jnp.where(bonus == 0, jnp.int32(10), none),
        energy=jnp.where(bonus == 1, jnp.int32(11), none),
        siphons=jnp.where(bonus == 2, jnp.int32(1), none),
        attack=jnp.int32(1),
        score=none,
    )
    no = jnp.bool_(False)
    return State(
        player=player,
        grid=empty_grid(),
        enemies=no_enemies(),
        transmissions=no_transmissions(),
        owned=jnp.uint32(0),
        stage=jnp.int32(1),
        turn=none,
        exit=none,
        show=no,
        calm=no,
        step=no,
        attack_uses=none,
        interval=jnp.int32(FIRST_INTERVAL),
        next_task=none,
        pending=none,
        dropped=none,
        history=history._replace(count=none, head=none, dropped=none),
    )


def complete(state: State) -> State:
    """The player heals, and the next stage has its number; its board is not set up yet.  Stage 8 stays 8."""
    stage = jnp.minimum(state.stage + 1, LAST_STAGE)
    won = state.stage == LAST_STAGE
    healed = state.player._replace(hp=jnp.minimum(state.player.hp + 1, MAX_HP))
    return state._replace(player=healed, stage=stage, interval=jnp.where(won, state.interval, 13 - stage))


def set_up(state: State, key: Key, wanted: Array) -> State:
    """The state at the beginning of its stage, if wanted; enemies, transmissions and the player stay."""
    no = jnp.bool_(False)
    begun = state._replace(
        turn=jnp.int32(0), next_task=state.interval, show=no, calm=no, step=no, attack_uses=jnp.int32(0)
    )
    # Nothing else of a state is read, and least of all its history.
    drawn = draw_where_wanted(wanted, key, state.player.cell, state.stage, state.enemies, state.transmissions)
    return pick(wanted, begun._replace(**drawn._asdict()), state)


@jax.custom_batching.custom_vmap
def draw_where_wanted(
    wanted: Array, key: Key, player: Array, stage: Array, enemies: Enemies, transmissions: Transmissions
) -> Beginning:
    """A stage's beginning; anything where it is not wanted."""
    return draw(key, player, stage, enemies, transmissions)


@draw_where_wanted.def_vmap
def _draw_few(axis_size: int, batched: Any, wanted: Array, *arguments: Any) -> tuple[Beginning, Any]:
    """Of many games few begin a stage at the same time: only those are drawn, some at a time."""
    lanes = min(axis_size, 4 + axis_size // 16)

    def whole(value: Array, is_batched: bool) -> Array:
        return value if is_batched else jnp.broadcast_to(value, (axis_size, *value.shape))

    wanted = whole(wanted, batched[0])
    inputs = jax.tree.map(whole, arguments, tuple(batched[1:]))
    shapes = jax.eval_shape(jax.vmap(draw), *inputs)

    def some(carry: tuple[Array, Beginning]) -> tuple[Array, Beginning]:
        left, drawn = carry
        _, rows = jax.lax.top_k(left.astype(jnp.int32), lanes)
        new = jax.vmap(draw)(*jax.tree.map(lambda x: x[rows], inputs))
        real = left[rows]
        place = jnp.where(real, rows, axis_size)
        drawn = jax.tree.map(lambda all_, some_: all_.at[place].set(some_, mode="drop"), drawn, new)
        return left.at[place].set(False, mode="drop"), drawn

    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    _, drawn = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), some, (wanted, empty))
    return drawn, jax.tree.map(lambda _: True, drawn)


def draw(key: Key, player: Array, stage: Array, enemies: Enemies, transmissions: Transmissions) -> Beginning:
    """A stage's random board and first transmissions."""
    board_key, spawn_key = jax.random.split(key)
    there = board.set_of_places(enemies.cell, enemies.alive)
    coming = board.set_of_flags(transmissions.present)
    grid, exit_cell = draw_board(board_key, player, there | coming)
    spawns = no_spawns()._replace(plain=stage)
    scene = Scene(board.cell_set(player), there, coming, board.set_of_flags(grid.blocks))
    return Beginning(grid, exit_cell, spawn(transmissions, scene, spawns, jax.random.bits(spawn_key, (CELLS,))))


def draw_board(key: Key, player: Array, taken: Cells) -> tuple[Grid, Array]:
    """A random board for a player on that cell, and its exit; no block goes to cells that are taken."""
    key, place_key = jax.random.split(key)
    corner_bits, number, cell_bits, deal_bits, amount_bits = jnp.split(
        jax.random.bits(key, (5 + 2 * CELLS + NUM_PROGRAMS,)),
        [4, 5, 5 + CELLS, 5 + CELLS + NUM_PROGRAMS],
    )
    corners = jnp.array(CORNERS)
    place = jnp.where(corners == player, 99, random_order(corners != player, corner_bits))
    exit_cell = jnp.sum(jnp.where(place == 0, corners, 0))
    at_corner = jnp.arange(CELLS)[:, None] == corners[None, :]
    stands = jnp.where(place == 0, EXIT, jnp.where(place < 3, PICKUP, EMPTY))
    content = jnp.sum(jnp.where(at_corner, stands, 0), axis=1)

    count = FEWEST_BLOCKS + (number[0] % (MOST_BLOCKS - FEWEST_BLOCKS + 1)).astype(jnp.int32)
    blocks = place_blocks(place_key, count, exit_cell, taken).flags()
    content = jnp.where(blocks, BLOCK, content)

    half, tenth, nine = cell_bits & 1, (cell_bits >> 1) % 1000 < 100, (cell_bits >> 11) % 9
    holds_program = blocks & (half == 1)
    # Programs are dealt like cards: no two blocks of a stage hold the same.
    deal = random_order(jnp.ones(NUM_PROGRAMS, bool), deal_bits)
    turn_of = board.number_before(holds_program)
    dealt = jnp.sum(jnp.where(deal[None, :] == turn_of[:, None], jnp.arange(NUM_PROGRAMS)[None, :], 0), axis=1)
    program = jnp.where(holds_program, dealt, NO_PROGRAM)
    points = jnp.where(blocks & ~holds_program, 1 + nine.astype(jnp.int32), 0)
    of_program = jnp.array([p.spawn for p in PROGRAMS])
    price = jnp.sum(jnp.where(program[:, None] == jnp.arange(NUM_PROGRAMS)[None, :], of_program[None, :], 0), axis=1)

    share = (amount_bits >> 1) % 100
    amount = jnp.where(share < 45, 1, jnp.where(share < 90, 2, 3)) * ((content == EMPTY) | (content == PICKUP))
    as_credits = amount_bits & 1 == 1
    no = jnp.zeros(CELLS, bool)
    grid = Grid.pack(
        content=content,
        question=blocks & tenth,
        siphoned=no,
        centre=no,
        program=program,
        points=points,
        spawn=jnp.where(holds_program, price, points),
        credits=jnp.where(as_credits, amount, 0),
        energy=jnp.where(as_credits, 0, amount),
    )
    return grid, exit_cell


def place_blocks(key: Key, count: Array, exit_cell: Array, taken: Cells) -> Cells:
    """So many cells with no corner and none taken among them, uniform over the acceptable sets.

    Draws again until one is acceptable; after a hundred draws the stage has no blocks.
    """
    corners = Cells(*(board.word(half) for half in _corner_words()))
    allowed = ~(corners | taken)
    exit_set = board.cell_set(exit_cell)

    def one_round(carry: tuple[Array, Array, Cells]) -> tuple[Array, Array, Cells]:
        number, _, _ = carry
        words = jax.random.bits(jax.random.fold_in(key, number), (MOST_BLOCKS, TRIES_AT_ONCE))
        free = Cells(*(jnp.broadcast_to(half, (TRIES_AT_ONCE,)) for half in allowed))

        def pick_block(number: Array, sets: tuple[Cells, Cells]) -> tuple[Cells, Cells]:
            blocks, free = sets
            left = free.size()
            drawn = (words[number] % jnp.maximum(left, 1).astype(jnp.uint32)).astype(jnp.int32)
            one = board.where((number < count) & (left > 0), board.nth(free, drawn), board.nowhere())
            return blocks | one, free & ~one

        none = Cells(*(jnp.zeros_like(half) for half in free))
        blocks, _ = jax.lax.fori_loop(0, MOST_BLOCKS, pick_block, (none, free))
        good = acceptable(blocks, exit_set)
        chosen = Cells(*(jnp.sum(jnp.where(board.first(good), half, 0), dtype=jnp.uint32) for half in blocks))
        return number + 1, jnp.any(good), chosen

    start = (jnp.int32(0), jnp.bool_(False), board.nowhere())
    _, _, blocks = jax.lax.while_loop(lambda carry: ~carry[1] & (carry[0] < ROUNDS), one_round, start)
    return blocks


def acceptable(blocks: Cells, exit_set: Cells) -> Array:
    """Whether all free cells are joined without crossing the exit, and every block can be reached from beside."""
    start, free = board.cell_set(jnp.int32(0)), ~blocks
    joined = board.reach(start, free & ~exit_set)
    joined = joined | (joined.adjacent() & exit_set)
    return free.within(joined) & blocks.within(free.adjacent())


def pick_one(options: tuple[int, ...], number: Array) -> Array:
    return sum((jnp.where(number == place, option, 0) for place, option in enumerate(options)), jnp.int32(0))


def _corner_words() -> tuple[int, int]:
    low = sum(1 << cell for cell in CORNERS if cell < board.HALF)
    high = sum(1 << (cell - board.HALF) for cell in CORNERS if cell >= board.HALF)
    return low, high
