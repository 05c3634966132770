"""Environments as objects: their names, and runs that are resumed and loaded with them."""

from __future__ import annotations

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import probes
import pytest
from probes import Choice, Constant

import rollax
from rollax.envs import given, registry
from rollax.envs.given import name_for
from rollax.errors import ConfigError

TINY: dict[str, Any] = {
    "preset": "none", "num_envs": 4, "hidden": (8,), "capacity": 400, "batch_size": 8, "warm_up_steps": 40,
    "steps": 160, "eval_episodes": 2, "max_episode_steps": 10, "devices": 1,
}  # fmt: skip


def test_what_can_be_imported_has_the_name_of_its_module():
    assert name_for("CartPole-v1") == "CartPole-v1"
    assert name_for(Constant) == "probes:Constant"
    assert name_for(probes.no_choice) == "probes:no_choice"
    assert rollax.make_experiment("dqn", env=Constant).env == "probes:Constant"


def test_what_cannot_be_imported_is_known_in_this_program_alone(capsys):
    one, two = Choice(), Choice(episode_length=3)
    names = [name_for(env) for env in (one, two, one)]
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("given:Choice") for name in names)
    assert capsys.readouterr().err.count("hand it over again with env=") == 2
    assert registry.make_inside(names[1]).env is two
    assert registry.make_inside(name_for(lambda: two)).env is two
    assert registry.own_module(names[0]) is None  # so nobody is asked to trust it


def test_what_is_no_environment_is_refused_as_any_other_value():
    with pytest.raises(ConfigError, match="env"):
        rollax.make_experiment("dqn", env=3)


def test_an_environment_of_gymnasium_is_to_be_named(capsys):
    import gymnasium

    with pytest.raises(ConfigError, match="is an environment of Gymnasium; register it, and name it as in --env gymn"):
        registry.make(name_for(gymnasium.make("CartPole-v1")))


def test_a_run_with_an_object_is_resumed_and_loaded_with_it(tmp_path, monkeypatch):
    world, folder = Choice(), tmp_path / "run"
    rollax.train(rollax.make_experiment("dqn", env=world, **TINY), folder, quiet=True)
    name = json.loads((folder / "config.json").read_text())["env"]
    assert name.startswith("given:Choice")
    assert int(rollax.load(folder)(jnp.zeros(2))) in (0, 1)
    monkeypatch.setattr(given, "_OBJECTS", {})  # as in another program
    for again in (lambda: rollax.resume(folder, 320, quiet=True), lambda: rollax.load(folder)):
        with pytest.raises(ConfigError, match=f"env='{name}' was an object of another program; hand it over again"):
            again()
    rollax.resume(folder, 320, quiet=True, env=world)
    monkeypatch.setattr(given, "_OBJECTS", {})
    assert np.shape(rollax.load(folder, env=world)(jnp.zeros(2))) == ()


def test_a_run_that_finds_its_environment_takes_no_other(tmp_path):
    rollax.train(rollax.make_experiment("dqn", env=Constant, **TINY), tmp_path / "run", quiet=True)
    with pytest.raises(
        ConfigError, match="this run finds its environment by its name, probes:Constant; leave env= out"
    ):
        rollax.load(tmp_path / "run", env=Choice())
