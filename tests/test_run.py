"""Whole runs: what the folder holds, and what must not change a bit of it."""

from __future__ import annotations

import csv
import json
import os
import pickle
import re
import shutil
import signal
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import rollax
from rollax.commands.cli import run_command
from rollax.errors import CheckpointError, ConfigError, EnvError
from rollax.experiment.experiment import make_experiment
from rollax.experiment.tree import to_json
from rollax.programs.jit import JitProgram
from rollax.programs.plan import make_plan
from rollax.runs import checkpoint
from rollax.runs.advancing import next_stop
from rollax.runs.folder import RunFolder
from rollax.runs.result import evaluate_run
from rollax.runs.resuming import check_origin, check_version

SMALL: Any = {
    "preset": "none",
    "num_envs": 8,
    "hidden": (16,),
    "capacity": 2_000,
    "batch_size": 16,
    "warm_up_steps": 200,
    "steps": 3_000,
    "log_steps": 400,
    "eval_steps": 1_000,
    "eval_episodes": 5,
}


def small_run(folder, agent="double", quiet=True, **changes):
    return rollax.train(rollax.make_experiment(agent, **(SMALL | {"seeds": 2} | changes)), folder, quiet=quiet)


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def without_clock(path):
    """A table less the columns that are named after the clock."""
    clock = ("wall_seconds", "steps_per_second")
    return [{name: cell for name, cell in row.items() if name not in clock} for row in rows(path)]


