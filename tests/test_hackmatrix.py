"""HackMatrix: the worked examples of its rules, scenarios, and games that end and begin again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.envs import names, registry
from rollax.envs.hackmatrix import HackMatrix, board, stages
from rollax.errors import ConfigError
from rollax.experiment.experiment import from_json, make_experiment
from rollax.experiment.tree import to_json
from rollax.programs.plan import make_plan

EXAMPLES = json.loads((Path(__file__).parent / "data" / "hackmatrix_examples.json").read_text())
GAME = HackMatrix()
KEY = jax.random.key(3)
STEP = jax.jit(GAME.step_without_reset)
AUTO = jax.jit(GAME.step)
LEGAL = jax.jit(GAME.legal)
OBSERVE = jax.jit(GAME.observe)
SHORT = HackMatrix(undo_across_stages=False, undo_depth=3)
SHORT_STEP = jax.jit(SHORT.step_without_reset)


def facts(state, reward=None, over=None):
    """A state in the words of the examples."""
    told, view = GAME.internals(state), OBSERVE(state)
    enemies = [
        [e["type"], e["row"], e["col"], e["hp"], *(["stunned"] if e["is_stunned"] else [])] for e in told["enemies"]
    ]
    transmissions = sorted([t["row"], t["col"], t["turns"]] for t in told["transmissions"])
    timing = ("scheduled_task_interval", "next_scheduled_task_turn", "pending_siphon_transmissions", "turn_count")
    return {
        "reward": reward,
        "over": over,
        "player": list(told["player"].values()),
        "enemies": sorted(enemies),
        "transmissions": transmissions,
        "transmission_count": len(transmissions),
        "timing": [told[name] for name in timing],
        "flags": [told[name] for name in ("show", "calm", "step_active")],
        "stage": told["stage"],
        "owned": told["owned_programs"],
        "legal": np.flatnonzero(LEGAL(state)).tolist(),
        "player_observation": view.player.tolist(),
        "grid": view.grid,
    }


def differences(found, expected):
    """What of the expected facts is not so."""
    wrong = {}
    for name, value in expected.items():
        if name == "grid":
            shown = {place: float(found["grid"][tuple(map(int, place.split(",")))]) for place in value}
            if not np.allclose(list(shown.values()), list(value.values()), atol=1e-4):
                wrong[name] = shown
        elif name in ("reward", "player_observation"):
            if not np.allclose(found[name], value, atol=1e-4):
                wrong[name] = found[name]
        elif found[name] != (sorted(value) if name in ("enemies", "transmissions") else value):
            wrong[name] = found[name]
    return wrong


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example['id']}-{example['title'][:40]}")
def test_worked_example(example):
    state = GAME.from_scenario(example["scenario"], KEY)
    for number, step in enumerate(example["steps"]):
        reward, over = None, False
        if step["action"] is not None:
            state, reward, over = STEP(jax.random.key(number), state, step["action"])
        found = facts(state, None if reward is None else float(reward), bool(over))
        expected = step["expect"]
        wrong = [differences(found, {"over": False} | one) for one in expected.get("one_of", [expected])]
        assert not all(wrong), wrong


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({}, "player is missing"),
        ({"player": {"row": 0}}, "player.col is missing"),
        ({"player": {"row": 6, "col": 0}}, "player.row is 6; it must be from 0 to 5"),
        ({"player": {"row": 0, "col": 0, "hp": 4}}, "player.hp is 4"),
        ({"player": {"row": 0, "col": 0, "hp": -1}}, "player.hp is -1"),
        ({"player": {"row": 0, "col": 0, "health": 3}}, "player.health is no field; known are"),
        (
            {"enemies": [{"type": "virus", "row": 1, "col": 1, "hp": 0}]},
            r"enemies\[0\].hp is 0; it must be from 1 to 3",
        ),
        (
            {"enemies": [{"type": "viru", "row": 1, "col": 1, "hp": 1}]},
            r"enemies\[0\].type is 'viru'; did you mean virus",
        ),
        ({"blocks": [{"row": 1, "col": 1, "type": "data"}] * 2}, r"blocks\[1\].row, col: there is another block"),
        (
            {"transmissions": [{"row": 1, "col": 1, "turnsRemaining": 1, "enemyType": "virus"}] * 2},
            r"transmissions\[1\].row, col: there is another transmission",
        ),
        ({"blocks": [{"row": 1, "col": 1, "type": "wall"}]}, r"blocks\[0\].type is 'wall'"),
        ({"blocks": [{"row": 1, "col": 1, "type": "program", "programType": "crush"}]}, "did you mean crash"),
        ({"blocks": [{"row": 1, "col": 1, "type": "program"}]}, "programType is missing"),
        ({"ownedPrograms": [4]}, r"ownedPrograms\[0\].action is 4"),
        ({"stage": 9}, "stage is 9; it must be from 1 to 8"),
        ({"siphonedCells": [[7, 1]]}, r"siphonedCells\[0\].row is 7"),
        ({"exit": {"row": 1}}, "exit.col is missing"),
        ({"showActivated": 1}, "showActivated is 1; give true or false"),
    ],
)
def test_a_bad_scenario_is_refused_by_name(scenario, message):
    scenario = scenario if "player" in scenario or not scenario else {"player": {"row": 0, "col": 0}} | scenario
    with pytest.raises(ConfigError, match=message):
        GAME.from_scenario(scenario, KEY)


def test_everything_wrong_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        GAME.from_scenario({"player": {"row": 9, "col": 9}, "stage": 0}, KEY)
    assert all(word in str(caught.value) for word in ("player.row", "player.col", "stage"))


# -- the board


def test_no_walk_is_longer_than_the_search():
    """The longest way that never comes near itself, 24 of 36 cells, is found; cells that no way leads to are not."""
    way = [0, 6, 12, 18, 24, 30, 31, 32, 26, 27, 21, 15, 14, 8, 2, 3, 4, 10, 11, 17, 23, 29, 35, 34]
    assert all(abs(a - b) in (1, 6) for a, b in itertools.pairwise(way))
    flags = np.zeros(36, bool)
    flags[way] = True
    passable = board.set_of_flags(jnp.asarray(flags))
    steps, found = board.walk(board.cell_set(jnp.int32(0)), passable, board.cell_set(jnp.int32(34)))
    assert int(steps) == 23 == board.LONGEST_WALK
    assert bool(found.any())
    steps, found = board.walk(board.cell_set(jnp.int32(0)), passable, board.cell_set(jnp.int32(1)))
    assert int(steps) == 0
    assert not bool(found.any())


def test_sets_of_cells_are_what_they_say():
    rng = np.random.default_rng(0)
    for _ in range(20):
        flags = rng.random(36) < 0.3
        cells = board.set_of_flags(jnp.asarray(flags))
        np.testing.assert_array_equal(cells.flags(), flags)
        assert int(cells.size()) == flags.sum()
        grid = np.pad(flags.reshape(6, 6), 1)
        up, down, left, right = grid[:-2, 1:-1], grid[2:, 1:-1], grid[1:-1, 2:], grid[1:-1, :-2]
        for direction, expected in enumerate((up, down, left, right)):
            np.testing.assert_array_equal(cells.shift(direction).flags(), expected.reshape(-1))
        for number, cell in enumerate(np.flatnonzero(flags)):
            assert np.flatnonzero(board.nth(cells, jnp.int32(number)).flags()).tolist() == [cell]
    corner = board.cell_set(jnp.int32(7)).around()
    assert np.flatnonzero(corner.flags()).tolist() == [0, 1, 2, 6, 8, 12, 13, 14]


# -- new games


@pytest.fixture(scope="module")
def new_games():
    states = jax.jit(jax.vmap(GAME.reset_state))(jax.random.split(KEY, 4_000))
    return jax.tree.map(np.asarray, states._replace(history=states.history.count))


def test_new_games_have_the_reference_statistics(new_games):
    """Section 18's figures; bounds are four standard errors of 4,000 games."""
    grid = new_games.grid
    content = np.asarray(grid.content)
    blocks = (content == 1).sum(axis=1)
    for count in range(5, 12):
        assert abs(np.mean(blocks == count) - 1 / 7) < 0.025
    assert abs(np.asarray(grid.question)[content == 1].mean() - 0.1) < 0.008
    assert abs((np.asarray(grid.program)[content == 1] < 0).mean() - 0.5) < 0.013
    amounts = np.asarray(grid.credits + grid.energy)
    assert np.all((amounts > 0).sum(axis=1) == 35 - blocks)
    there = amounts[amounts > 0]
    for amount, share in ((1, 0.45), (2, 0.45), (3, 0.10)):
        assert abs(np.mean(there == amount) - share) < 0.008
    assert abs((np.asarray(grid.credits) > 0)[amounts > 0].mean() - 0.5) < 0.008
    assert np.all(np.asarray(new_games.transmissions.present).sum(axis=1) == 1)
    corner = np.asarray(new_games.transmissions.present)[:, list(board.CORNERS)].any(axis=1)
    assert abs(corner.mean() - 0.107) < 0.02
    assert not np.asarray(new_games.enemies.alive).any()
    assert np.all(new_games.interval == 12)
    assert np.all(new_games.next_task == 12)
    assert ((content == 3).sum(axis=1) == 1).all()
    assert ((content == 2).sum(axis=1) == 2).all()
    for corner in board.CORNERS:
        assert abs(np.mean(new_games.player.cell == corner) - 0.25) < 0.03
    bonus = np.stack([new_games.player.credits == 10, new_games.player.energy == 11, new_games.player.siphons == 1])
    assert np.all(bonus.sum(axis=0) == 1)
    assert np.all(np.abs(bonus.mean(axis=1) - 1 / 3) < 0.03)


