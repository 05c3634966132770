"""One-idea environments with known values, for every name of the family."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Chain, Choice, Constant, Delayed, Endless, FromObservation, Masked, task
from training_tools import q_values, solve

from rollax.agents.dqn import FAMILY
from rollax.types import Observation

NAMES = list(FAMILY)
EVERYWHERE = [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("name", NAMES)
def test_constant_reward(name):
    agent, learner = solve(name, task(Constant()))
    np.testing.assert_allclose(q_values(agent, learner, EVERYWHERE), 1.0, atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_reward_from_the_observation(name):
    agent, learner = solve(name, task(FromObservation()))
    values = q_values(agent, learner, EVERYWHERE)
    np.testing.assert_allclose(values, [[-1, -1], [1, 1]], atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_delayed_reward(name):
    agent, learner = solve(name, task(Delayed()), discount=0.5)
    values = q_values(agent, learner, [[0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(values, [[0.5, 0.5], [1, 1]], atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_choice_of_action(name):
    agent, learner = solve(name, task(Choice()))
    values = q_values(agent, learner, EVERYWHERE)
    np.testing.assert_allclose(values, [[1, -1], [-1, 1]], atol=0.15)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [1, 3])
def test_a_time_limit_bootstraps(name, length):
    """A library that treats time limits as deaths learns at most 1 or 2.44; the true value is 1 / (1 - 0.8)."""
    made = task(Endless(episode_length=length), interval=length)
    agent, learner = solve(name, made, iterations=2_500, discount=0.8)
    np.testing.assert_allclose(q_values(agent, learner, [[1.0, 0.0]]), 5.0, atol=0.3)


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_best_action(name):
    """An illegal action pays 10; it is never taken, never learnt from, and never in the bootstrap maximum."""
    made = task(Masked())
    agent, learner = solve(name, made, discount=0.5)
    legal = jnp.array([[True, False, False], [True, True, False]])
    features = jnp.array([[0.0, 0.0], [1.0, 0.0]])
    actions, _ = agent.act(learner, Observation(features, legal), jax.random.key(0), explore=False)
    assert actions.tolist() == [0, 1]
    values = q_values(agent, learner, features)
    np.testing.assert_allclose(values[1, 1], 1.75, atol=0.25)  # 1 + 0.5 + 0.25
    np.testing.assert_allclose(values[0, 0], 0.0, atol=0.25)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_action_decides(name):
    agent, learner = solve(name, task(Chain()), iterations=2_500, discount=0.9)
    values = q_values(agent, learner, [[0.0, 0.0]])[0]
    np.testing.assert_allclose(values, [0.0, 0.9**3], atol=0.15)
