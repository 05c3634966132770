"""Games that are looked at: pictures, text, an agent's episode and a person's."""

from __future__ import annotations

import functools
import io
import os
import re
import tty

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Constant, task

import rollax
from rollax.envs import registry
from rollax.envs.hackmatrix import HackMatrix
from rollax.envs.hackmatrix.drawing import ACTION_NAMES, KEYS
from rollax.envs.hackmatrix.programs import PROGRAMS
from rollax.envs.hackmatrix.screen import EFFECTS
from rollax.envs.pictures import drawer_of, names_and_keys
from rollax.errors import ConfigError
from rollax.programs.plan import make_plan
from rollax.reports.episodes import Ending, action_name, episode, player_of, stepping, strongly_typed
from rollax.reports.films import as_blocks, watch
from rollax.reports.keyboard import keys_in
from rollax.reports.playing import play
from rollax.runs.result import policy_of

BUSY = {
    "player": {"row": 2, "col": 2, "credits": 5},
    "enemies": [
        {"type": "virus", "row": 2, "col": 5, "hp": 1, "stunned": True},
        {"type": "cryptog", "row": 4, "col": 4, "hp": 2},
    ],
    "transmissions": [{"row": 0, "col": 3, "turnsRemaining": 2, "enemyType": "daemon"}],
    "blocks": [
        {"row": 3, "col": 2, "type": "program", "programType": "warp"},
        {"row": 3, "col": 3, "type": "data", "points": 7, "siphoned": True},
        {"row": 3, "col": 4, "type": "question", "points": 2},
    ],
    "resources": [{"row": 1, "col": 1, "credits": 2}, {"row": 0, "col": 5, "dataSiphon": True}],
    "ownedPrograms": [10, 14],
    "siphonedCells": [[2, 3]],
}


def board_of(told: str) -> list[list[str]]:
    """What stands in each cell, row 0 first: who is there, and what is there."""
    lines = [line.strip("│").split("│") for line in told.splitlines() if line.startswith("│")]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [[f"{who.strip()}|{what.strip()}" for who, what in zip(*pair, strict=True)] for pair in pairs][::-1]


def test_a_game_as_text():
    game = HackMatrix()
    state = game.from_scenario(BUSY, jax.random.key(0))
    told = game.text(state)
    rows = board_of(told)
    assert rows[2][2] == "@|"
    assert rows[2][3] == "|░░"  # siphoned ground
    assert rows[2][5] == "V1!|"
    assert rows[3][2] == "|[warp]2"  # what it brings
    assert rows[3][3] == "|(7)"  # drained
    assert rows[3][4] == "|[?]"
    assert rows[0][3] == "t2|"
    assert rows[0][5] == "|*"
    assert rows[5][5] == "|X"
    assert rows[1][1] == "|2c"
    assert rows[4][4] == "|"  # a cryptog that is in neither line
    assert "programs: wait, undo" in told
    shown = game.text(game.from_scenario(BUSY | {"showActivated": True}, jax.random.key(0)))
    assert board_of(shown)[4][4] == "C2|"


def test_no_cell_is_wider_than_its_column():
    """The longest that a cell can hold still ends before the next one begins."""
    game = HackMatrix()
    full = {
        "player": {"row": 0, "col": 0},
        "enemies": [{"type": "daemon", "row": 3, "col": col, "hp": 2, "stunned": True} for col in range(6)],
        "transmissions": [{"row": 3, "col": col, "turnsRemaining": 2, "enemyType": "virus"} for col in range(6)],
        "blocks": [
            {"row": 3, "col": col, "type": "program", "programType": "anti-v", "siphoned": col % 2 == 0}
            for col in range(6)
        ],
    }
    told = game.text(game.from_scenario(full, jax.random.key(0))).splitlines()
    assert {len(line) for line in told if line[0] in "│├┌└"} == {61}
    assert board_of("\n".join(told))[3] == ["D2! t2|(anti-v)", "D2! t2|[anti-v]2"] * 3


