"""Environments of other libraries: our steps beside their own, their endings, and what is refused."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax import errors
from rollax.envs import registry, suites
from rollax.envs.check import check_env, check_environment
from rollax.envs.given import name_for
from rollax.envs.suites.names import SUITES, suite_of
from rollax.errors import ConfigError, EnvError, installed

EXAMPLES = {suite: f"{suite}:{about.example}" for suite, about in SUITES.items()}


def needs(suite):
    return pytest.mark.skipif(not installed(suite), reason=f"the extra {suite} is not installed")


@pytest.mark.thorough
@pytest.mark.parametrize("suite", [pytest.param(suite, marks=needs(suite)) for suite in SUITES if suite != "craftax"])
def test_every_suite_keeps_the_protocol(suite):
    assert check_environment(EXAMPLES[suite], 3)[-1] == "ok"


def in_jumanji(env, key):
    state, step = env.reset(key)

    def go(state, action, _):
        state, step = env.step(state, action)
        return state, (step.observation.board, step.reward, step.last())

    return state, step.observation.board, go


def in_pgx(env, key):
    state = env.init(key)

    def go(state, action, key):
        state = env.step(state, action, key)
        return state, (state.observation, state.rewards[0], state.terminated)

    return state, state.observation, go


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("suite", "begin"),
    [
        pytest.param("jumanji", in_jumanji, marks=needs("jumanji")),
        pytest.param("pgx", in_pgx, marks=needs("pgx")),
    ],
)
def test_an_episode_is_the_same_as_in_the_library_itself(suite, begin):
    """Rewards, observations and the last one, to the end, for the same keys and legal actions."""
    task = registry.make_inside(EXAMPLES[suite])
    key = jax.random.key(3)
    their_state, their_obs, go = begin(task.env.env, key)
    go, step = jax.jit(go), jax.jit(task.step)
    obs, state = jax.jit(task.reset)(key)
    np.testing.assert_array_equal(obs.features, their_obs)
    total = expected = 0.0
    for number in range(2_000):
        action_key, step_key = jax.random.split(jax.random.fold_in(key, number))
        action = jax.random.categorical(action_key, jnp.where(obs.legal, 0.0, -jnp.inf)).astype(jnp.int32)
        their_state, (their_obs, reward, over) = go(their_state, action, jax.random.split(step_key)[0])
        ours = step(step_key, state, action)
        total, expected = total + float(ours.reward), expected + float(reward)
        np.testing.assert_array_equal(ours.next_obs.features, their_obs)
        assert (bool(ours.terminated), bool(ours.truncated)) == (bool(over), False)
        obs, state = ours.obs, ours.state
        if over:
            assert number > 10
            assert total == expected > 0
            assert not np.array_equal(obs.features, their_obs)  # of the next episode
            return
    raise AssertionError("no episode ended")


@needs("jumanji")
def test_the_end_of_time_is_a_truncation_though_the_library_calls_it_an_end():
    task = registry.make_inside("suite_makers:maze")
    assert task.truncation_interval == 5
    _, state = task.reset(jax.random.key(0))
    for number in range(5):
        step = jax.jit(task.step)(jax.random.key(number), state, jnp.int32(0))
        state = step.state
        assert (bool(step.terminated), bool(step.truncated)) == (False, number == 4)


@pytest.mark.thorough
@needs("xminigrid")
def test_a_grid_shows_flags_and_its_time_limit_is_a_truncation():
    task = registry.make_inside("suite_makers:grid")
    obs, state = task.reset(jax.random.key(0))
    assert (obs.features.dtype, obs.features.shape[-1]) == (bool, 25)
    assert np.all(np.asarray(obs.features).sum(-1) == 2)  # a kind and a colour for each tile
    for number in range(4):
        step = jax.jit(task.step)(jax.random.key(number), state, jnp.int32(1))  # turns
        state = step.state
        assert (bool(step.terminated), bool(step.truncated)) == (False, number == 3)


@pytest.mark.thorough
@needs("jumanji")
def test_several_choices_become_one_with_the_mask_of_their_combinations():
    task: Any = registry.make_inside("jumanji:Cleaner-v0")
    assert task.num_actions == 64
    obs, state = task.reset(jax.random.key(0))
    legal = np.asarray(obs.legal).reshape(4, 4, 4)
    theirs = np.asarray(task.env.env.reset(jax.random.key(0))[1].observation.action_mask)
    for first, second, third in np.ndindex(4, 4, 4):
        assert legal[first, second, third] == (theirs[0, first] and theirs[1, second] and theirs[2, third])
    action = int(np.flatnonzero(obs.legal)[-1])
    ours = task.step(jax.random.key(1), state, jnp.int32(action))
    there = task.env.env.step(state, jnp.array(np.unravel_index(action, (4, 4, 4)), jnp.int32))[1]
    np.testing.assert_array_equal(ours.next_obs.features["grid"], there.observation.grid)


@needs("pgx")
def test_an_object_or_a_function_of_another_library_needs_no_name_of_its_kind(capsys):
    import suite_makers

    by_kind = registry.make_inside("pgx:2048")
    by_function = registry.make_inside(name_for(suite_makers.board))
    assert by_function.observation.features == by_kind.observation.features
    assert by_function.num_actions == 4
    assert check_env(suite_makers.board(), 2)[0].startswith("given:Play2048: 4 actions")
    assert "hand it over again with env=" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param(
            "pgx:chess", "pgx:chess has 2 players, and rollax cannot play against itself yet", marks=needs("pgx")
        ),
        pytest.param("pgx:204", "env='pgx:204' is none of pgx's; did you mean 2048", marks=needs("pgx")),
        pytest.param(
            "jumanji:Connector-v3",
            "Connector is a game of jumanji that rollax cannot play yet",
            marks=needs("jumanji"),
        ),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_line(name, message):
    with pytest.raises((ConfigError, EnvError)) as caught:
        registry.make(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_that_is_not_there_is_said_with_its_extra(suite, monkeypatch):
    monkeypatch.setattr(errors, "installed", lambda module: module != suite)
    with pytest.raises(ConfigError, match=rf"env='{EXAMPLES[suite]}' needs .*: pip install 'rollax\[{suite}\]'"):
        registry.make(EXAMPLES[suite])


@needs("pgx")
def test_a_suite_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "1.0")
    with pytest.raises(ConfigError, match=r"needs pgx 2\.6\., and 1\.0 is installed: pip install 'rollax\[pgx\]'"):
        registry.make("pgx:2048")


def test_names_of_suites_are_no_modules_of_the_users():
    for suite, name in EXAMPLES.items():
        assert suite_of(name) == suite
        assert registry.own_module(name) is None
    assert suite_of("corridor:Corridor") is None
    assert registry.own_module("corridor:Corridor") == "corridor"
    assert {"backend"} <= set(vars(suites.WORLDS["brax"]()))