def test_programs_of_a_stage_differ_and_carry_their_spawn(new_games):
    program, spawn = np.asarray(new_games.grid.program), np.asarray(new_games.grid.spawn)
    from rollax.envs.hackmatrix.programs import PROGRAMS

    for row in range(500):
        held = program[row][program[row] >= 0]
        assert len(set(held.tolist())) == len(held)
    price = np.array([p.spawn for p in PROGRAMS])
    assert np.all(spawn[program >= 0] == price[program[program >= 0]])
    seen = np.bincount(program[program >= 0], minlength=23)
    assert np.all(np.abs(seen / seen.sum() - 1 / 23) < 0.008)


def test_stages_of_many_games_are_drawn_as_those_of_one():
    """Only games that begin a stage are drawn; each gets what it would have got alone."""
    keys = jax.random.split(KEY, 40)
    together = jax.jit(jax.vmap(GAME.reset_state))(keys)
    for row in (0, 17, 39):
        alone = jax.jit(GAME.reset_state)(keys[row])
        for one, many in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_array_equal(one, many[row])


def test_blocks_leave_every_cell_reachable():
    blocks = np.zeros(36, bool)
    blocks[[1, 6]] = True  # shuts off the corner (0, 0)
    exit_set = board.cell_set(jnp.int32(35))
    assert not bool(stages.acceptable(board.set_of_flags(jnp.asarray(blocks)), exit_set))
    blocks[6] = False
    assert bool(stages.acceptable(board.set_of_flags(jnp.asarray(blocks)), exit_set))
    blocks[:] = False
    blocks[[28, 34]] = True  # the corner (5, 5) is an exit that one must not walk through
    assert bool(stages.acceptable(board.set_of_flags(jnp.asarray(blocks)), exit_set))
    blocks[[29]] = True
    assert not bool(stages.acceptable(board.set_of_flags(jnp.asarray(blocks)), exit_set))


