"""The policies that come with the package: each plays as well as its card says."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import THOROUGH

import rollax
from rollax.commands.cli import run_command
from rollax.errors import CheckpointError, ConfigError
from rollax.programs.plan import make_plan
from rollax.reports.films import film_path, watch
from rollax.runs import zoo
from rollax.runs.result import evaluate_run
from rollax.runs.sources import source_of, starting_weights

QUICK = 100 if THOROUGH else 10  # episodes
SIZE, ALL = 2**20, 3 * 2**20  # bytes


def test_entries_are_small_data_with_their_origin():
    assert len(zoo.names()) >= 12
    total = 0
    for entry in map(zoo.entry, zoo.names()):
        own = list(entry.folder.iterdir())
        assert {path.name for path in own} == {zoo.CARD, zoo.CONFIG, zoo.WEIGHTS}  # and no code
        size = sum(path.stat().st_size for path in own)
        assert size <= SIZE, entry.name
        total += size
        assert entry.name.startswith(f"{entry.card['agent']}-")
        assert len(entry.card["commit"]) == 40
        assert entry.card["machine"]
        assert entry.config["agent"] == entry.card["agent"]
        assert entry.config["env"] == entry.card["env"]
        assert entry.config["steps"] >= entry.card["steps"] - entry.config["loop"]["num_envs"] * 1_000
    assert total <= ALL


def test_the_page_has_what_the_cards_say():
    page = (Path(__file__).parent.parent / "docs" / "zoo.md").read_text()
    for row in zoo.listed(map(zoo.entry, zoo.names())):
        wanted = f"| `{row['name']}` | {row['env']} | {row['score']:.2f} | {row['deviation']:.2f} | {row['steps']:,} |"
        assert wanted in page
    assert page.count("| `zoo:") == len(zoo.names())


@pytest.mark.parametrize("name", zoo.names())
def test_an_entry_holds_its_score(name):
    """Fewer episodes than its card has, unless the thorough cases run: then the very same ones."""
    card = zoo.entry(name).card
    (row,) = evaluate_run(f"zoo:{name}", QUICK, seed=card["seed"])
    assert row["episodes"] == QUICK
    # Four standard errors of a mean of so few, and some for what other processors round otherwise.
    room = 4 * card["deviation"] * math.hypot(1 / math.sqrt(QUICK), 1 / math.sqrt(card["episodes"]))
    assert row["return_mean"] == pytest.approx(card["score"], abs=room + 0.01 * abs(card["score"]))


def test_a_policy_is_called():
    policy = rollax.load("zoo:ppo-CartPole")
    falling_right = np.array([0.0, 0.0, 0.1, 1.0], np.float32)
    assert policy(falling_right) == 1
    assert policy(-falling_right) == 0


def test_weights_that_others_start_from_are_those_that_play():
    source = source_of("zoo:ppo-CartPole")
    plan = make_plan(rollax.make_experiment("ppo", seeds=3, init_from="zoo:ppo-CartPole"))
    params = starting_weights("zoo:ppo-CartPole", 3, plan.shapes()[0].learner.params)
    stored = source.weights(make_plan(source.experiment).shapes()[0].learner.params, best=True)
    for own, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(stored), strict=True):
        assert own.dtype == theirs.dtype == jnp.float32
        np.testing.assert_array_equal(own, np.broadcast_to(theirs, own.shape))
    with pytest.raises(CheckpointError, match=r"belongs to another experiment|but this experiment needs"):
        starting_weights("zoo:double-Acrobot", 3, plan.shapes()[0].learner.params)


def test_a_run_goes_on_from_the_zoo(tmp_path):
    values: dict[str, Any] = {"steps": 256, "num_envs": 4, "rollout_length": 16, "eval_episodes": 5}
    experiment = rollax.make_experiment("ppo", init_from="zoo:ppo-CartPole", learning_rate=1e-6, **values)
    result = rollax.train(experiment, tmp_path / "run", quiet=True)
    assert result.evaluations["return_mean"][0, -1] > 400  # which 256 steps from random weights never are


def test_what_is_not_there_or_damaged_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"zoo:ppo-CartPol is not in the zoo; did you mean ppo-CartPole"):
        rollax.load("zoo:ppo-CartPol")
    shutil.copytree(zoo.entry("ppo-Catch").folder, tmp_path / "ppo-Catch")
    weights = tmp_path / "ppo-Catch" / zoo.WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged; install rollax again"):
        zoo.Entry(tmp_path / "ppo-Catch").arrays()


def test_the_zoo_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command("zoo", []) == 0
    shown = capsys.readouterr().out
    assert all(f"zoo:{name} " in shown for name in zoo.names())
    assert run_command("zoo", ["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [f"zoo:{name}" for name in zoo.names()]
    assert run_command("eval", ["zoo:ppo-Catch", "--episodes", "3", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["return_mean"] == 1.0
    assert run_command("eval", ["zoo:nothing"]) != 0
    assert "is not in the zoo" in capsys.readouterr().err
    path, ending = watch("zoo:ppo-Catch", most=20)
    assert path == film_path("zoo:ppo-Catch")
    assert (tmp_path / "ppo-Catch.gif").stat().st_size > 0
    assert ending.total == 1.0
