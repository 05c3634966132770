"""What a step is worth."""

from __future__ import annotations

import jax.numpy as jnp

from rollax.envs.hackmatrix import board
from rollax.envs.hackmatrix.play import Play
from rollax.envs.hackmatrix.state import State
from rollax.types import Array


def reward(old: State, play: Play, new: State, completed: Array, won: Array, died: Array) -> Array:
    """The sum of all terms: `old` is before the action, `new` after everything that the step did."""
    before, after = exit_distance(old), exit_distance(new)
    stage_reward = 1 << jnp.maximum(new.stage - 2, 0)  # 1, 2, 4, ... 64 for stages 1 to 7; victory pays 64 as well
    lost = (1 << (new.stage - 1)) - 1  # what all stages before this one paid
    near = board.manhattan(new.enemies.cell, new.player.cell) == 1
    by_siphon = died & (old.player.hp > 0) & jnp.any(new.enemies.alive & new.enemies.from_siphon & near)
    held, had = (state.player.credits + state.player.energy for state in (new, old))
    terms = (
        1.0 * jnp.where(completed, stage_reward, 0),
        0.5 * (new.player.score - old.player.score),
        0.3 * play.kills,
        1.0 * play.picked_up,
        0.05 * jnp.where(completed, before, jnp.where(died, 0, before - after)),
        jnp.where(won, 500.0 + 100.0 * new.player.score, 0.0),
        jnp.where(died, -0.5 * lost, 0.0),
        0.05 * (held - had),
        0.01 * jnp.where(completed, held, 0),
        1.0 * (new.player.hp - old.player.hp),
        0.025 * play.missed,
        -0.3 * play.wasted,
        jnp.where(by_siphon, -10.0, 0.0),
    )
    total = jnp.float32(0)
    for term in terms:
        total = total + term
    return total.astype(jnp.float32)


def exit_distance(state: State) -> Array:
    """Steps from the player to the exit position around blocks; 0 where there is no way."""
    goal = board.cell_set(state.exit)
    return board.walk(board.cell_set(state.player.cell), ~board.set_of_flags(state.grid.blocks) | goal, goal)[0]
