"""Actors that do not wait: their replay, their epsilons, and a run in which one of them is lost."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import jax
import numpy as np
import psutil
import pytest
from process_tools import HANGING, rollax, surroundings, wait_for

import rollax as api
from rollax.commands.cli import run_command
from rollax.errors import PREEMPTED
from rollax.experiment.experiment import make_experiment
from rollax.experiment.tree import to_json
from rollax.memory.ring import Batch
from rollax.programs.actors import Actor, epsilon_of
from rollax.programs.flat_replay import FlatReplay
from rollax.runs.folder import RunFolder
from rollax.runs.result import load
from rollax.types import Observation


def numbered(first, count):
    """Transitions that carry their number."""
    numbers = np.arange(first, first + count)
    shown = Observation(numbers[:, None].astype(np.float32))
    columns: Any = (numbers, numbers.astype(np.float32), np.ones(count))
    return Batch(shown, *columns, shown)


def test_transitions_are_drawn_by_priority_and_old_ones_leave():
    replay = FlatReplay(8, exponent=1.0, seed=0)
    replay.add(numbered(0, 6), np.array([1.0, 0, 0, 0, 0, 3.0]))
    drawn = replay.draw(4, 1_000, importance_exponent=1.0)
    shares = np.bincount(drawn.batch.action.reshape(-1), minlength=6) / 4_000
    np.testing.assert_allclose(shares[[0, 5]], [0.25, 0.75], atol=0.03)
    np.testing.assert_array_equal(drawn.handle, drawn.batch.action)
    weights = {int(number): float(weight) for number, weight in zip(drawn.handle.flat, drawn.weight.flat, strict=True)}
    assert weights[0] == pytest.approx(1.0)
    assert weights[5] == pytest.approx(1 / 3, rel=1e-4)  # three times as likely, a third of the weight
    replay.add(numbered(6, 4), np.full(4, 1.0))  # in place of 0 and 1
    assert len(replay) == 8
    replay.reprioritize(np.array([0, 5]), np.array([1e6, 0.0]))  # 0 is gone, and 8 is in its place
    drawn = replay.draw(1, 2_000, importance_exponent=0.0)
    assert set(np.unique(drawn.batch.action)) <= {5, 6, 7, 8, 9}
    assert np.bincount(drawn.batch.action.reshape(-1), minlength=10)[8] / 2_000 == pytest.approx(0.25, abs=0.04)
    np.testing.assert_array_equal(drawn.weight, 1.0)


def test_actors_explore_differently():
    assert [round(epsilon_of(actor, 8), 5) for actor in (0, 7)] == [0.4, 0.00066]
    assert epsilon_of(0, 1) == pytest.approx(0.4)


def experiment(**values):
    return make_experiment(
        "apex", preset="none", num_envs=4, rollout_length=4, hidden=(8,), capacity=1_600, batch_size=8,
        warm_up_steps=64, steps=1_600, actors=2, **values,
    )  # fmt: skip


def test_an_actor_sends_every_transition_once():
    """In order and without a gap: the first observation of each window is the next step's of the one before."""
    actor = Actor(to_json(experiment()), 1)
    actor.begin(0, 1)
    sent = []
    for number in range(12):
        key = jax.random.fold_in(actor.key, number)
        actor.memory, actor.envs, batch, priority, *_ = actor.program(actor.learner, actor.memory, actor.envs, key)
        sent.append((jax.tree.map(np.asarray, batch), np.asarray(priority)))
    complete = sent[2:]  # after that every window was there
    obs = np.concatenate([batch.obs.features.reshape(4, 2, 4) for batch, _ in complete])  # [T, B, 4]
    following = np.concatenate([batch.next_obs.features.reshape(4, 2, 4) for batch, _ in complete])
    discount = np.concatenate([batch.discount.reshape(4, 2) for batch, _ in complete])
    whole = np.isclose(discount, 0.99**3, rtol=1e-5)  # three steps, none of them the last
    assert whole.mean() > 0.5
    for step, env in zip(*np.nonzero(whole[:-3]), strict=True):
        np.testing.assert_array_equal(following[step, env], obs[step + 3, env])
    assert all((priority > 0).all() for _, priority in complete)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["double", "--actors", "2"], "want priorities"),
        (["ppo", "--actors", "2"], "collect for a replay, which ppo has not; try `rollax train apex`"),
        (
            ["apex", "--actors", "3", "--num-envs", "16"],
            "num_envs=16 cannot be shared out to 3 actors; try num_envs=15",
        ),
        (["apex", "--actors", "2", "--seeds", "2"], "leave --seeds out"),
        (["apex", "--actors", "2", "--replay-shards", "4"], "more than the actors"),
        (["apex", "--actors", "2", "--replay-on", "host"], "replay_on=host is for environments outside JAX"),
    ],
)
def test_what_does_not_go_with_actors_is_refused(flags, told, capsys):
    assert run_command("train", [*flags, "--preset", "none"]) == 2
    assert told in capsys.readouterr().err