# -- ends


def test_a_new_game_follows_an_ended_one():
    """The last observation is of the ended game, the returned one of the next."""
    dying = {"player": {"row": 0, "col": 0, "hp": 1, "energy": 1}, "ownedPrograms": [10], "stage": 5}
    dying["enemies"] = [{"type": "virus", "row": 0, "col": 1, "hp": 2}]
    state = GAME.from_scenario(dying, KEY)
    obs, following, reward, terminated, truncated, info = AUTO(KEY, state, 10)
    assert bool(terminated)
    assert not bool(truncated)
    assert float(info["final_observation"].features.player[2]) == 0.0  # no hp
    assert int(info["stage"]) == 5
    assert not bool(info["won"])
    assert int(following.stage) == 1
    assert int(following.player.hp) == 3
    assert int(following.history.count) == 0
    assert float(obs.features.player[2]) == 1.0
    np.testing.assert_array_equal(obs.legal, LEGAL(following))
    np.testing.assert_allclose(float(reward), -8.55, atol=1e-5)


def test_winning_is_told():
    state = GAME.from_scenario({"player": {"row": 5, "col": 4}, "stage": 8}, KEY)
    info = AUTO(KEY, state, 3)[-1]
    assert bool(info["won"])


def test_an_illegal_action_changes_nothing():
    state = GAME.from_scenario({"player": {"row": 0, "col": 2, "credits": 9}, "ownedPrograms": [16]}, KEY)
    for action in (1, 4, 5, 27):
        after, reward, over = STEP(KEY, state, action)
        assert float(reward) == 0.0
        assert bool(over)
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True))


def test_where_nothing_is_legal_an_agent_is_offered_everything():
    """The mask of the rules is empty; the one that an agent gets is full, and any action ends the game."""
    walls = [{"row": row, "col": col, "type": "data", "points": 1} for row, col in ((0, 1), (1, 0))]
    state = GAME.from_scenario({"player": {"row": 0, "col": 0}, "blocks": walls}, KEY)
    assert not LEGAL(state).any()
    assert np.all(GAME.see(state).legal)
    for action in (0, 27):
        _, reward, over = STEP(KEY, state, action)
        assert bool(over)
        assert float(reward) == 0.0


