"""The 23 programs: a table of what each costs, when it may be run, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from rollax.envs.hackmatrix import board
from rollax.envs.hackmatrix.play import Play, Sight, change_game, change_player, hit, remove_transmissions
from rollax.envs.hackmatrix.state import (
    DAEMON,
    EMPTY,
    LAST_STAGE,
    MAX_ENEMIES,
    MAX_HP,
    VIRUS,
    earliest,
    max_hp,
    pop,
)
from rollax.types import Array

Condition = Callable[[Sight], Array]
Effect = Callable[[Play, Sight, Array], Play]  # of the state after paying, as seen, with random words


class Program(NamedTuple):
    name: str
    credits: int
    energy: int
    spawn: int  # transmissions that the siphoning of a generated block with it brings
    condition: Condition
    effect: Effect


# -- conditions


def always(sight: Sight) -> Array:
    return jnp.bool_(True)


def enemy_exists(sight: Sight) -> Array:
    return jnp.any(sight.state.enemies.alive)


def transmission_exists(sight: Sight) -> Array:
    return jnp.any(sight.state.transmissions.present)


def anything_around(sight: Sight) -> Array:
    return (sight.around & (sight.blocks | sight.enemies | sight.transmissions)).any()


def reducible(sight: Sight) -> Array:
    """The blocks whose spawn count REDUC lowers: `bool[36]`."""
    grid = sight.state.grid
    return grid.blocks & ~grid.siphoned & (grid.spawn > 0)


# -- effects


def shove(sign: int) -> Effect:
    """PUSH (1) and PULL (-1): every enemy one cell away from the player, or nearer."""

    def effect(play: Play, sight: Sight, bits: Array) -> Play:
        enemies, player = play.state.enemies, play.state.player.cell
        row, col = board.row_of(enemies.cell), board.col_of(enemies.cell)
        down = sign * jnp.sign(row - board.row_of(player))
        across = sign * jnp.sign(col - board.col_of(player))
        codes = []
        # The diagonal first, then the row, then the column: of equally good ones the earlier counts.
        offers = ((down, across, True), (down, 0 * across, down != 0), (0 * down, across, across != 0))
        for rank, (dr, dc, offered) in enumerate(offers):
            r, c = row + dr, col + dc
            cell = board.SIZE * r + c
            inside = (r >= 0) & (r < board.SIZE) & (c >= 0) & (c < board.SIZE)
            allowed = offered & inside & ((cell != player) | (sign > 0))
            value = sign * board.manhattan(cell, player) + 2 * board.SIZE
            codes.append(jnp.where(allowed & enemies.alive, (4 * value + 2 - rank) * 64 + cell, -1))
        best = jnp.max(jnp.stack(codes), axis=0)
        movable, choice = best >= 0, best % 64
        place = jnp.arange(MAX_ENEMIES)
        earlier = (place[None, :] < place[:, None]) & movable[None, :] & (choice[None, :] == choice[:, None])
        moves = movable & ~jnp.any(earlier, axis=1)
        return change_game(play, enemies=enemies.change(cell=jnp.where(moves, choice, enemies.cell)))

    return effect


def crash(play: Play, sight: Sight, bits: Array) -> Play:
    """Clears the eight neighbours; a cell of several enemies is one kill, or none if its first was scheduled."""
    enemies, cells = play.state.enemies, sight.around
    gone = sight.enemies_on(cells)
    kills = jnp.sum(gone & earliest(enemies) & ~enemies.scheduled)
    grid = play.state.grid
    content = jnp.where(cells.flags() & grid.blocks, EMPTY, grid.content)
    play = change_game(play, enemies=enemies.change(alive=enemies.alive & ~gone), grid=grid.change(content=content))
    return remove_transmissions(play._replace(kills=play.kills + kills), cells.flags())


def warp(play: Play, sight: Sight, bits: Array) -> Play:
    """Onto an enemy or a transmission, each with the same chance, which is gone then."""
    enemies, trans = play.state.enemies, play.state.transmissions
    count = jnp.sum(enemies.alive)
    total = count + jnp.sum(trans.present)
    drawn = (bits[0] % jnp.maximum(total, 1).astype(jnp.uint32)).astype(jnp.int32)
    at_enemy = enemies.alive & (board.number_before(enemies.alive) == drawn)
    at_trans = trans.present & (board.number_before(trans.present) == drawn - count)
    onto_enemy = drawn < count
    cell = jnp.where(
        onto_enemy,
        jnp.sum(jnp.where(at_enemy, enemies.cell, 0)),
        jnp.sum(jnp.where(at_trans, jnp.arange(board.CELLS), 0)),
    )
    gone = enemies.alive & (enemies.cell == cell) & onto_enemy
    kills = jnp.sum(gone & earliest(enemies) & ~enemies.scheduled)
    play = change_game(play, enemies=enemies.change(alive=enemies.alive & ~gone))
    play = remove_transmissions(play._replace(kills=play.kills + kills), at_trans & ~onto_enemy)
    return change_player(play, cell=cell)._replace(at_exit=cell == play.state.exit)


def poly(play: Play, sight: Sight, bits: Array) -> Play:
    """Every enemy becomes one of the other three types and keeps the hp that it has lost."""
    enemies = play.state.enemies
    turned = (1 + bits[:MAX_ENEMIES] % 3).astype(jnp.int32)
    kind = (enemies.kind + turned) % 4
    hp = max_hp(kind) - (max_hp(enemies.kind) - enemies.hp)
    dead = enemies.alive & (hp <= 0)
    changed = enemies.change(kind=kind, hp=jnp.maximum(hp, 0), alive=enemies.alive & ~dead)
    return change_game(play, enemies=changed)._replace(kills=play.kills + jnp.sum(dead & ~enemies.scheduled))


def hitting(targets: Callable[[Sight], Array], damage: int = 0) -> Effect:
    """Hits enemies, with the player's attack where no damage is named."""
    return lambda play, sight, bits: hit(play, targets(sight), damage or play.state.player.attack)