def lose_an_actor(running, metrics, told):
    """Kills one when there is something to log, so that it has surely begun, and waits until the run has logged it."""
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 5, running)
    below = psutil.Process(running.pid).children(recursive=True)  # other runs may have actors on this machine
    next(process for process in below if process.cmdline()[:1] == ["ray::Actor.run"]).kill()
    wait_for(lambda: "an actor was lost" in told.read_text(), running)
    wait_for(lambda: int(metrics.read_text().splitlines()[-1].rpartition(",")[2]) >= 1, running)


@pytest.mark.thorough
def test_a_run_goes_on_without_an_actor_and_can_be_played(tmp_path):
    """One actor is killed on the way; the run says so, replaces it, and goes on until it is asked to stop."""
    flags = "--preset none --num-envs 4 --rollout-length 4 --hidden 8 --capacity 1600 --batch-size 8 --warm-up-steps 64"
    more = f"--steps {10**8} --log-steps 400 --eval-episodes 4 --actors 2 --run-dir {tmp_path / 'run'}"
    command = rollax("train", "apex", *flags.split(), *more.split())
    told = tmp_path / "told.txt"
    with told.open("w") as err:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, env=surroundings())
    try:
        lose_an_actor(running, tmp_path / "run" / "metrics.csv", told)
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANGING) == PREEMPTED, told.read_text()
    finally:
        running.kill()
    folder = RunFolder(tmp_path / "run")
    rows, _ = folder.read_table(folder.metrics)
    assert int(rows[-1]["lost"]) >= 1
    assert float(rows[-1]["updates"]) > 0
    assert json.loads(folder.summary.read_text())["status"] == "interrupted"
    assert run_command("eval", [str(folder.path), "--episodes", "2"]) == 0


@pytest.mark.thorough
def test_a_run_with_actors_is_trained_resumed_and_loaded_as_any_other(tmp_path):
    """Actors do not stop on the step: what is saved, logged and told is where the run really stands."""
    first = api.train(experiment(log_steps=160, eval_episodes=2), tmp_path / "run", quiet=True)
    reached = first.summary["total_steps"]
    assert first.exit_code == 0
    assert reached >= 1_600
    assert first.curves["step"][0, -1] == first.evaluations["step"][0, -1] == reached
    assert int(RunFolder(first.run_dir).checkpoint_steps()[0]) == reached
    later = api.resume(first.run_dir, reached + 800, quiet=True)
    assert later.summary["total_steps"] >= reached + 800
    rows = first.curves["step"].shape[1]
    np.testing.assert_array_equal(later.curves["step"][:, :rows], first.curves["step"])
    assert np.all(np.diff(later.curves["updates"]) >= 0)
    assert load(first.run_dir)(np.zeros(4, np.float32)) in (0, 1)
