"""Settings that follow a table or a function of environment steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rollax
from rollax.agents.names import AGENTS
from rollax.commands.cli import run_command
from rollax.commands.flags import ExperimentFlags, parse_experiment
from rollax.errors import ConfigError
from rollax.experiment.experiment import from_json, make_experiment, population
from rollax.experiment.looking import looked_at, modules_in
from rollax.experiment.scheduled import ENDING, followed, function_problem, points, value_at
from rollax.experiment.tree import leaves, to_json
from rollax.programs.plan import make_plan
from rollax.rules.schedules import Scheduled
from rollax.runs.trust import experiment_in
from rollax.search.arena import copied

TINY: dict[str, Any] = {
    "preset": "none", "num_envs": 4, "hidden": (8,), "capacity": 400, "batch_size": 8, "warm_up_steps": 40,
    "eval_episodes": 2, "max_episode_steps": 10, "devices": 1, "eval_steps": 400, "log_steps": 40,
}  # fmt: skip
TABLES = ("0:1,200:0.5,200:0.2,400:0.4", "0:0.9")


class Following(NamedTuple):
    """As much of a learner as a search copies."""

    hparams: Any
    weights: Any


def falling(env_steps):
    """A function that can be imported by its name."""
    return 1e-3 / (1.0 + env_steps / 100.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A population of two tables of epsilon, whose learning rate falls by a table."""
    folder = tmp_path_factory.mktemp("schedules") / "run"
    values: dict[str, Any] = {"epsilon_schedule": TABLES, "learning_rate_schedule": {0: 1e-3, 300: 1e-4}}
    return rollax.train(make_experiment("prioritized", steps=400, **TINY, **values), folder, quiet=True)


def hashes(result):
    return [member["params_sha256"] for member in result.summary["members"]]


# -- tables


ASCENDING = st.lists(st.integers(0, 10**6), min_size=1, max_size=6, unique=True).map(sorted)


@given(ASCENDING, st.data())
def test_a_table_is_linear_between_its_points(steps, data):
    values = data.draw(
        st.lists(st.floats(0, 1, width=32, allow_subnormal=False), min_size=len(steps), max_size=len(steps))
    )
    text = ",".join(f"{step}:{value!r}" for step, value in zip(steps, values, strict=True))
    for now in (0, *steps, data.draw(st.integers(0, 2 * 10**6))):
        assert value_at("x", text, now) == pytest.approx(np.interp(now, steps, values), abs=1e-6)
    assert [value_at("x", text, step) for step in steps] == [np.float32(value) for value in values]  # exactly


def test_two_points_at_one_step_are_a_jump():
    assert [value_at("x", "0:1,10:0.5,10:0.25,20:0", now) for now in (9.9999, 10, 15, 20, 99)] == [
        *(pytest.approx(0.5, abs=1e-4), 0.25, 0.125, 0.0, 0.0)
    ]


def test_members_follow_tables_of_different_lengths():
    schedule = followed("x", ["0:1,10:0", "5:2"], ["5:2", "0:1,10:0"])
    assert schedule.steps.shape == (2, 2)
    assert jax.vmap(lambda own: own.at(5.0))(schedule).tolist() == [2.0, 0.5]


def test_members_follow_tables_and_functions():
    names = ["0:1e-3", f"{__name__}:falling"]
    schedule = followed("learning_rate_schedule", names, [*names, names[0]])
    rates = jax.jit(jax.vmap(lambda own: own.at(jnp.float32(100))))(schedule)
    np.testing.assert_allclose(rates, [1e-3, 5e-4, 1e-3])


def test_who_takes_over_in_a_search_has_its_own_table():
    """A member's table goes to all players that learn apart, as its numbers do."""
    every = ["0:1,10:0", "5:2"]
    before, after = followed("x", every, every), followed("x", every, every[::-1])
    players = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], 3, axis=1), before)
    for theirs in (before, players):
        copy = copied(Following(theirs, jnp.arange(2.0)), jnp.array([1, 1]), after)
        assert copy.weights.tolist() == [1.0, 1.0]
        assert copy.hparams.steps.shape == theirs.steps.shape
        np.testing.assert_array_equal(copy.hparams.values.reshape(2, -1, 2)[:, -1], after.values)


# -- settings


def test_every_schedule_is_a_setting_of_its_own():
    found = {leaf.name for agent in AGENTS for leaf in leaves(make_experiment(agent, preset="none")) if leaf.scheduled}
    assert found == {"learning_rate_schedule", "epsilon_schedule", "entropy_schedule", "importance_schedule"}
    for agent in AGENTS:
        for leaf in leaves(make_experiment(agent, preset="none")):
            # A file may name code under such names alone: `looking.names_in`.
            assert (leaf.annotation == Scheduled) == leaf.path[-1].endswith(ENDING) == leaf.scheduled, leaf