def hashes(folder):
    summary = json.loads((folder / "summary.json").read_text())
    return [member["params_sha256"] for member in summary["members"]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "plain"
    return small_run(folder, seeds=2)


def test_the_folder_holds_what_others_rely_on(plain):
    folder = plain.run_dir
    names = {"config.json", "metrics.csv", "evaluations.csv", "summary.json", "checkpoints", "curve.png"}
    assert names <= {entry.name for entry in folder.iterdir()}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert (summary["agent"], summary["env"], summary["total_steps"]) == ("double", "CartPole-v1", 3_000)
    assert summary["wall_seconds"] >= summary["train_seconds"] > 0
    assert summary["steps_per_second"] == pytest.approx(2 * 3_000 / summary["train_seconds"], rel=0.02)
    assert {"python", "jax", "rollax"} <= summary["versions"].keys()
    for index, member in enumerate(summary["members"]):
        assert (member["member"], member["seed"], member["status"]) == (index, index, "finished")
        assert len(member["params_sha256"]) == 64
        assert member["hparams"]["discount"] == 0.99
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert not any(name in (folder / "config.json").read_text() for name in (str(folder), "run_dir"))


def test_metrics_lie_on_the_grid_and_end_with_the_run(plain):
    table = rows(plain.run_dir / "metrics.csv")
    steps = [int(row["step"]) for row in table if row["member"] == "1"]
    assert steps == [400, 800, 1_200, 1_600, 2_000, 2_400, 2_800, 3_000]
    assert list(table[0])[:9] == [
        "step", "member", "seed", "wall_seconds", "steps_per_second",
        "episodes", "episode_return_mean", "episode_length_mean", "loss",
    ]  # fmt: skip
    assert float(table[-1]["loss"]) > 0
    assert 0 < float(table[-1]["epsilon"]) < 1
    for row in table:
        assert (row["episode_return_mean"] == "") == (row["episodes"] == "0")
        if row["episodes"] != "0":
            assert float(row["episode_return_mean"]) == pytest.approx(float(row["episode_length_mean"]))


def test_evaluations_count_each_environment_once(plain):
    table = rows(plain.run_dir / "evaluations.csv")
    assert [int(row["step"]) for row in table if row["member"] == "0"] == [1_000, 2_000, 3_000]
    for row in table:
        assert row["episodes"] == "5"
        assert float(row["return_min"]) <= float(row["return_mean"]) <= float(row["return_max"])
        assert float(row["length_mean"]) == float(row["return_mean"])
    summary = plain.summary
    assert summary["members"][1]["eval_return_mean"] == pytest.approx(float(table[-1]["return_mean"]))


def test_an_evaluation_cuts_what_does_not_end(tmp_path):
    result = small_run(tmp_path / "run", max_episode_steps=3, steps=1_000)
    for row in rows(result.run_dir / "evaluations.csv"):
        assert (row["truncated"], row["length_mean"]) == ("5", "3.0")


def test_the_same_command_twice_writes_the_same(plain, tmp_path):
    again = small_run(tmp_path / "again", seeds=2)
    for name in ("metrics.csv", "evaluations.csv"):
        assert without_clock(plain.run_dir / name) == without_clock(again.run_dir / name)
    assert hashes(plain.run_dir) == hashes(again.run_dir)


@pytest.mark.parametrize(
    "change",
    [
        {"chunk_seconds": 0.0},
        {"checkpoint_seconds": 0.0},
        {"eval_steps": 504, "eval_episodes": 3},
        {"log_steps": 56},
        {"keep_checkpoints": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_nothing_that_is_seen_changes_what_is_learnt(plain, tmp_path, change):
    other = small_run(tmp_path / "other", **change)
    assert hashes(other.run_dir) == hashes(plain.run_dir)
    if "log_steps" not in change:
        assert without_clock(other.run_dir / "metrics.csv") == without_clock(plain.run_dir / "metrics.csv")


def test_a_config_file_repeats_the_run(plain, tmp_path):
    from rollax.experiment.experiment import from_json

    loaded = from_json(json.loads((plain.run_dir / "config.json").read_text()))
    again = rollax.train(loaded, tmp_path / "again", quiet=True)
    assert hashes(again.run_dir) == hashes(plain.run_dir)


def interrupted(plain, folder, step):
    """A copy of a run as a kill would have left it: an old checkpoint, and rows that go beyond it."""
    shutil.copytree(plain.run_dir, folder)
    for entry in (folder / "checkpoints").iterdir():
        if int(entry.name) > step:
            shutil.rmtree(entry)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"status": "running"}))
    return folder


@pytest.mark.parametrize("kind", [rollax.Preempted, rollax.Interrupted])
def test_a_signal_is_raised_in_python_once_the_run_is_saved(plain, tmp_path, kind):
    """So that a loop of the caller's does not go on as if nothing had happened; and the run can."""
    number = {rollax.Preempted: signal.SIGTERM, rollax.Interrupted: signal.SIGINT}[kind]
    experiment = make_experiment("double", **(SMALL | {"seeds": 2, "chunk_seconds": 0.0}))
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]

    def stop_it(*_):
        os.kill(os.getpid(), number)

    with pytest.raises(rollax.RollaxError) as caught:
        rollax.train(experiment, tmp_path / "run", quiet=True, on_rows=stop_it)
    stopped: Any = pickle.loads(pickle.dumps(caught.value))
    assert type(stopped) is kind
    assert stopped.run_dir == tmp_path / "run"
    assert f"rollax resume {tmp_path / 'run'}" in str(stopped)
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert json.loads((stopped.run_dir / "summary.json").read_text())["status"] == "interrupted"
    with pytest.raises(kind):
        rollax.resume(stopped.run_dir, quiet=True, on_rows=stop_it)
    assert rollax.resume(stopped.run_dir, quiet=True).exit_code == 0
    assert hashes(stopped.run_dir) == hashes(plain.run_dir)
    assert without_clock(stopped.run_dir / "metrics.csv") == without_clock(plain.run_dir / "metrics.csv")


@pytest.fixture(scope="module")
def often_saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "often"
    return small_run(folder, checkpoint_seconds=0.0, chunk_seconds=0.0, keep_checkpoints=1_000)