def test_a_legend_has_prices_and_effects_and_stands_beside_the_board_where_it_fits():
    game = HackMatrix()
    state = game.from_scenario(BUSY | {"player": {"row": 2, "col": 2, "energy": 1}}, jax.random.key(0))
    legal = np.asarray(game.legal(state))
    told = game.legend(state, legal)
    assert f"{KEYS[10]} wait   1e    let the enemies move" in told
    assert "- undo   1c    go back one turn" in told  # costs what the player has not
    assert "  warp   2c 2e jump onto a random enemy or transmission" in told
    wide = game.screen(state, legal, 122, colours=False)
    assert all(line in wide for line in told)
    assert max(map(len, wide.splitlines())) <= 122
    narrow = game.screen(state, legal, 80, colours=False)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "? shows what the signs mean" in narrow
    painted = game.screen(state, legal, 122, colours=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == wide
    assert set(EFFECTS) == {program.name for program in PROGRAMS}


def test_every_action_has_a_key_and_a_name():
    assert len(set(KEYS)) == len(KEYS) == len(ACTION_NAMES) == 28
    assert "Q" not in KEYS


@pytest.mark.parametrize("name", ["HackMatrix-v0", "Breakout-MinAtar", "CartPole-v1", "Acrobot-v1", "MountainCar-v0"])
def test_pictures_show_the_state(name):
    made = registry.make_inside(name)
    draw = drawer_of(made)
    assert draw is not None
    pictures = []
    for seed in range(5):
        obs, state = jax.jit(made.reset)(jax.random.key(seed))
        pictures.append(draw(state, obs.features))
    one, *others = pictures
    assert one.dtype == np.uint8
    assert one.ndim == 3
    assert one.shape[2] == 3
    assert all(other.shape == one.shape for other in others)
    assert any(np.any(other != one) for other in others)
    assert as_blocks(one).count("▀") > 100


def test_an_agent_is_watched(tmp_path):
    from PIL import Image, ImageSequence

    experiment = rollax.make_experiment(
        "double", preset="none", num_envs=8, hidden=(16,), capacity=800, batch_size=16, warm_up_steps=80, steps=2_000,
        eval_episodes=2,
    )  # fmt: skip
    rollax.train(experiment, tmp_path / "run", quiet=True)
    screen = io.StringIO()
    path, ending = watch(tmp_path / "run", most=30, frames_per_second=50, screen=screen)
    again = watch(tmp_path / "run", most=30, frames_per_second=50)[1]
    assert path == tmp_path / "run" / "watch.gif"
    with Image.open(path) as image:
        frames = sum(1 for _ in ImageSequence.Iterator(image))
    assert 5 < frames <= ending.steps  # pictures that are alike are one that lasts longer
    assert screen.getvalue().count("step ") == ending.steps
    assert ending == again
    assert ending.total == ending.steps  # CartPole pays 1 for each step


def test_numbers_that_are_seen_as_flags_are_made_flags_once():
    plan = make_plan(rollax.make_experiment("double", env="FrozenLake-misc", preset="none", hidden=(16,)))
    agent, hparams = plan.program.agent, jax.tree.map(lambda leaf: leaf[0], plan.hparams)
    policy = policy_of(plan, agent.init(plan.keys[0], hparams)[0].params, 0)
    assert policy.task.one_hot == 16
    *scenes, ending = episode(policy.task, player_of(policy, 0), 0, 5)
    assert isinstance(ending, Ending)
    assert len(scenes) == ending.steps > 0


def test_what_cannot_be_drawn_is_told():
    assert drawer_of(task(Constant())) is None
    with pytest.raises(ConfigError, match=r"cannot be drawn; give it a method picture\(state\)"):
        play("probes:Constant")


def test_a_person_plays(caplog):
    """Keys that are not legal are told so; the board after the fatal move is shown; the step is compiled once."""
    screen = io.StringIO()
    keys = "~sb\x1b[H?" + "ddaddddasawawaaaasaaaasdsswwddwddsdsswwadasss wwwwwwsd"[1:]
    with jax.log_compiles(), caplog.at_level("WARNING"):
        ending = play("HackMatrix-v0", seed=9, keyboard=io.StringIO(keys + "wsad" * 200), screen=screen)
    assert sum("Finished XLA compilation of jit(step)" in line for line in caplog.messages) == 1
    told = screen.getvalue()
    assert told.startswith("compiling a step of HackMatrix-v0, once ...\n")
    assert "'~' is no key of this game" in told
    assert "'\\x1b[H' is no key of this game" in told  # Home
    assert "b (push) is not legal here: you do not own push" in told
    assert "block of 7 points that brings 7 transmissions" in told
    assert told.count("\nlast move: ") == ending.steps
    assert ending.terminated
    *_, last = told.split("┌")
    assert "hp 0/3" in last
    assert "You died, because the " in last
    assert ending.last is not None
    assert int(ending.last.state.player.hp) == 0


def test_a_person_leaves_and_has_arrows():
    screen = io.StringIO()
    ending = play("CartPole-v1", keyboard=io.StringIO("ad\x1b[D\x1bOC\x1b[1;5D\nQ"), screen=screen)
    assert ending.steps == 5
    assert [line.split()[2] for line in screen.getvalue().splitlines() if "last move" in line] == [
        "left,", "right,", "left,", "right,", "left,"
    ]  # fmt: skip
    ending = play("CartPole-v1", keyboard=io.StringIO("a" * 60), screen=screen)
    assert 5 < ending.steps < 20
    assert ending.terminated


def test_no_unknown_key_ends_a_game():
    """At a real terminal: Home, Delete, End, Insert, function keys, a bare escape, and letters of other alphabets."""
    strange = (
        "\x1b[H",
        "\x1b[3~",
        "\x1bOF",
        "\x1b[2~",
        "\x1bOP",
        "\x1b[15~",
        "\x1b[[A",
        "\x1b[24;2~",
        "\x1b",
        "\x1bx",
        "ä",
        "\n",
    )
    assert [keys_in(key) for key in strange] == [[key] for key in strange]
    master, slave = os.openpty()
    with os.fdopen(slave) as keyboard, os.fdopen(master, "wb", buffering=0) as person:
        tty.setcbreak(slave)  # a test writes before anybody reads
        for key in (*strange, "\x1b[C", "Q"):
            person.write(key.encode())
        screen = io.StringIO()
        ending = play("CartPole-v1", keyboard=keyboard, screen=screen)
    assert ending.steps == 1  # the arrow
    assert screen.getvalue().count("is no key of this game") >= len(strange) - 2


@functools.cache
def one_step():
    """A step of the game, compiled for all scenarios."""
    game, key = HackMatrix(), jax.random.key(0)
    return stepping(registry.make_inside("HackMatrix-v0"), key, strongly_typed(game.from_scenario(BUSY, key)))


def after(data: dict, name: str) -> str:
    """What an action is told as."""
    game, key, action = HackMatrix(), jax.random.key(0), ACTION_NAMES.index(name)
    state = strongly_typed(game.from_scenario(data, key))
    return " ".join(game.told(state, action, one_step()(key, state, jnp.int32(action))[-1]))


def test_moves_are_told():
    here = {"player": {"row": 2, "col": 2, "credits": 9, "energy": 9, "dataSiphons": 1}, "scheduledTasksDisabled": True}
    virus = {"type": "virus", "row": 2, "col": 5, "hp": 2}
    assert after(here, "up") == "You walked up."
    assert after(here | {"enemies": [virus | {"hp": 1}]}, "right") == "You shot right: removed a virus."
    assert after(here | {"enemies": [virus]}, "right") == "You shot right: hit the virus (1 hp left)."
    blocks = [
        {"row": 3, "col": 2, "type": "program", "programType": "warp"},
        {"row": 1, "col": 2, "type": "data", "points": 1},
    ]
    drained = after(here | {"blocks": blocks}, "siphon")
    assert drained.startswith("You siphoned: got a point and warp, woke 3 transmissions.")
    assert drained.endswith("3 transmissions appeared.")
    beside = {"type": "daemon", "row": 2, "col": 3, "hp": 3}
    hurt = after(here | {"enemies": [beside], "ownedPrograms": [10]}, "wait")
    assert hurt == "You ran wait for 1e. The daemon on your right hit you: hp 3 to 2."
    last = here | {"player": {"row": 2, "col": 2, "hp": 1}, "enemies": [beside, beside | {"row": 1, "col": 2}]}
    dead = after(last | {"enemies": [beside | {"row": 3, "col": 2}, beside]}, "right")
    assert dead.startswith("You shot right: hit the daemon (2 hp left). You died, because the daemon above you hit you")
    arrives = here | {"transmissions": [{"row": 5, "col": 0, "turnsRemaining": 1, "enemyType": "daemon"}]}
    assert after(arrives, "up") == "You walked up. A transmission became an enemy."
    gate = {"player": {"row": 4, "col": 5}, "stage": 2}
    assert after(gate, "up") == "You walked up. You reached the exit: stage 3 begins."
    assert after(gate | {"stage": 8}, "up") == "You walked up. You won: the last stage is done."


def test_a_missing_run_is_said_to_be_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"missing is no run folder: nothing is there"):
        watch(tmp_path / "missing")


def test_actions_have_the_names_of_their_game():
    task = registry.make_inside("Breakout-MinAtar")
    assert names_and_keys(task) == (("stay", "left", "right"), "xad")
    assert [action_name(task, action) for action in range(3)] == ["stay", "left", "right"]
    assert action_name(registry.make_inside("Pendulum-v1"), np.array([0.5], np.float32)) == "1"  # of bounds -2 and 2
    assert action_name(registry.make_inside("TreasureHunt-v0"), np.array([0, 3, 1])) == "up, right, down"
