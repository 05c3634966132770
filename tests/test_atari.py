"""Atari and Gymnasium: the same bytes as Gymnasium's own preprocessing, real runs, and one line for what is missing."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from process_tools import command
from test_cli import summary

import rollax
from rollax import errors
from rollax.commands.cli import run_command
from rollax.envs import gymnasium as gymnasium_envs
from rollax.envs import names, registry
from rollax.envs.atari import Atari, AtariEnvs
from rollax.envs.names import atari_names
from rollax.errors import ConfigError
from rollax.reports.films import watch


def tape(game, steps, seed=0):
    count = Atari().task(f"ALE/{game}-v5").num_actions
    return np.random.default_rng(seed).integers(0, count, steps)


@pytest.mark.parametrize(("game", "rom", "steps"), [("Breakout", "breakout", 400), ("Pong", "pong", 200)])
def test_frames_are_those_of_gymnasium(game, rom, steps):
    """A tape of actions, through the ends of games: frames, rewards, ends.  Starts are idle in neither."""
    import ale_py

    gymnasium.register_envs(ale_py)
    options: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0, "full_action_space": False}
    single = gymnasium.wrappers.AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", **options), noop_max=0)
    ours = AtariEnvs(rom, 1, Atari(noops=0))
    frames, (expected, _) = ours.reset(np.zeros(1, np.int32)), single.reset(seed=0)
    np.testing.assert_array_equal(frames[0], expected)
    ends = 0
    for action in tape(game, steps):
        step = ours.step(np.array([action], np.int32))
        expected, reward, terminated, truncated, _ = single.step(int(action))
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated)
        if terminated or truncated:
            ends += 1
            expected, _ = single.reset(seed=0)
        np.testing.assert_array_equal(step.shown[0], expected)
    assert ends > 0 or game == "Pong"


def test_a_game_starts_with_idle_frames_and_differently_with_each_seed():
    envs = AtariEnvs("breakout", 3, Atari())
    actions = np.array([1, 1, 1], np.int32)

    def played(seeds):
        envs.reset(np.array(seeds, np.int32))
        return np.stack([envs.step(actions).shown for _ in range(12)])

    first, again = played([1, 2, 3]), played([1, 2, 3])
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[:, 0], first[:, 1])


def test_a_lost_life_is_an_end_to_the_learner_only():
    told, kept = (AtariEnvs("breakout", 2, Atari(life_loss=flag)) for flag in (True, False))
    for envs in (told, kept):
        envs.reset(np.array([0, 1], np.int32))
    lost = ended = 0
    for action in tape("Breakout", 400):
        one, other = (envs.step(np.full(2, action, np.int32)) for envs in (told, kept))
        np.testing.assert_array_equal(one.shown, other.shown)
        np.testing.assert_array_equal(one.ended, other.ended)
        np.testing.assert_array_equal(other.terminated, other.ended)
        assert np.all(one.terminated >= other.terminated)
        lost, ended = lost + one.terminated.sum(), ended + one.ended.sum()
    assert lost >= 5 * ended - 8 > 0, "five lives to a game"


def test_time_runs_out_with_the_last_frame_kept():
    envs = AtariEnvs("pong", 2, Atari(max_frames=100, noops=0))
    frames = [envs.reset(np.zeros(2, np.int32))]
    for number in range(1, 51):
        step = envs.step(np.zeros(2, np.int32))
        assert step.truncated.all() == (number % 25 == 0)
        assert not step.terminated.any()
        if number % 25 == 0:
            np.testing.assert_array_equal(step.shown, frames[0])
            assert not np.array_equal(step.last, step.shown)
        frames.append(step.shown)
    assert Atari(max_frames=100, noops=0).task("ALE/Pong-v5").truncation_interval <= 25


def test_a_single_frame_is_the_newest_of_a_stack():
    """For agents with a memory of their own."""
    single, stacked = (AtariEnvs("breakout", 2, Atari(stack=stack)) for stack in (1, 4))
    shown, frames = (envs.reset(np.arange(2, dtype=np.int32)) for envs in (single, stacked))
    assert shown.shape == (2, *Atari(stack=1).task("ALE/Breakout-v5").observation.features.shape)
    np.testing.assert_array_equal(shown[..., 0], frames)
    for action in tape("Breakout", 60):
        one, other = (envs.step(np.full(2, action, np.int32)) for envs in (single, stacked))
        np.testing.assert_array_equal(one.shown[..., 0], other.shown)


@pytest.mark.parametrize("agent", ["pqn", pytest.param("r2d2", marks=pytest.mark.thorough)])
def test_an_agent_with_a_memory_plays_single_frames(tmp_path, agent):
    own = ["--recurrence", "gru"] if agent == "pqn" else ["--sequence", "4", "--burn-in", "2", "--stride", "4"]
    own += [] if agent == "pqn" else ["--capacity", "256", "--batch-size", "4", "--warm-up-steps", "64"]
    flags = ["--preset", "none", "--stack", "1", "--torso", "mlp", "--hidden", "8", "--units", "8", "--num-envs", "4"]
    flags += ["--rollout-length", "4", "--steps", "128", "--eval-episodes", "1", "--max-episode-steps", "8", "--quiet"]
    run = tmp_path / "run"
    done = command("train", agent, "--env", "ALE/Pong-v5", *flags, *own, "--run-dir", run)
    assert done.returncode == 0, done.stderr
    assert command("eval", run, "--episodes", "1").returncode == 0


def test_scores_are_never_clipped_and_lessons_are():
    task = Atari().task("ALE/Breakout-v5")
    np.testing.assert_array_equal(task.lesson_reward(np.array([-7.0, 0.0, 0.5, 4.0])), [-1.0, 0.0, 0.5, 1.0])
    assert task.spec(8, 4).stack == 4
    assert task.num_actions == 4
    assert Atari(full_actions=True).task("ALE/Breakout-v5").num_actions == 18


def test_every_game_can_be_named():
    names = atari_names()
    assert len(names) > 100
    assert {"ALE/Breakout-v5", "ALE/MsPacman-v5", "ALE/Pong-v5"} <= set(names)
    assert registry.make("ALE/Qbert-v5").num_actions == 6


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ALE/Breakuot-v5", "did you mean Breakout"),
        ("gymnasium:CartPol-v1", "CartPol"),
        ("gymnasium:LunarLander-v3", "needs what is not installed: .*[Bb]ox2"),
        ("gymnasium:bad id", "bad id"),
        ("gymnasium:ALE/Pong-v5", "names of their own: ALE/Pong-v5"),
    ],
)
def test_a_wrong_name_is_one_line(name, told):
    with pytest.raises(ConfigError, match=told) as caught:
        registry.make(name)
    assert "\n" not in str(caught.value)


def test_without_ale_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(errors, "installed", lambda module: False)
    monkeypatch.setattr(names, "installed", lambda module: False)
    with pytest.raises(ConfigError, match=re.escape("pip install 'rollax[atari]'")):
        registry.make("ALE/Breakout-v5")
    assert atari_names() == []


# -- runs


@pytest.mark.thorough
def test_a_game_through_the_command(tmp_path, capfd):
    """Trained, killed by nobody, extended, evaluated and filmed, through the command."""
    folder = tmp_path / "run"
    flags = ["--torso", "mlp", "--hidden", 16, "--eval-episodes", 2, "--max-episode-steps", 60, "--sticky", 0.25]
    shape = ["--num-envs", 16, "--rollout-length", 16, "--minibatches", 4, "--steps", 20_480, "--life-loss"]
    trained = command("train", "pqn", "--env", "ALE/Breakout-v5", *flags, *shape, "--run-dir", folder)
    assert trained.returncode == 0, trained.stderr
    assert "protocol: frame_skip 4, stack 4, noops 30, sticky 0.25, life_loss True" in trained.stdout
    assert summary(folder)["protocol"]["evaluation_epsilon"] == 0.01
    result = rollax.Result(folder)
    assert np.nanmean(result.curves["episodes"]) > 0
    assert np.nanmax(result.curves["episode_return_mean"]) >= 1
    assert rollax.resume(folder, steps=20_992).exit_code == 0
    assert "the environments begin new episodes" in capfd.readouterr().out
    assert run_command("eval", [str(folder), "--episodes", "2", "--epsilon", "0.5"]) == 0
    assert "evaluation_epsilon 0.5" in capfd.readouterr().out
    watched = command("watch", folder, "--max-steps", 12, "--out", tmp_path / "film.mp4")
    assert watched.returncode == 0, watched.stderr
    assert "left after 12 steps, before its end, frame_skip 4" in watched.stdout
    assert (tmp_path / "film.mp4").stat().st_size > 1_000


@pytest.mark.thorough
def test_a_replay_of_frames_is_resumed(tmp_path):
    """Two seeds with priorities in one batch of emulators, and a small network of convolutions in half precision."""
    experiment = rollax.make_experiment(
        "prioritized", env="ALE/Pong-v5", seeds=2, n_step=3, steps=480, num_envs=4, rollout_length=2,
        warm_up_steps=80, capacity=400, batch_size=8, gradient_steps=1, eval_steps=480, eval_episodes=2,
        max_episode_steps=60, filters=(4, 4), windows=(8, 4), strides=(8, 4), hidden=(8,), precision="bfloat16",
    )  # fmt: skip
    first = rollax.train(experiment, tmp_path / "run", quiet=True)
    assert first.exit_code == 0
    longer = rollax.resume(tmp_path / "run", steps=640, quiet=True)
    assert longer.summary["total_steps"] == 640
    assert np.all(np.isfinite(longer.curves["loss"][:, -1]))
    assert len({member["params_sha256"] for member in longer.summary["members"]}) == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("Raises", "the joystick came off", marks=pytest.mark.thorough),
        pytest.param("Hangs", "has not answered for 5 s", marks=pytest.mark.thorough),
    ],
)
def test_an_environment_that_breaks_exits_with_five(name, told, tmp_path):
    env = f"gymnasium:broken_envs:{name}-v0"
    flags = ["--num-envs", 2, "--rollout-length", 8, "--minibatches", 2, "--hidden", 8, "--checkpoint-seconds", 0]
    limits = ["--env-seconds", 5, "--chunk-seconds", 0.01, "--steps", 100_000, "--eval-steps", 100_000]
    done = command("train", "pqn", "--env", env, *flags, *limits, "--run-dir", tmp_path / "run")
    assert done.returncode == 5, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("rollax:")]
    assert env in line
    assert told in line
    assert list((tmp_path / "run" / "checkpoints").iterdir()), "the last checkpoint is kept"


@pytest.mark.thorough
def test_a_gymnasium_environment_is_learnt(tmp_path):
    """CartPole through Gymnasium's vector API, with the preset that it has in JAX."""
    experiment = rollax.make_experiment("double", env="gymnasium:CartPole-v1", steps=50_000, eval_episodes=10)
    assert experiment.loop.num_envs == 64
    result = rollax.train(experiment, tmp_path / "run", quiet=True)
    assert result.summary["members"][0]["eval_return_mean"] > 150