@pytest.mark.parametrize("share", [0.0, *(pytest.param(x, marks=pytest.mark.thorough) for x in (0.03, 0.4)), 0.77, 1.0])
def test_resuming_equals_not_stopping(often_saved, plain, tmp_path, share):
    """From checkpoints at the end of the warm-up, between rows, and at the end: weights and rows are the same."""
    steps = RunFolder(often_saved.run_dir).checkpoint_steps()[::-1]
    step = steps[int(share * (len(steps) - 1))]
    folder = interrupted(often_saved, tmp_path / "killed", step)
    result = rollax.resume(folder, quiet=True)
    assert result.exit_code == 0
    assert hashes(folder) == hashes(plain.run_dir)
    for name in ("metrics.csv", "evaluations.csv"):
        assert without_clock(folder / name) == without_clock(plain.run_dir / name)


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_anew(plain, tmp_path):
    folder = interrupted(plain, tmp_path / "killed", step=-1)
    RunFolder(folder).write_summary(plain.summary | {"status": "running", "total_steps": 0})
    rollax.resume(folder, quiet=True)
    assert hashes(folder) == hashes(plain.run_dir)
    assert without_clock(folder / "metrics.csv") == without_clock(plain.run_dir / "metrics.csv")


def test_a_run_that_has_lost_its_checkpoints_starts_anew_only_when_told_and_keeps_its_rows(plain, tmp_path, capsys):
    folder = interrupted(plain, tmp_path / "killed", step=-1)
    rows_before = (folder / "metrics.csv").read_bytes()
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"has rows but no checkpoint; .*--restart` begins again at step 0"):
            rollax.resume(folder, quiet=True)
        assert (folder / "metrics.csv").read_bytes() == rows_before
    rollax.resume(folder, quiet=True, restart=True)
    assert (folder / "metrics.1.csv").read_bytes() == rows_before
    assert "kept beside: metrics.1.csv, evaluations.1.csv" in capsys.readouterr().err
    assert hashes(folder) == hashes(plain.run_dir)
    with pytest.raises(ConfigError, match="3000 is whole; leave --restart out"):
        rollax.resume(folder, quiet=True, restart=True)


def test_damage_falls_back_to_the_last_good_checkpoint(often_saved, plain, tmp_path, capsys):
    steps = RunFolder(often_saved.run_dir).checkpoint_steps()
    folder = interrupted(often_saved, tmp_path / "killed", step=steps[20])
    victim = folder / "checkpoints" / str(steps[20]) / "arrays.safetensors"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 4
    victim.write_bytes(bytes(data))
    rollax.resume(folder, quiet=True)
    assert "is damaged; the checkpoint of step" in capsys.readouterr().err
    assert hashes(folder) == hashes(plain.run_dir)


def test_the_state_of_another_experiment_is_refused(often_saved, tmp_path):
    step = RunFolder(often_saved.run_dir).checkpoint_steps()[5]
    folder = interrupted(often_saved, tmp_path / "killed", step)
    config = json.loads((folder / "config.json").read_text())
    config["hparams"]["discount"] = 0.5
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"hparams\.discount: 0\.99 -> 0\.5"):
        rollax.resume(folder, quiet=True)


def test_a_checkpoint_of_another_version_is_refused_before_anything_is_compiled(often_saved, tmp_path, monkeypatch):
    step = RunFolder(often_saved.run_dir).checkpoint_steps()[5]
    folder = interrupted(often_saved, tmp_path / "killed", step)
    path = folder / "checkpoints" / str(step)
    arrays, meta = load_file(path / checkpoint.ARRAYS), checkpoint.verify(path)
    del arrays["train/envs/episode_length"]
    checkpoint.write(path, arrays | {"train/learner/hparams/epsilon_decay": np.zeros(2, np.float32)}, meta)
    monkeypatch.setattr(JitProgram, "compile", None)
    with pytest.raises(CheckpointError, match=r"such as train/envs/episode_length: .*--init-from .*killed") as caught:
        rollax.resume(folder, quiet=True)
    assert "\n" not in str(caught.value)
    assert rollax.load(folder)(np.zeros(4, np.float32)) in (0, 1)


