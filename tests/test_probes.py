"""One-idea environments with known values, for every agent.

Each agent is trained once, in a fair whose every episode is one of the probes.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import BOOTHS, Choice, Endless, Fair, task
from training_tools import decide, returns, solve

from rollax.agents.names import AGENTS
from rollax.types import Observation

# One for each way of learning, from a replay and without; `.ci/run` asks all of them.
ALWAYS = ("dqn", "pqn")
NAMES = [
    name if name in ALWAYS else pytest.param(name, marks=pytest.mark.thorough)
    for name in AGENTS
    # The values of one are of states, another remembers, the third's actions are numbers: in tests of their own.
    if name not in ("ppo", "r2d2", "sac")
]
DISCOUNT = 0.7
ALL_ACTIONS_EQUAL = ("constant", "from_observation", "delayed", "endless", "endless_by_three", "lottery")


@cache
def trained(name):
    return solve(name, task(Fair(booths=tuple(BOOTHS.values()))), iterations=4_000, discount=DISCOUNT)


def features(booth, *shown):
    number = list(BOOTHS).index(booth)
    return jnp.array([[*np.eye(len(BOOTHS))[number], *row] for row in shown], jnp.float32)


def values(name, booth, *shown):
    """What the agent expects of every action, where the probe shows that."""
    agent, learner = trained(name)
    told = np.asarray(returns(agent, learner, features(booth, *shown)).mean())
    if name == "munchausen" and booth in ALL_ACTIONS_EQUAL:
        return np.broadcast_to(told.max(-1, keepdims=True), told.shape)  # it tears equal actions apart, by intent
    return told


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_every_probe(name):
    """All values of one agent at once: a test for each would train it once for each worker."""
    found = {}

    def expect(what, got, expected, atol):
        if not np.allclose(got, expected, atol=atol):
            found[what] = (np.round(got, 2).tolist(), np.asarray(expected).tolist())

    expect("constant", values(name, "constant", [0, 0], [1, 0]), 1.0, 0.2)
    told = values(name, "from_observation", [0, 0], [1, 0])
    expect("reward from the observation", told, [[-1.0] * 3, [1.0] * 3], 0.2)
    told = values(name, "delayed", [0, 0], [0, 1])
    expect("delayed reward", told, [[DISCOUNT] * 3, [1.0] * 3], 0.2)
    # Munchausen takes 0.9 * 1.0 from the reward of every action that its policy would hardly take.
    less = 0.9 if name == "munchausen" else 0.0
    told = values(name, "choice", [0, 0], [1, 0])
    expect("choice of action", told, [[1, -1 - less, -1 - less], [-1 - less, 1, -1 - less]], 0.3)
    # A library that treats time limits as deaths learns 1, or at most 2.19 of three steps.
    worth = 1 / (1 - DISCOUNT)
    expect("every step truncated", values(name, "endless", [1, 0]), worth, 0.4)
    expect("a time limit of three steps", values(name, "endless_by_three", [1, 0]), worth, 0.4)
    # Four steps: a reward that is discounted by gamma once for three steps would be 0.7.
    told = values(name, "chain", [0, 0])
    expect("the first action decides", told, [[-less, DISCOUNT**3, -less]], 0.15)
    told = values(name, "masked", [0, 0], [1, 0])
    expect("a masked best action", told[[0, 1], [0, 1]], [0.0, 1 + DISCOUNT + DISCOUNT**2], 0.3)
    expect("a stochastic reward", values(name, "lottery", [1, 0]), 2.0, 0.4)
    assert found == {}, found
    agent, learner = trained(name)
    legal = jnp.array([[True, False, False], [True, True, False]])
    obs = Observation(features("masked", [0, 0], [1, 0]), legal)
    assert decide(agent, learner, obs, jax.random.key(0), explore=False)[0].tolist() == [0, 1]
    if name in ("c51", "rainbow"):
        assert_probabilities(returns(agent, learner, features("lottery", [1, 0])))
    if name in ("qr", "iqn", "irainbow"):
        assert_quantiles(returns(agent, learner, features("lottery", [1, 0])))


def assert_probabilities(told):
    """0 or 4 with equal chances: half of the probability at either, and none at the mean, which never happens."""
    probabilities = np.asarray(jax.nn.softmax(told.logits))
    near = {value: np.abs(np.asarray(told.support) - value) < 0.5 for value in (0.0, 2.0, 4.0)}
    np.testing.assert_allclose(probabilities[..., near[0.0]].sum(-1), 0.5, atol=0.12)
    np.testing.assert_allclose(probabilities[..., near[4.0]].sum(-1), 0.5, atol=0.12)
    assert np.all(probabilities[..., near[2.0]].sum(-1) < 0.1)


def assert_quantiles(told):
    """Below the median nothing, above it all; exchanged axes in the loss would give the mean at every level."""
    taus, shown = np.asarray(told.taus[0]), np.asarray(told.values)
    assert np.all(np.abs(shown[..., taus < 0.35] - 0.0) < 0.8)
    assert np.all(np.abs(shown[..., taus > 0.65] - 4.0) < 0.8)


@pytest.mark.parametrize("name", ["double", "pqn"])
def test_a_promised_time_limit_bootstraps_too(name):
    """Where truncations are known to be apart, last observations are kept and asked for in another way."""
    agent, learner = solve(name, task(Endless(episode_length=9), interval=9), discount=DISCOUNT)
    told = returns(agent, learner, [[1.0, 0.0]]).mean()
    np.testing.assert_allclose(told, 1 / (1 - DISCOUNT), atol=0.3)


@pytest.mark.thorough
def test_noise_alone_explores():
    """Not one action is random; who never tried the second action could not know what it pays."""
    agent, learner = solve("noisy", task(Choice()), epsilon_start=0.0, epsilon_end=0.0)
    told = returns(agent, learner, [[0.0, 0.0], [1.0, 0.0]]).mean()
    np.testing.assert_allclose(told, [[1, -1], [-1, 1]], atol=0.3)