def test_nothing_is_different_without_a_schedule():
    plan = make_plan(make_experiment("double", steps=400, **TINY))
    numbers = [leaf for leaf in leaves(plan.experiment) if leaf.traced and not leaf.scheduled]
    assert len(jax.tree.leaves(plan.hparams)) == len(numbers)
    assert not any(name.endswith(ENDING) for name in plan.members[0].hparams)


def test_flags_files_and_python_say_the_same():
    flags = ["--learning-rate-schedule", "0:1e-3,1e5:1e-4", "0:1e-4", "--epsilon-schedule=0:1,1e4:0.1"]
    told, _ = parse_experiment(make_experiment("double", preset="none"), flags, ExperimentFlags)
    same = make_experiment(
        "double",
        preset="none",
        learning_rate_schedule=["0:1e-3, 1e5:1e-4", "0:1e-4"],
        epsilon_schedule="0:1,1e4:0.1",
    )
    assert told == same == from_json(json.loads(json.dumps(to_json(same)))) == looked_at(to_json(same))
    assert [member.hparams["learning_rate_schedule"] for member in population(same)] == ["0:1e-3,1e5:1e-4", "0:1e-4"]
    flags = ["--learning-rate-schedule", "none", "--epsilon-schedule", "none"]
    none, _ = parse_experiment(same, flags, ExperimentFlags)
    assert none == make_experiment("double", preset="none")
    assert points(to_json(make_experiment(learning_rate_schedule={0: 1e-3, 1e5: 1e-4}))["hparams"][
        "learning_rate_schedule"
    ]) == [(0.0, 1e-3), (1e5, 1e-4)]  # fmt: skip


WRONG = {
    "0:1e-3,10:1e-4,5:0": "has step 5 behind step 10; sort the steps",
    "-5:1e-3": "has the step -5; steps are counted from 0 on",
    "inf:1e-3": "there is no module 'inf'",
    "nonsense": "must be a table such as 0:1e-3,1e5:1e-4",
    "0:fast": "must be a table such as",
    "0:1e-3,": "must be a table such as",
    "0:-1e-3": "learning_rate_schedule=-0.001 must be at least 0",
    "0:nan": "learning_rate_schedule=nan must be at least 0",
    "nowhere_at_all:f": "there is no module 'nowhere_at_all'; is it on PYTHONPATH?",
    "json:dumps": "it must take environment steps",
    "math:pi": "is no function",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_in_a_line(text, tmp_path, capsys):
    run = ["double", "--run-dir", str(tmp_path / "run"), "--steps", "400", "--quiet"]
    assert run_command("train", [*run, f"--learning-rate-schedule={text}"]) == 2
    told = capsys.readouterr().err
    assert WRONG[text] in told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"learning_rate": (1e-3, 1e-4), "learning_rate_schedule": "0:1"}, "learning_rate has several values, but"),
        ({"epsilon_schedule": "0:1.5"}, "epsilon_schedule=1.5 must be at most 1"),
        ({"epsilon_schedule": ["0:1", None]}, "for each member"),
        ({"epsilon_schedule": 0.5}, "must be a table"),
        ({"epsilon_schedule": {"os": "system"}}, "must be a table"),
        ({"epsilon_schedule": {}}, "must be a table"),
    ],
)
def test_python_is_told_the_same(values, reason):
    with pytest.raises(ConfigError, match=reason):
        make_plan(make_experiment("double", preset="none", **values))


def test_a_function_is_tried_before_a_run(capsys):
    limit = next(leaf for leaf in leaves(make_experiment("double")) if leaf.name == "learning_rate").limit

    def problem(function):
        name = make_experiment(preset="none", learning_rate_schedule=function).hparams.learning_rate_schedule
        return function_problem("learning_rate_schedule", name, limit, 1_000)

    assert problem(optax.cosine_decay_schedule(1e-3, 500)) == ""
    assert problem(falling) == ""
    assert "must be at least 0" in problem(lambda steps: 0.1 - steps)
    assert "a traced number" in problem(lambda steps: 1e-3 if steps < 5 else 1e-4)
    assert "shape (2,)" in problem(lambda steps: jnp.array([steps, 0.0]))
    assert "hand it over again with schedules=" in capsys.readouterr().err


# -- runs