def test_a_checkpoint_may_be_from_before_a_field_was_there(tmp_path):
    config = to_json(make_experiment("double"))
    old = json.loads(json.dumps(config))
    del old["loop"]["overlap"]
    check_origin(tmp_path, {"config": old}, config)
    with pytest.raises(CheckpointError, match=r"loop\.overlap: True -> False"):
        check_origin(tmp_path, {"config": old}, {**config, "loop": {**config["loop"], "overlap": False}})


@pytest.fixture
def of_the_first_version(plain, tmp_path):
    """A finished run as rollax 0.1.0 left it: other arrays, settings that are parts now, and no version."""
    folder = RunFolder(tmp_path / "old")
    shutil.copytree(plain.run_dir, folder.path)
    path, meta = folder.newest_good_checkpoint()
    assert path is not None
    arrays = load_file(path / checkpoint.ARRAYS)
    slots = {"exploration", "target", "objective"}
    inside = re.compile(rf"(train/learner/hparams/)(?:{'|'.join(slots)})/")
    arrays = {inside.sub(r"\1", name): array for name, array in arrays.items()}
    config = meta["config"]
    parts = [config["hparams"].pop(slot) for slot in slots]
    config["hparams"] |= {name: value for part in parts for name, value in part.items() if name != "part"}
    del meta["rollax"]
    checkpoint.write(path, arrays, meta)
    folder.write_config(config)
    return folder.path


def test_a_run_of_the_first_version_is_not_resumed_and_says_so_in_one_line(of_the_first_version, capsys):
    folder = of_the_first_version
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    assert run_command("resume", [str(folder), "--steps", "5000", "--quiet"]) == CheckpointError.exit_code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder}/checkpoints/3000 was written by rollax 0.1.0" in line
    assert f"eval, load and report work, and --init-from {folder}" in line
    assert all(path.read_bytes() == data for path, data in before.items())


def test_a_run_of_the_first_version_serves_for_all_but_resuming(of_the_first_version, plain, tmp_path):
    folder = str(of_the_first_version)
    probe = np.random.default_rng(0).normal(size=(64, 4))
    np.testing.assert_array_equal(rollax.load(folder, 1)(probe), plain.policy(1)(probe))
    np.testing.assert_array_equal(rollax.load(folder, 1, best=True)(probe), plain.policy(1, best=True)(probe))
    assert evaluate_run(folder, 3) == evaluate_run(plain.run_dir, 3)
    assert run_command("report", [folder, "--out", str(tmp_path / "report.html")]) == 0
    result = small_run(tmp_path / "run", init_from=folder, learning_rate=0.0, steps=400)
    np.testing.assert_array_equal(result.policy(0)(probe), plain.policy(0, best=True)(probe))


def test_a_checkpoint_names_the_version_that_wrote_it(plain):
    folder = RunFolder(plain.run_dir)
    path, meta = folder.newest_good_checkpoint()
    assert path is not None
    assert meta["rollax"] == rollax.__version__
    check_version(path, meta, folder)
    check_version(path, meta | {"rollax": "0.10.1"}, folder)
    with pytest.raises(CheckpointError, match=r"was written by rollax 0\.1\.7"):
        check_version(path, meta | {"rollax": "0.1.7"}, folder)


def test_a_finished_run_is_shown_or_extended(plain, tmp_path, capsys):
    folder = tmp_path / "longer"
    shutil.copytree(plain.run_dir, folder)
    before = hashes(folder)
    assert rollax.resume(folder).exit_code == 0
    assert "finished at step 3,000" in capsys.readouterr().out
    assert hashes(folder) == before
    rollax.resume(folder, 5_000, quiet=True)
    at_once = small_run(tmp_path / "at_once", steps=5_000)
    assert hashes(folder) == hashes(at_once.run_dir)
    assert without_clock(folder / "metrics.csv") == without_clock(at_once.run_dir / "metrics.csv")