def test_environments_in_processes_of_their_own():
    """Of several arrays, in double precision, with actions that begin at 1; a run's Ctrl-C is not theirs."""
    task: Any = registry.make("gymnasium:broken_envs:Odd-v0", gymnasium_envs.GymnasiumWorld(vectorization="async"))
    assert jax.tree.map(lambda x: (x.shape, str(x.dtype)), task.observation.features) == {
        "flags": ((2,), "bool"), "place": ((3,), "float32"),
    }  # fmt: skip
    stepper = task.stepper(2)
    shown = stepper.reset(np.arange(2, dtype=np.int32))
    assert shown["place"].dtype == np.float32
    for number in range(1, 9):
        stepper.submit(np.array([0, 1], np.int32))
        step = stepper.result()
        np.testing.assert_array_equal(step.reward, [1, 2])  # the action as the environment counts
        assert step.truncated.all() == (number % 4 == 0)
        if step.truncated.all():
            np.testing.assert_array_equal(step.last["place"][:, 0], 4)
            np.testing.assert_array_equal(step.shown["place"][:, 0], 0)
    stepper.close()


def test_what_cannot_be_filmed_is_told_first(tmp_path):
    for name, told in (("film.avi", "must end in .gif or .mp4"), ("nowhere/film.mp4", "there is no folder")):
        with pytest.raises(ConfigError, match=told):
            watch(tmp_path / "no_run", out=tmp_path / name)


def test_numbers_as_observations_become_flags():
    task: Any = registry.make("gymnasium:FrozenLake-v1")
    assert task.observation.features.shape == (16,)
    shown = task.observe(task.begin(jax.random.key(0), 3).obs, np.array([0, 5, 15]), np.ones(3, bool)).features
    np.testing.assert_array_equal(np.argmax(shown, axis=1), [0, 5, 15])
    np.testing.assert_array_equal(task.see(np.array([3])).features, shown[:0].sum(0) + np.eye(16)[[3]])
    envs = task.open(3)
    assert envs.reset(np.arange(3)).dtype == np.int32
    envs.close()


def test_check_env_looks_outside(capsys):
    from rollax.commands.cli import run_command

    assert run_command("check-env", ["ALE/Pong-v5", "--steps", "5"]) == 0
    assert "80 random steps in 16 environments outside JAX" in capsys.readouterr().out
    assert run_command("play", ["ALE/Pong-v5"]) == 2
    assert jax.tree.leaves(registry.make("ALE/Pong-v5").observation)[0].shape == (84, 84, 4)
