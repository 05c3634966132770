"""HackMatrix against a slow, plain reading of its rules, step by step, and what holds in every game."""

from __future__ import annotations

import copy
import random

import hackmatrix_reference as reference
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import THOROUGH
from hackmatrix_tools import SameDice, disagreements, on_host, random_scenario, row_of, to_reference
from hypothesis import given, settings
from hypothesis import strategies as st

from rollax.envs.hackmatrix import HackMatrix

GAME = HackMatrix()
GAMES = 250
# The plain reading looks at one state in so many; set ROLLAX_THOROUGH=1 for all of them, and for longer play.
EVERY, STEPS, SCENARIOS = (1, 100_000, 15) if THOROUGH else (10, 8_000, 4)


@pytest.fixture(scope="module")
def programs():
    """The vmapped functions, compiled once: a step of every game, and what each shows."""
    fast = {"xla_backend_optimization_level": 3} if THOROUGH else None  # then they run long enough
    step = jax.jit(jax.vmap(GAME.step_without_reset), compiler_options=fast)
    look = jax.jit(jax.vmap(lambda state: (GAME.observe(state), GAME.legal(state))), compiler_options=fast)
    new = jax.jit(jax.vmap(GAME.reset_state))
    return step, look, new


def stack(states):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def replaced(over, new, old):
    """The old states, and new ones in place of those that are over."""
    return jax.tree.map(lambda n, o: jnp.where(jnp.asarray(over).reshape(-1, *[1] * (o.ndim - 1)), n, o), new, old)


def assert_same_sight(game, view, legal):
    """The observation and the mask are what the plain reading of sections 13 and 14 says."""
    player, owned, grid = reference.observe(game)
    np.testing.assert_allclose(view.player, player, atol=1e-6)
    assert view.programs.tolist() == owned
    shown = {tuple(place): float(view.grid[tuple(place)]) for place in np.argwhere(view.grid).tolist()}
    assert shown.keys() == grid.keys()
    assert all(abs(shown[place] - value) < 1e-6 for place, value in grid.items())
    assert legal.tolist() == reference.legal(game)


def compare(programs, states, actions, keys):
    """One step of every game in both ways; returns the host states after it and the flags of those that are over."""
    step, look, _ = programs
    before = on_host(states)
    after, reward, over = step(keys, states, jnp.asarray(actions))
    host, views, legal = on_host(after), *(jax.tree.map(np.asarray, part) for part in look(after))
    for row in range(len(actions)):
        game, new = to_reference(row_of(before, row)), row_of(host, row)
        dice = SameDice(game, keys[row], row_of(before, row), new)
        paid, ended = reference.step(game, int(actions[row]), dice)
        found = disagreements(copy.deepcopy(game), new)
        assert not found, (int(actions[row]), found, to_reference(row_of(before, row)))
        assert abs(paid - float(reward[row])) < 1e-3 + 1e-6 * abs(paid), (int(actions[row]), paid, float(reward[row]))
        assert ended == bool(over[row])
        assert_same_sight(game, row_of(views, row), legal[row])
    return after, np.asarray(over)


@pytest.mark.thorough
@settings(max_examples=SCENARIOS)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_action_of_a_crowded_game_is_as_written(programs, seed):
    """28 actions from one random scenario, legal or not."""
    rng = random.Random(seed)
    state = GAME.from_scenario(random_scenario(rng), jax.random.key(0))
    states = stack([state] * 28)
    compare(programs, states, np.arange(28), jax.random.split(jax.random.key(seed % 2**31), 28))


@pytest.mark.thorough
def test_long_games_are_as_written(programs):
    """Random legal play from crowded games: histories fill, stages follow, programs meet each other."""
    rng = random.Random(7)
    states = stack([GAME.from_scenario(random_scenario(rng), jax.random.key(0)) for _ in range(28)])
    key, stages = jax.random.key(5), set()
    for number in range(36):
        legal = np.asarray(programs[1](states)[1])
        actions = [rng.choice(np.flatnonzero(row).tolist() or [0]) for row in legal]
        states, over = compare(
            programs, states, np.array(actions), jax.random.split(jax.random.fold_in(key, number), 28)
        )
        stages |= set(np.asarray(states.stage).tolist())
        fresh = stack([GAME.from_scenario(random_scenario(rng), jax.random.key(0)) for _ in range(28)])
        states = replaced(over, fresh, states)
    assert stages == set(range(1, 9))


@pytest.mark.thorough
def test_no_invariant_breaks_in_random_play(programs):
    """Random legal play; half of the games are new ones, half begin crowded."""
    step, look, new = programs
    rng = random.Random(3)
    crowded = stack([GAME.from_scenario(random_scenario(rng), jax.random.key(0)) for _ in range(GAMES // 2)])
    fresh = new(jax.random.split(jax.random.key(0), GAMES - GAMES // 2))
    begin = jax.tree.map(lambda *parts: jnp.concatenate(parts), crowded, fresh)
    states, taken = begin, 0
    for number in range(STEPS // GAMES):
        views, legal = jax.tree.map(np.asarray, look(states))
        host = on_host(states)
        assert_invariants(host)
        for row in range(number % EVERY, GAMES, EVERY):
            assert_same_sight(to_reference(row_of(host, row), with_history=False), row_of(views, row), legal[row])
        noise = np.random.default_rng(number).random(legal.shape)
        actions = np.argmax(np.where(legal, noise, -1.0), axis=1)
        states, _, over = step(jax.random.split(jax.random.key(number), GAMES), states, jnp.asarray(actions))
        taken += GAMES
        states = replaced(over, begin, states)
    assert taken == STEPS


def assert_invariants(host):
    grid, player = host.grid, host.player
    assert np.all((player.cell >= 0) & (player.cell < 36))
    assert np.all((player.hp >= 0) & (player.hp <= 3))
    assert np.all((host.stage >= 1) & (host.stage <= 8))
    assert all(np.all(number >= 0) for number in (player.credits, player.energy, player.siphons, player.score))
    content = np.asarray(grid.content)
    free_data = (content == 1) & (np.asarray(grid.program) < 0) & ~np.asarray(grid.siphoned)
    spawn, points = np.asarray(grid.spawn), np.asarray(grid.points)
    natural = free_data & (points > 0) & (points < 10)
    assert np.all(spawn >= 0)
    assert np.all((np.asarray(grid.credits) == 0) | (np.asarray(grid.energy) == 0))
    new_games = natural[GAMES // 2 :]
    assert np.all(spawn[GAMES // 2 :][new_games] <= points[GAMES // 2 :][new_games])
    alive, hp = np.asarray(host.enemies.alive), np.asarray(host.enemies.hp)
    assert np.all((hp[alive] >= 1) & (hp[alive] <= 4))  # a crowded game's virus may begin with 3
    assert np.all((np.asarray(host.enemies.cell)[alive] >= 0) & (np.asarray(host.enemies.cell)[alive] < 36))
    present = np.asarray(host.transmissions.present)
    order = np.asarray(host.transmissions.order)
    for row in range(0, GAMES, 25):
        assert len(set(order[row][present[row]].tolist())) == present[row].sum()
    assert np.all((host.history.count >= 0) & (host.history.count <= 8))
    assert np.all(host.pending >= 0)