def test_a_population_follows_its_tables(trained):
    steps = trained.curves["step"][0]
    for member, text in enumerate(TABLES):
        # A row is the mean of ten iterations, which begin after the warm-up of 40 steps.
        own = [[value_at("x", text, now) for now in range(int(step) - 80, int(step) - 40, 4)] for step in steps[1:]]
        np.testing.assert_allclose(trained.curves["epsilon"][member][1:], np.mean(own, axis=1), atol=1e-5)
    assert [member["hparams"]["epsilon_schedule"] for member in trained.summary["members"]] == list(TABLES)
    assert rollax.load(trained.run_dir, member=1).agent.metric_names[0] == "loss"


def test_a_run_is_resumed_to_the_bit(trained, tmp_path):
    values: dict[str, Any] = {"epsilon_schedule": TABLES, "learning_rate_schedule": {0: 1e-3, 300: 1e-4}}
    rollax.train(make_experiment("prioritized", steps=200, **TINY, **values), tmp_path / "run", quiet=True)
    assert hashes(rollax.resume(tmp_path / "run", 400, quiet=True)) == hashes(trained)


@pytest.mark.parametrize(
    ("agent", "table", "usual"),
    [
        ("double", {"learning_rate_schedule": "0:1e-3,200:1e-4"},
         {"learning_rate": 1e-3, "learning_rate_end": 0.1, "learning_rate_steps": 200}),
        ("prioritized", {"importance_schedule": "0:0.4,200:1"}, {"importance_start": 0.4, "importance_steps": 200}),
        ("ppo", {"entropy_schedule": "0:0.5,200:0.05"},
         {"entropy_weight": 0.5, "entropy_end": 0.1, "entropy_steps": 200}),
    ],
)  # fmt: skip
def test_a_table_that_says_what_settings_say_learns_the_same(agent, table, usual):
    from rollax.rules.schedules import Schedule

    def number(values, now):
        hparams = make_plan(make_experiment(agent, preset="none", **values)).hparams
        own = jax.tree.map(lambda leaf: leaf[0], hparams)
        (name,) = table
        method = {"learning_rate_schedule": "rate", "importance_schedule": "importance", "entropy_schedule": "entropy"}
        assert isinstance(getattr(own, name), Schedule | None)
        return float(getattr(own, method[name])(jnp.float32(now)))

    for now in (0, 50, 150, 200, 1_000):
        assert number(table, now) == pytest.approx(number(usual, now), rel=1e-5)


def test_a_function_is_saved_by_its_name_or_handed_over_again(tmp_path, monkeypatch, capsys):
    schedule = optax.linear_schedule(1e-3, 1e-4, 100)
    folder = tmp_path / "run"
    first = rollax.train(make_experiment("dqn", steps=80, **TINY, learning_rate_schedule=schedule), folder, quiet=True)
    before = hashes(first)
    saved = json.loads((folder / "config.json").read_text())["hparams"]["learning_rate_schedule"]
    assert saved.startswith("given:schedule")
    from rollax.experiment import scheduled

    monkeypatch.setattr(scheduled, "_FUNCTIONS", {})  # as in another program
    assert rollax.load(folder).agent is not None  # to act it needs no schedule
    with pytest.raises(ConfigError, match=r"hand it over again, as in rollax.resume\(run_dir, schedules="):
        rollax.resume(folder, 160, quiet=True)
    with pytest.raises(ConfigError, match="is no schedule; did you mean learning_rate_schedule"):
        rollax.resume(folder, 160, quiet=True, schedules={"learning_rate": schedule})
    again = rollax.resume(folder, 160, quiet=True, schedules={"learning_rate_schedule": schedule})
    assert hashes(again) != before
    assert again.summary["total_steps"] == 160


def test_a_file_that_names_a_function_is_trusted_as_any_other_code(tmp_path, monkeypatch):
    (tmp_path / "stranger_schedules.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for told in ("stranger_schedules:f", " stranger_schedules : f", ["0:1", "stranger_schedules:f"]):
        for place in ({"hparams": {"learning_rate_schedule": told}}, {"learning_rate_schedule": told}):
            data = {"agent": "double", **place}
            assert list(modules_in(data)) == ["stranger_schedules"]
            with pytest.raises(ConfigError, match="would run code of the module stranger_schedules"):
                experiment_in(data, Path("config.json"), trust=False)
    assert not modules_in({"agent": "double", "hparams": {"learning_rate_schedule": ["0:1e-3,1e5:1e-4", "given:f"]}})
    assert "stranger_schedules" not in sys.modules