def test_a_run_cannot_be_shortened_below_where_it_is(often_saved, tmp_path):
    steps = RunFolder(often_saved.run_dir).checkpoint_steps()
    folder = interrupted(often_saved, tmp_path / "killed", steps[10])
    with pytest.raises(ConfigError, match="is less than the"):
        rollax.resume(folder, 500, quiet=True)
    assert json.loads((folder / "config.json").read_text())["steps"] == 3_000


def test_a_broken_summary_or_table_does_not_stop_a_resume(often_saved, plain, tmp_path):
    step = RunFolder(often_saved.run_dir).checkpoint_steps()[10]
    folder = interrupted(often_saved, tmp_path / "killed", step)
    (folder / "summary.json").write_text("{")
    (folder / "metrics.csv").write_text((folder / "metrics.csv").read_text() + "\n")
    rollax.resume(folder, quiet=True)
    assert hashes(folder) == hashes(plain.run_dir)


def test_an_existing_run_is_refused_and_resume_is_named(plain):
    with pytest.raises(ConfigError, match="rollax resume"):
        small_run(plain.run_dir)


def test_steps_are_rounded_up_to_whole_iterations(tmp_path, capsys):
    small_run(tmp_path / "run", steps=1_001, quiet=False)
    assert "1,008 steps each (rounded up from 1,001)" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["total_steps"] == 1_008


def test_a_population_of_settings(tmp_path):
    result = small_run(tmp_path / "run", learning_rate=(1e-3, 1e-2), steps=1_000)
    listed = [(member["seed"], member["hparams"]["learning_rate"]) for member in result.summary["members"]]
    assert listed == [(0, 1e-3), (1, 1e-3), (0, 1e-2), (1, 1e-2)]
    assert len(set(hashes(result.run_dir))) == 4
    assert result.curves["step"].shape == (4, 3)


def test_curves_and_policies_come_back_as_arrays(plain):
    curves = plain.curves
    assert curves["episode_return_mean"].shape == (2, 8)
    np.testing.assert_array_equal(curves["step"][0], [400, 800, 1_200, 1_600, 2_000, 2_400, 2_800, 3_000])
    policy = rollax.load(plain.run_dir, member=1)
    one = policy(np.zeros(4))
    many = policy(np.zeros((7, 4)))
    assert one.shape == ()
    assert many.shape == (7,)
    assert (many == one).all()
    assert plain.policy(1)(np.ones(4)) == policy(np.ones(4))
    with pytest.raises(ConfigError, match="member=2 must be in"):
        plain.policy(2)


def test_the_best_weights_are_kept_beside_the_last(plain):
    table = rows(plain.run_dir / "evaluations.csv")
    folder = RunFolder(plain.run_dir)
    path, _ = folder.newest_good_checkpoint()
    assert path is not None
    stored = load_file(path / "arrays.safetensors")
    for member in range(2):
        best = max(float(row["return_mean"]) for row in table if row["member"] == str(member))
        assert stored["best/score"][member] == pytest.approx(best)


def test_a_run_starts_from_trained_weights(plain, tmp_path):
    result = small_run(tmp_path / "run", init_from=str(plain.run_dir), learning_rate=0.0, steps=400)
    with_best = plain.policy(0, best=True)
    probe = np.random.default_rng(0).normal(size=(64, 4))
    np.testing.assert_array_equal(result.policy(0)(probe), with_best(probe))
    with pytest.raises(ConfigError, match="has 2 members; it needs 1 or 3"):
        small_run(tmp_path / "other", init_from=str(plain.run_dir), seeds=3)
    with pytest.raises(CheckpointError, match="but this experiment needs"):
        small_run(tmp_path / "wider", init_from=str(plain.run_dir), hidden=(8,))
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "wider").exists()


def test_without_an_evaluation_the_last_weights_are_the_best(often_saved, tmp_path):
    step = next(step for step in RunFolder(often_saved.run_dir).checkpoint_steps() if step < 1_000)
    folder = interrupted(often_saved, tmp_path / "early", step)
    probe = np.random.default_rng(0).normal(size=(64, 4))
    np.testing.assert_array_equal(rollax.load(folder)(probe), rollax.load(folder, best=True)(probe))