def daemon_bomb(play: Play, sight: Sight, bits: Array) -> Play:
    """Removes the nearest daemon, the earliest of equals, and hits what stands around it with 1."""
    enemies = play.state.enemies
    far = jnp.where(sight.enemies_of(DAEMON), board.manhattan(enemies.cell, play.state.player.cell), 99)
    bomb = board.first(sight.enemies_of(DAEMON) & (far == jnp.min(far)))
    cell = jnp.sum(jnp.where(bomb, enemies.cell, 0))
    splashed = sight.enemies_on(board.cell_set(cell).around())
    play = hit(play, splashed, 1)
    enemies = play.state.enemies
    play = change_game(play, enemies=enemies.change(alive=enemies.alive & ~bomb))
    return play._replace(kills=play.kills + jnp.sum(bomb & ~enemies.scheduled))


def player_gains(**amounts: int) -> Effect:
    def effect(play: Play, sight: Sight, bits: Array) -> Play:
        player = play.state.player
        return change_player(play, **{name: getattr(player, name) + more for name, more in amounts.items()})

    return effect


def switch_on(flag: str) -> Effect:
    return lambda play, sight, bits: change_game(play, **{flag: jnp.bool_(True)})


def reset_hp(play: Play, sight: Sight, bits: Array) -> Play:
    wasted = play.state.player.hp == MAX_HP - 1
    return change_player(play, hp=jnp.int32(MAX_HP))._replace(wasted=wasted)


def delay(play: Play, sight: Sight, bits: Array) -> Play:
    trans = play.state.transmissions
    return change_game(play, transmissions=trans.change(turns=trans.turns + 3))


def raise_score(play: Play, sight: Sight, bits: Array) -> Play:
    return change_player(play, score=play.state.player.score + LAST_STAGE - play.state.stage)


def reduce_spawns(play: Play, sight: Sight, bits: Array) -> Play:
    grid = play.state.grid
    return change_game(play, grid=grid.change(spawn=grid.spawn - reducible(sight)))