def test_poly_may_lift_hp_above_every_type():
    """A virus that a scenario gives 3 hp has lost -1, and as a daemon has 4."""
    scenario = {"player": {"row": 0, "col": 0, "credits": 1, "energy": 1}, "ownedPrograms": [9]}
    state = GAME.from_scenario(scenario | {"enemies": [{"type": "virus", "row": 5, "col": 4, "hp": 3}]}, KEY)
    seen = set()
    for seed in range(12):
        (enemy,) = GAME.internals(STEP(jax.random.key(seed), state, 9)[0])["enemies"]
        assert not enemy["is_stunned"]
        seen.add((enemy["type"], enemy["hp"]))
    assert seen == {("daemon", 4), ("glitch", 3), ("cryptog", 3)}


def test_null_is_absent_and_counts_have_no_cap():
    scenario = {"player": {"row": 0, "col": 0, "hp": None, "credits": 2_000_000}, "stage": None, "ownedPrograms": None}
    found = GAME.internals(GAME.from_scenario(scenario, KEY))
    assert (found["player"]["hp"], found["player"]["credits"], found["stage"]) == (3, 2_000_000, 1)


def test_undo_across_stages_can_be_switched_off():
    scenario = {"player": {"row": 5, "col": 3, "credits": 2}, "ownedPrograms": [14]}
    for game, step, allowed in ((GAME, STEP, True), (SHORT, SHORT_STEP, False)):
        state = game.from_scenario(scenario, KEY)
        for number in range(2):
            state, _, _ = step(jax.random.key(number), state, 3)
        assert int(state.stage) == 2
        assert bool(game.legal(state)[14]) == allowed


def test_the_history_keeps_the_newest_and_counts_what_it_drops():
    state = SHORT.from_scenario({"player": {"row": 0, "col": 0, "credits": 9}, "ownedPrograms": [14]}, KEY)
    for action in (0, 0, 0, 0, 3):
        state, _, _ = SHORT_STEP(KEY, state, action)
    assert (int(state.history.count), int(state.history.dropped)) == (3, 2)
    places = []
    while bool(SHORT.legal(state)[14]):
        state, _, _ = SHORT_STEP(KEY, state, 14)
        places.append((int(state.player.cell) // 6, int(state.player.cell) % 6))
    assert places == [(4, 1), (4, 0), (3, 0)]


@pytest.mark.thorough
def test_dropped_snapshots_are_told():
    state = GAME.from_scenario({"player": {"row": 0, "col": 0}}, KEY)
    for number in range(10):
        state, _, _ = STEP(KEY, state, number % 2)
    assert int(AUTO(KEY, state, 0)[-1]["dropped_snapshots"]) == 10 + 1 - GAME.undo_depth


@pytest.mark.thorough
def test_enemies_without_a_place_are_counted():
    """In the state, and in what a step tells."""
    crowd = [{"type": "daemon", "row": r, "col": c, "hp": 3} for r in range(1, 6) for c in range(6)]
    crowd += [{"type": "daemon", "row": 0, "col": c, "hp": 3} for c in (4, 5)]
    coming = [{"row": 0, "col": c, "turnsRemaining": 1, "enemyType": "virus"} for c in (1, 2, 3)]
    scenario = {"player": {"row": 0, "col": 0, "energy": 1}, "enemies": crowd, "transmissions": coming}
    state = GAME.from_scenario(scenario | {"ownedPrograms": [10]}, KEY)
    info = AUTO(KEY, state, 10)[-1]
    assert int(info["dropped_enemies"]) == 3
    assert int(info["dropped_snapshots"]) == 0
    state, _, _ = STEP(KEY, state, 10)
    assert int(state.dropped) == 3
    assert len(GAME.internals(state)["enemies"]) == 32


def test_the_environment_is_registered():
    task = registry.make("HackMatrix-v0")
    assert task.num_actions == 28
    assert "HackMatrix-v0" in names.names()
    shapes = [leaf.shape for leaf in jax.tree.leaves(task.observation.features)]
    assert shapes == [(10,), (23,), (6, 6, 42)]
    assert sum(int(np.prod(shape)) for shape in shapes) == 1545


def test_the_world_can_be_chosen():
    """From Python, from the command line's values, and through a file."""
    made = make_experiment("ppo", env="HackMatrix-v0", undo_across_stages=False)
    assert made.world == HackMatrix(undo_across_stages=False)
    assert from_json(json.loads(json.dumps(to_json(made)))) == made
    assert make_plan(made).program.loop.task.env.undo_across_stages is False
    with pytest.raises(ConfigError, match="undo_acros_stages is no field; did you mean undo_across_stages"):
        make_experiment("ppo", env="HackMatrix-v0", undo_acros_stages=False)
    with pytest.raises(ConfigError, match="undo_depth is no field"):
        make_experiment("ppo", undo_depth=3)