def test_a_policy_takes_what_the_environment_shows(tmp_path):
    result = small_run(tmp_path / "run", env="FrozenLake-misc", steps=400)
    policy = result.policy(0)
    assert policy(5).shape == ()
    assert policy(np.arange(4)).shape == (4,)
    with pytest.raises(ValueError, match="an observation has the shape"):
        policy(np.zeros((2, 2)))


def test_numbers_that_are_not_finite_fail_their_member(tmp_path, capsys):
    sizes: Any = {"seeds": 4, "num_envs": 1, "capacity": 2_000, "steps": 800}
    # Evaluations are over before anything breaks.
    result = small_run(tmp_path / "run", env="probes:nan_rewards", max_episode_steps=10, **sizes)
    assert result.exit_code == 4
    error = capsys.readouterr().err
    states = [member["status"] for member in result.summary["members"]]
    assert result.summary["status"] == "failed"
    assert set(states) == {"failed", "finished"}
    for member in result.summary["members"]:
        if member["status"] == "failed":
            assert member["failure"]["tensor"] == "rewards"
            assert f"member {member['member']} (seed {member['seed']}) stopped at step 21: rewards" in error
    stored = rollax.load(tmp_path / "run", member=states.index("failed"))
    assert all(np.isfinite(leaf).all() for leaf in _leaves(stored.learner.params))
    table = rows(tmp_path / "run" / "metrics.csv")
    assert {row["member"] for row in table if row["step"] == "800"} == {
        str(index) for index, status in enumerate(states) if status == "finished"
    }
    assert rollax.resume(tmp_path / "run", quiet=True).exit_code == 4


def test_a_run_whose_members_all_fail_ends_with_four(tmp_path):
    result = small_run(tmp_path / "run", env="probes:nan_at_once", steps=800)
    assert result.exit_code == 4
    assert result.summary["status"] == "failed"
    assert {member["failure"]["tensor"] for member in result.summary["members"]} == {"observations"}
    assert result.curves == {}


@pytest.mark.parametrize("agent", ["double", pytest.param("ppo", marks=pytest.mark.thorough)])
def test_a_running_episode_without_a_legal_action_stops_the_run(tmp_path, agent):
    sizes = {"capacity": 2_000, "warm_up_steps": 200} if agent == "double" else {"rollout_length": 4}
    changes = {"num_envs": 8, "steps": 800, "hidden": (8,), "env": "probes:stuck", **sizes}
    with pytest.raises(EnvError, match=r"probes:stuck left no legal action in a running episode, by step \d+") as error:
        rollax.train(rollax.make_experiment(agent, preset="none", **changes), tmp_path / "run", quiet=True)
    assert error.value.exit_code == 5


@pytest.mark.thorough
def test_a_collapse_of_the_policy_is_told_once(tmp_path, capsys):
    """With nothing to choose from, there is no entropy from the start."""
    changes = {"num_envs": 8, "rollout_length": 4, "steps": 800, "log_steps": 32, "hidden": (8,), "seeds": 2}
    rollax.train(rollax.make_experiment("ppo", preset="none", env="probes:no_choice", **changes), tmp_path / "run")
    told = [line for line in capsys.readouterr().err.splitlines() if "entropy" in line]
    assert len(told) == 1
    assert "--entropy-weight" in told[0]
    assert {"entropy", "approx_kl", "clip_fraction"} <= rows(tmp_path / "run" / "metrics.csv")[0].keys()


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def test_chunks_stop_where_something_happens():
    plan = make_plan(rollax.make_experiment("double", **SMALL))
    assert next_stop(plan, 0, None) == 25  # the warm-up ends
    assert next_stop(plan, 25, 1e-9) == 125  # an evaluation
    assert next_stop(plan, 25, 1.0) == 27  # two seconds
    assert next_stop(plan, 374, 1e-9) == 375  # the end
