"""Games that are looked at: pictures, text, an agent's episode and a person's."""

from __future__ import annotations

import io

import jax
import numpy as np
import pytest
from probes import Constant, task

import rollax
from rollax.envs import registry
from rollax.envs.hackmatrix import HackMatrix
from rollax.envs.hackmatrix.drawing import ACTION_NAMES, KEYS
from rollax.envs.pictures import drawer_of
from rollax.errors import ConfigError
from rollax.programs.plan import make_plan
from rollax.reports.films import Ending, as_blocks, episode, player_of, watch
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
}


def test_a_game_as_text():
    game = HackMatrix()
    told = game.text(game.from_scenario(BUSY, jax.random.key(0)))
    rows = told.splitlines()[1:7]
    assert "@" in rows[3]
    assert "V1!" in rows[3]
    assert "[WARP]" in rows[2]
    assert "[7]" in rows[2]
    assert "[?]" in rows[2]
    assert "t2" in rows[5]
    assert "*" in rows[5]
    assert "X" in rows[0]
    assert "2c" in rows[4]
    assert "C2" not in told  # a cryptog that is in neither line
    assert "programs: wait, undo" in told
    shown = game.text(game.from_scenario(BUSY | {"showActivated": True}, jax.random.key(0)))
    assert "C2" in shown


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


def test_a_person_plays():
    """Keys that are not legal are told so; the end is the environment's, or the person's."""
    screen = io.StringIO()
    ending = play("HackMatrix-v0", seed=3, keyboard=io.StringIO("~s\nQ"), screen=screen)
    assert isinstance(ending, Ending)
    assert ending.steps == 1
    told = screen.getvalue()
    assert "'~' is not legal here" in told
    assert "s:down" in told
    assert "step 1" in told
    ending = play("CartPole-v1", keyboard=io.StringIO("0" * 60), screen=screen)
    assert 5 < ending.steps < 20
    assert ending.terminated
