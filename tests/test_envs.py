"""Environments: the protocol, its adapters, names, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import dataclass
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Constant, Counter, Probe, task

from rollax.envs import gymnax as gymnax_envs
from rollax.envs import names, registry
from rollax.envs.adapters import to_task
from rollax.envs.check import check_environment
from rollax.envs.protocol import reset_envs, step_envs
from rollax.errors import ConfigError, EnvError
from rollax.experiment.experiment import make_experiment
from rollax.programs.plan import make_plan
from rollax.types import Box, Decision, Observation, action_shape


def play(made, num_envs, steps, seed=0):
    """A rollout of action 0, the last batch, and the sums of the episodes that ended in each step."""
    action = jnp.zeros_like(action_shape(made.action, (num_envs, made.players) if made.players else (num_envs,)))

    def step(envs, key):
        envs, transition, episodes = step_envs(made, envs, Decision(action), key)
        return envs, (transition, episodes)

    envs = reset_envs(made, jax.random.key(seed), num_envs)
    envs, (rollout, episodes) = jax.lax.scan(step, envs, jax.random.split(jax.random.key(seed + 1), steps))
    return envs, rollout, jax.tree.map(lambda each: jnp.sum(each, axis=1), episodes)


@pytest.mark.parametrize("truncates", [False, True])
def test_next_obs_is_the_true_successor(truncates):
    _, rollout, _ = play(task(Counter(episode_length=3, truncates=truncates)), 4, 12)
    episode, step = np.moveaxis(np.asarray(rollout.obs.features), -1, 0)
    next_episode, next_step = np.moveaxis(np.asarray(rollout.next_obs.features), -1, 0)
    np.testing.assert_array_equal(next_episode, episode)
    np.testing.assert_array_equal(next_step, step + 1)
    ended = np.asarray(rollout.truncated if truncates else rollout.terminated)
    np.testing.assert_array_equal(ended, next_step == 3)
    np.testing.assert_array_equal(step[1:], np.where(ended[:-1], 0, next_step[:-1]))


def test_episode_sums_are_of_whole_episodes():
    envs, _, episodes = play(task(Counter(episode_length=3)), 2, 8)
    np.testing.assert_array_equal(episodes.count, [0, 0, 2, 0, 0, 2, 0, 0])
    np.testing.assert_array_equal(np.asarray(episodes.return_sum)[[2, 5]], 2 * (0 + 1 + 2))
    np.testing.assert_array_equal(np.asarray(episodes.length_sum)[[2, 5]], 2 * 3)
    np.testing.assert_array_equal(envs.episode_return, 0 + 1)
    np.testing.assert_array_equal(envs.episode_length, 2)


def test_cartpole_truncates_at_its_limit_and_not_before():
    made = registry.make_inside("CartPole-v1")
    assert made.truncation_interval == 500
    state = made.reset(jax.random.key(0))[1].replace(x=0.0, x_dot=0.0, theta=0.0, theta_dot=0.0, time=499)
    step = made.step(jax.random.key(1), state, jnp.int32(0))
    assert (bool(step.terminated), bool(step.truncated)) == (False, True)
    assert np.abs(np.asarray(step.next_obs.features)).max() > 0.15  # moved on, not reset


def test_names_of_gymnax_are_its_own():
    assert sorted(gymnax_envs.NAMES) == sorted(gymnax.registered_envs)


def test_drawing_is_not_imported_to_train():
    """Nor to know names; but gymnax's games can still draw, and others import it as ever."""
    code = """
import sys
from rollax.envs import names, registry
names.names()
assert not {"gymnax", "seaborn"} & set(sys.modules)
registry.make("CartPole-v1")
assert not {"scipy.stats", "matplotlib.pyplot", "seaborn", "pandas"} & set(sys.modules)
from gymnax.environments.misc import pong
assert pong.sns.color_palette(n_colors=3) and "seaborn" in sys.modules
import matplotlib.pyplot as plt
assert plt.figure() is not None
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", [name for name in names.inside_names() if name != "MNISTBandit-bsuite"])
def test_every_gymnax_environment_can_be_named(name):
    """MNISTBandit is left out: it downloads its data when it is made."""
    made = registry.make(name)
    shapes = jax.eval_shape(lambda: play(made, 2, 3)[1])
    batch = (3, 2, made.players) if made.players else (3, 2)
    assert shapes.reward.shape == shapes.truncated.shape == batch
    assert jax.tree.map(lambda x: x.shape, shapes.obs.features) == jax.tree.map(
        lambda x: batch + x.shape, made.observation.features
    )


def test_numbers_as_observations_become_flags():
    made = registry.make_inside("FrozenLake-misc")
    obs, _ = made.reset(jax.random.key(0))
    assert obs.features.shape == (16,)
    assert float(obs.features.sum()) == 1


@pytest.mark.parametrize(
    ("agent", "env", "message"),
    [
        (
            "dqn",
            "Pendulum-v1",
            "where an action is 1 number in [-2, 2]; take `rollax train ppo --env Pendulum-v1`, or sac",
        ),
        (
            "pqn",
            "gymnasium:Pendulum-v1",
            "where an action is 1 number in [-2, 2]; take `rollax train ppo --env gymnasium:Pendulum-v1`, or sac",
        ),
        ("sac", "CartPole-v1", "where there are 2 actions; take `rollax train dqn --env CartPole-v1`, or pqn or ppo"),
    ],
)
def test_an_agent_that_cannot_act_there_is_refused_with_those_that_can(agent, env, message):
    with pytest.raises(ConfigError) as caught:
        make_plan(make_experiment(agent, env=env))
    assert str(caught.value) == f"agent={agent!r} cannot act in env={env!r}, {message}"


def test_an_agent_speaks_of_unit_intervals_and_the_task_scales():
    env, params = gymnax.make("Pendulum-v1")
    pendulum = to_task(env, params, "Pendulum-v1")
    assert pendulum.action == Box((-2.0,), (2.0,), (1,))
    scaled = pendulum.for_environment(jnp.array([[-1.0], [0.0], [0.5], [3.0]]))
    np.testing.assert_allclose(scaled, [[-2.0], [0.0], [1.0], [2.0]])
    _, state = pendulum.reset(jax.random.key(0))
    ours = pendulum.step(jax.random.key(1), state, jnp.array([0.5]))
    theirs = env.step(jax.random.key(1), state, jnp.array([1.0]), params)
    np.testing.assert_array_equal(ours.reward, theirs[2])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cartpole-v1", "did you mean CartPole-v1"),
        ("CartPole-v2", "did you mean CartPole-v1"),
        ("no_such_module:make", "no module 'no_such_module'"),
        ("probes:Constnt", "did you mean probes:Constant"),
    ],
)
def test_wrong_names_are_answered_with_the_right_one(name, message):
    with pytest.raises(ConfigError, match=message):
        registry.make(name)


def test_an_environment_of_ones_own():
    made = registry.make_inside("probes:Constant")
    assert isinstance(made.env, Constant)
    assert made.num_actions == 2


@dataclass(frozen=True)
class OldProtocol:
    """Five values and a reset of its own; ends after three steps, by time limit if `late`."""

    late: bool = False
    num_actions: int = 2
    default_params: Any = None

    def reset_env(self, key, params):
        return jnp.array([0.0]), jnp.int32(0)

    reset = reset_env

    def step_env(self, key, state, action, params):
        state = state + 1
        done = state >= 3
        info = {"truncated": done} if self.late else {}
        return state[None].astype(jnp.float32), state, jnp.float32(1.0), done, info

    def step(self, key, state, action, params):
        obs, state, reward, done, info = self.step_env(key, state, action, params)
        new_obs, new = self.reset_env(key, params)
        return jnp.where(done, new_obs, obs), jnp.where(done, new, state), reward, done, info


@pytest.mark.parametrize("late", [False, True])
def test_the_older_protocol_is_adapted(late):
    _, rollout, _ = play(to_task(OldProtocol(late), None, "old"), 1, 6)
    np.testing.assert_array_equal(rollout.next_obs.features[:, 0, 0], [1, 2, 3, 1, 2, 3])
    np.testing.assert_array_equal(rollout.obs.features[:, 0, 0], [0, 1, 2, 0, 1, 2])
    ended = [False, False, True] * 2
    np.testing.assert_array_equal(rollout.truncated[:, 0], np.array(ended) & late)
    np.testing.assert_array_equal(rollout.terminated[:, 0], np.array(ended) & (not late))


def test_the_older_protocol_must_not_lose_a_truncated_observation():
    class Forgetful:
        num_actions = 2

        def reset(self, key, params):
            return jnp.zeros(1), jnp.int32(0)

        def step(self, key, state, action, params):
            return jnp.zeros(1), state, jnp.float32(0), state > 3, {"truncated": state > 3}

    with pytest.raises(EnvError, match="final_observation"):
        to_task(Forgetful(), None, "forgetful")


def test_broken_environments_are_named():
    class WrongCount(Probe):
        def step(self, key, state, action, params):
            return super().step(key, state, action, params)[:4]

    class WrongShape(Probe):
        def observe(self, state):
            return jnp.zeros(3) if "never" in state else super().observe(state)

        def step(self, key, state, action, params):
            _, *rest = super().step(key, state, action, params)
            return jnp.zeros(3), *rest

    class Raises(Probe):
        def step(self, key, state, action, params):
            raise RuntimeError("out of fuel")

    with pytest.raises(EnvError, match="must return 5 or 6 values; it returns 4"):
        to_task(WrongCount(), None, "wrong")
    with pytest.raises(EnvError, match="the observation of reset and step differ"):
        to_task(WrongShape(), None, "wrong")
    with pytest.raises(EnvError, match="out of fuel"):
        to_task(Raises(), None, "wrong")

    class VectorReward(Probe):
        def reward(self, state, action):
            return jnp.ones(1)

    class LosesMask(Probe):
        def observe(self, state):
            return Observation(jnp.zeros(1), jnp.ones(2, bool))

        def step(self, key, state, action, params):
            *rest, _ = super().step(key, state, action, params)
            return *rest, {"final_observation": jnp.zeros(1)}

    class NoReset:
        num_actions = 2

    with pytest.raises(EnvError, match="one number as reward"):
        to_task(VectorReward(), None, "wrong")
    with pytest.raises(EnvError, match="final_observation"):
        to_task(LosesMask(), None, "wrong")
    with pytest.raises(EnvError, match="reset fails with AttributeError"):
        to_task(NoReset(), None, "wrong")


def test_only_exact_time_limits_are_promised():
    """A subclass may move time by more than a step, so it inherits no promise."""
    import gymnax

    env, params = gymnax.make("CartPole-v1")
    skipping = type("Skipping", (type(env),), {"__module__": "elsewhere"})()
    assert to_task(env, params, "own").truncation_interval == 500
    assert to_task(skipping, params, "other").truncation_interval == 1


def test_check_env_notices_what_is_remembered():
    class Remembers(Probe):
        def reset(self, key, params):
            obs, state = super().reset(key, params)
            counts.append(1)
            return obs + len(counts), state

    counts: list[int] = []
    module: Any = types.ModuleType("remembers")
    module.make = Remembers
    sys.modules["remembers"] = module
    with pytest.raises(EnvError, match="reset with the same key gives different observations"):
        check_environment("remembers:make", 5)


def test_check_env_notices_a_mask_without_a_legal_action():
    with pytest.raises(EnvError, match="probes:stuck: no action is legal in a running episode"):
        check_environment("probes:stuck", 10)


def test_check_env_looks_and_tells():
    lines = check_environment("CartPole-v1", 100)
    assert lines[-1] == "ok"
    assert "2 actions" in lines[0]
    with pytest.raises(EnvError, match="reward is not finite"):
        check_environment("probes:nan_rewards", 50)


def with_one(**changes):
    """A probe of five steps in which some methods are others."""
    return type("Broken", (Probe,), changes)(episode_length=5, truncates=changes.pop("truncates", False))


def stepping(change):
    """A `step` whose six values are changed."""

    def step(self, key, state, action, params):
        return change(*Probe.step(self, key, state, action, params))

    return step


def masked(legal):
    return lambda self, state: Observation(jnp.stack([state["flag"], state["time"].astype(jnp.float32)]), legal)


def same_start(self, key, params):
    del key
    return Probe.reset(self, jax.random.key(0), params)


def after_reset(obs, state, reward, terminated, truncated, info):
    return obs, state, reward, terminated, truncated, {"final_observation": obs}


MISTAKES = {
    "shape": (
        with_one(step=stepping(lambda obs, *rest: (jnp.zeros(3), *rest))),
        "the observation of reset and step differ in shape or dtype: float32[2] and float32[3]; make the second like",
    ),
    "dtype": (
        with_one(step=stepping(lambda obs, *rest: (obs.astype(jnp.int32), *rest))),
        "the observation of reset and step differ in shape or dtype: float32[2] and int32[2]",
    ),
    "vector reward": (
        with_one(reward=lambda self, state, action: jnp.ones(1)),
        "step must return one number as reward, not float32[1]; take reward.squeeze()",
    ),
    "vector flag": (
        with_one(step=stepping(lambda o, s, r, terminated, *rest: (o, s, r, terminated[None], *rest))),
        "step must return one number as terminated, not bool[1]; take terminated.squeeze()",
    ),
    "number as flag": (
        with_one(step=stepping(lambda o, s, r, terminated, *rest: (o, s, r, terminated.astype(jnp.float32), *rest))),
        "terminated is float32, not bool; compare, as in `terminated > 0`",
    ),
    "complex reward": (
        with_one(step=stepping(lambda o, s, reward, *rest: (o, s, reward + 0j, *rest))),
        "the reward is complex64, not a number",
    ),
    "no action": (with_one(num_actions=0, __init__=lambda self, **_: None), "a number of at least 1, and not 0"),
    "mask of nothing": (
        with_one(observe=masked(jnp.zeros(2, bool))),
        "no action is legal in a running episode; its mask must allow one",
    ),
    "mask's shape": (with_one(observe=masked(jnp.ones(3, bool))), "the mask of legal actions is bool[3], not bool[2]"),
    "mask's dtype": (with_one(observe=masked(jnp.ones(2))), "the mask of legal actions is float32[2], not bool[2]"),
    "broken promise": (
        with_one(truncation_interval=9, truncates=True),
        "an episode was cut after 5 steps, but truncation_interval=9 promises at least so many; set truncation_interv",
    ),
    "lost last observation": (
        with_one(step=stepping(after_reset), truncates=True),
        'info["final_observation"] is that of the next episode where one is cut',
    ),
}


def checked(monkeypatch, env):
    monkeypatch.setitem(sys.modules, "mistaken", types.SimpleNamespace(make=lambda: env))
    return check_environment("mistaken:make", 20)


@pytest.mark.parametrize("name", MISTAKES)
def test_check_env_finds_a_mistake_in_one_line(name, monkeypatch):
    env, message = MISTAKES[name]
    with pytest.raises(EnvError) as caught:
        checked(monkeypatch, env)
    assert message in str(caught.value)
    assert str(caught.value).startswith("mistaken:make: ")
    assert len(str(caught.value).splitlines()) == 1


def test_check_env_finds_all_mistakes_at_once(monkeypatch):
    def wrong(obs, state, reward, terminated, truncated, info):
        return jnp.zeros(3), state, reward[None], terminated[None], truncated, info

    with pytest.raises(EnvError) as caught:
        checked(monkeypatch, with_one(step=stepping(wrong)))
    lines = str(caught.value).splitlines()
    assert [word in line for word, line in zip(("observation", "reward", "terminated"), lines, strict=True)] == [
        True
    ] * 3


def test_check_env_notes_what_may_be_meant(monkeypatch):
    def deaf(self, key, state, action, params):
        return Probe.step(self, key, state, 0 * action, params)

    lines = checked(monkeypatch, with_one(reset=same_start, step=deaf))
    assert any(line.startswith("note: reset gives the same observation whatever its key") for line in lines)
    assert any(line.startswith("note: the first step does the same whatever its action") for line in lines)
    assert not any(line.startswith("note") for line in check_environment("CartPole-v1", 50))