def stronger_attack(play: Play, sight: Sight, bits: Array) -> Play:
    play = change_player(play, attack=play.state.player.attack + 1)
    return change_game(play, attack_uses=play.state.attack_uses + 1)


def undo(play: Play, sight: Sight, bits: Array) -> Play:
    return play._replace(state=pop(play.state))


def nothing(play: Play, sight: Sight, bits: Array) -> Play:
    return play


def on_blocks(sight: Sight) -> Array:
    return sight.enemies_on(sight.blocks)


def on_siphoned(sight: Sight) -> Array:
    return sight.enemies_on(sight.siphoned)


PROGRAMS = (
    Program("push", 0, 2, 4, enemy_exists, shove(1)),
    Program("pull", 0, 2, 4, enemy_exists, shove(-1)),
    Program("crash", 3, 2, 6, anything_around, crash),
    Program("warp", 2, 2, 5, lambda s: enemy_exists(s) | transmission_exists(s), warp),
    Program("poly", 1, 1, 3, enemy_exists, poly),
    Program("wait", 0, 1, 1, always, nothing),
    Program("debug", 3, 0, 4, lambda s: jnp.any(on_blocks(s)), hitting(on_blocks)),
    Program("row", 3, 1, 2, lambda s: jnp.any(s.in_row), hitting(lambda s: s.in_row)),
    Program("col", 3, 1, 2, lambda s: jnp.any(s.in_column), hitting(lambda s: s.in_column)),
    Program("undo", 1, 0, 3, lambda s: s.state.history.count > 0, undo),
    Program("step", 0, 3, 4, always, switch_on("step")),
    Program("siph+", 5, 0, 7, always, player_gains(siphons=1)),
    Program("exch", 4, 0, 3, always, player_gains(energy=4)),
    Program("show", 2, 0, 2, lambda s: ~s.state.show, switch_on("show")),
    Program("reset", 0, 4, 2, lambda s: s.state.player.hp < MAX_HP, reset_hp),
    Program("calm", 2, 4, 6, lambda s: ~s.state.calm, switch_on("calm")),
    Program("d_bom", 3, 0, 4, lambda s: jnp.any(s.enemies_of(DAEMON)), daemon_bomb),
    Program("delay", 1, 2, 4, transmission_exists, delay),
    Program("anti-v", 3, 0, 4, lambda s: jnp.any(s.enemies_of(VIRUS)), hitting(lambda s: s.enemies_of(VIRUS), 1)),
    Program("score", 0, 5, 5, lambda s: s.state.stage < LAST_STAGE, raise_score),
    Program("reduc", 2, 1, 3, lambda s: jnp.any(reducible(s)), reduce_spawns),
    Program("atk+", 4, 4, 8, lambda s: s.state.attack_uses < 2, stronger_attack),
    Program("hack", 2, 2, 4, lambda s: s.siphoned.any(), hitting(on_siphoned)),
)
WAIT = next(index for index, program in enumerate(PROGRAMS) if program.name == "wait")


def run(play: Play, sight: Sight, index: int, bits: Array) -> Play:
    """Pays for a program and does what it does."""
    program, player = PROGRAMS[index], play.state.player
    if program.credits:
        play = change_player(play, credits=player.credits - program.credits)
    if program.energy:
        play = change_player(play, energy=play.state.player.energy - program.energy)
    return program.effect(play, sight, bits)


def runnable(sight: Sight) -> Array:
    """Which programs may be run: `bool[23]`."""
    player, places = sight.state.player, jnp.arange(len(PROGRAMS), dtype=jnp.uint32)
    owned = (sight.state.owned >> places) & 1 == 1
    credits_, energy = (jnp.array([getattr(p, name) for p in PROGRAMS]) for name in ("credits", "energy"))
    affordable = (player.credits >= credits_) & (player.energy >= energy)
    return owned & affordable & jnp.stack([program.condition(sight) for program in PROGRAMS])
