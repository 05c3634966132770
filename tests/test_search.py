"""Spaces, populations under surgery, sweeps and Bayesian search."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import jax
import numpy as np
import pytest
from process_tools import command, run

import rollax
from rollax.commands.cli import run_command
from rollax.errors import ConfigError
from rollax.experiment.experiment import Member, from_json, make_experiment
from rollax.experiment.tree import leaves
from rollax.runs.checkpoint import params_sha256
from rollax.search.arena import Arena, with_rungs
from rollax.search.space import read_space
from rollax.search.sweep import members_of, sweep

SMALL: Any = {
    "preset": "none", "num_envs": 4, "hidden": (8,), "capacity": 400, "batch_size": 8, "warm_up_steps": 40,
    "steps": 1_200, "eval_episodes": 3,
}  # fmt: skip
RATES = [1e-4, 1e-3, 1e-2]


def small(**values):
    return with_rungs(make_experiment("double", **(SMALL | values)), 3)


@pytest.fixture(scope="module")
def arena():
    """Three settings in blocks of two, so that the second block is half empty; begun anew by each test."""
    experiment = small()
    return Arena(experiment, members_of(experiment, [{"learning_rate": rate} for rate in RATES]), 2)


def weights(arena):
    """What each member has learnt, as a hash."""
    found = [
        params_sha256(jax.tree.map(lambda leaf, row=row: leaf[row], state.learner.params))
        for state, _ in arena.blocks
        for row in range(arena.block)
    ]
    return found[: len(arena.members)]


# -- spaces


def test_a_space_knows_what_is_traced_and_what_is_whole():
    texts = ["learning-rate=log:1e-4:1e-2", "target-period=int:1:9", "batch-size=choice:8,16", "head=choice:scalar"]
    space = read_space(make_experiment("double"), texts)
    assert [dimension.name for dimension in space.traced] == ["learning_rate", "target_period"]
    assert [dimension.name for dimension in space.fixed] == ["batch_size", "head"]
    drawn = space.draw(np.random.default_rng(0), 9)
    assert sorted(row["target_period"] for row in drawn) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert {row["batch_size"] for row in drawn} == {8, 16}
    assert all(1e-4 <= row["learning_rate"] <= 1e-2 for row in drawn)
    assert np.median([row["learning_rate"] for row in drawn]) == pytest.approx(1e-3)
    rate = space.dimensions[0]
    assert rate.perturbed(9e-3, np.random.default_rng(1)) in (pytest.approx(7.2e-3), 1e-2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("learning_rat=log:1:2", "did you mean learning_rate"),
        ("learning_rate", "must be NAME="),
        ("learning_rate=normal:0:1", "must be uniform:LOW:HIGH"),
        ("learning_rate=log:0:1", "both above 0"),
        ("discount=uniform:0.5:1.5", "discount=1.5 must be at most 1.0"),
        ("head=log:1:2", "is no number"),
        ("head=choice:scaler", "did you mean scalar"),
        ("env=choice:A,B", "cannot be searched"),
    ],
)
def test_a_space_that_cannot_be_is_refused(text, told):
    with pytest.raises(ConfigError, match=told):
        read_space(make_experiment("double"), [text])


def test_a_space_is_read_from_a_file(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"discount": "uniform:0.9:0.99"}))
    (dimension,) = read_space(make_experiment("double"), [], str(path)).dimensions
    assert (dimension.name, dimension.low, dimension.high) == ("discount", 0.9, 0.99)


# -- surgery


@pytest.mark.thorough
def test_a_member_learns_in_a_block_as_in_a_run(arena, tmp_path):
    arena.begin(members_of(arena.experiment, [{"learning_rate": rate} for rate in RATES]))
    while not arena.done:
        arena.advance()
        scores = arena.evaluate()
    alone = rollax.train(small(learning_rate=RATES[2]), tmp_path / "alone", quiet=True)
    (member,) = alone.summary["members"]
    assert scores.mean[2] == pytest.approx(member["eval_return_mean"], abs=1e-3)
    assert not scores.failed.any()


def test_who_is_kept_goes_on_as_if_nobody_had_left(arena):
    arena.begin(members_of(arena.experiment, [{"learning_rate": rate} for rate in RATES]))
    for _ in range(2):
        arena.advance()
    kept = weights(arena)[2]
    arena.keep([2, 0])
    assert len(arena.blocks) == 1
    assert weights(arena)[0] == kept
    assert [member.hparams["learning_rate"] for member in arena.members] == [RATES[2], RATES[0]]
    arena.advance()
    shortened = weights(arena)
    arena.begin(members_of(arena.experiment, [{"learning_rate": rate} for rate in (RATES[2], RATES[0])]))
    while not arena.done:
        arena.advance()
    assert weights(arena) == shortened


def test_who_takes_over_has_the_weights_and_its_own_numbers(arena):
    usual = members_of(arena.experiment, [{"learning_rate": rate} for rate in RATES[:2]])
    arena.begin([Member(seed, member.hparams) for seed, member in enumerate(usual)])
    arena.advance()
    before = weights(arena)
    arena.adopt([1, 1], [{"learning_rate": 0.5}, {"learning_rate": RATES[1]}])
    assert weights(arena) == [before[1], before[1]]
    np.testing.assert_allclose(arena.blocks[0][0].learner.hparams.learning_rate, [0.5, RATES[1]])
    arena.advance()
    assert len(set(weights(arena))) == 2


def test_who_takes_over_in_a_block_that_is_not_full(arena):
    """As where there are more devices than divide the settings: the copies that fill it follow."""
    arena.begin(members_of(arena.experiment, [{"learning_rate": RATES[0]}]))
    arena.adopt([0], [{"learning_rate": 0.5}])
    np.testing.assert_allclose(arena.blocks[0][0].learner.hparams.learning_rate, [0.5, 0.5])


def test_a_number_that_is_not_finite_is_told(arena):
    arena.begin(members_of(arena.experiment, [{"learning_rate": 1e30, "max_grad_norm": 1e30}, {}, {}]))
    arena.advance()
    assert arena.evaluate().failed.tolist() == [True, False, False]


# -- sweeps


@pytest.mark.parametrize(
    "method", ["pbt", *(pytest.param(m, marks=pytest.mark.thorough) for m in ("random", "halving"))]
)
def test_a_sweep(method, tmp_path):
    experiment = make_experiment("double", **SMALL)
    space = read_space(experiment, ["learning-rate=log:1e-4:1e-2", "discount=uniform:0.9:0.99"])
    found = sweep(experiment, space, method, 4, 3, tmp_path, lambda line: None)
    counts = {step: sum(row.step == step for row in found.rows) for step in {row.step for row in found.rows}}
    assert [counts[step] for step in sorted(counts)] == ([4, 2, 1] if method == "halving" else [4, 4, 4])
    assert found.score == max(row.score for row in found.rows if row.status == "finished")
    if method == "pbt":
        first = {row.numbers["learning_rate"] for row in found.rows[:4]}
        assert {row.numbers["learning_rate"] for row in found.rows[-4:]} != first
    best = from_json(json.loads((tmp_path / "best.json").read_text()))
    assert {leaf.name: leaf.value for leaf in leaves(best)}["learning_rate"] == found.best["learning_rate"]
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 1 + len(found.rows)


def test_a_sweep_of_what_changes_the_program_is_refused(capsys):
    assert run_command("sweep", ["double", "--search", "batch-size=choice:8,16"]) == 2
    assert "`rollax tune` takes all" in capsys.readouterr().err


# -- Bayesian search


def arguments(folder, *flags):
    own = [f"--{name.replace('_', '-')}" for name in SMALL]
    values = [("8",) if name == "hidden" else (str(value),) for name, value in SMALL.items()]
    usual = [word for flag, value in zip(own, values, strict=True) for word in (flag, *value)]
    search = ["--search", "learning-rate=log:1e-5:1e-1", "--search", "batch-size=choice:8,16"]
    return ["tune", "double", *usual, *search, "--out", str(folder), *flags]


def study_in(folder):
    optuna = pytest.importorskip("optuna", reason="the extra tune is not installed")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    return optuna.load_study(study_name="double on CartPole-v1", storage=storage)


@pytest.mark.thorough
def test_a_search_that_is_killed_ends_with_exactly_its_trials(tmp_path):
    """Killed in the middle, the same command takes up what was running; a choice that cannot be is recorded."""
    flags = ["--trials", "8", "--batch", "4", "--rungs", "2", "--search", "capacity=choice:400,402"]
    flags += ["--confirm", "1"]
    kills_itself = (
        "import os, signal, sys; from rollax.__main__ import main; from rollax.search.arena import Arena\n"
        "Arena.advance = lambda arena: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main(sys.argv[1:])"
    )
    assert run([sys.executable, "-c", kills_itself, *arguments(tmp_path, *flags)]).returncode == -signal.SIGKILL
    left = study_in(tmp_path).get_trials()
    assert any(trial.state.name == "RUNNING" for trial in left)
    done = command(*arguments(tmp_path, *flags))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3].startswith("8 trials in ")
    trials = study_in(tmp_path).get_trials()
    own = [trial for trial in trials if trial.state.name != "FAIL" or "cause" in trial.user_attrs]
    assert len(own) == 8
    assert not any(trial.state.name == "RUNNING" for trial in trials)
    causes = [trial.user_attrs.get("cause", "") for trial in trials if trial.params.get("capacity") == 402]
    assert all("not a multiple" in cause for cause in causes if cause)
    assert (tmp_path / "study.png").stat().st_size > 10_000
    assert run_command("train", ["--config", str(tmp_path / "best.json"), "--run-dir", str(tmp_path / "run")]) == 0
