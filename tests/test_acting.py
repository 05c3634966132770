"""How values are asked for, and what weights begin as."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Constant, task
from training_tools import small, stack_hparams

from rollax.agents.treasurehunt import QuietActing
from rollax.networks.weights import TorchWeights
from rollax.types import Observation


def made(**changes):
    agent = small("irainbow", **changes).build(task(Constant()).spec(8, 1))
    return agent, agent.init(jax.random.key(0), jax.tree.map(lambda x: x[0], stack_hparams(1, "irainbow")))[0]


def values(agent, learner, key, explore):
    obs = Observation(jnp.ones((6, 2)))
    chosen = agent.choose(learner, (), obs, jnp.zeros(6, bool), jax.random.key(key), explore=explore)
    return np.asarray(chosen[2])


def test_noise_explores_and_evaluations_are_calm():
    agent, learner = made()
    assert not np.array_equal(values(agent, learner, 0, True), values(agent, learner, 1, True))
    np.testing.assert_array_equal(values(agent, learner, 0, False), values(agent, learner, 1, False))


def test_quiet_acting_has_no_noise_and_levels_of_its_own():
    """With evenly spread levels the same always; with drawn ones other values for each row, around the same mean."""
    agent, learner = made(acting=QuietActing(act_levels=500, act_level_choice="midpoint"))
    even = values(agent, learner, 0, True)
    np.testing.assert_array_equal(even, values(agent, learner, 1, False))
    taus = jnp.broadcast_to((jnp.arange(500) + 0.5) / 500, (6, 500))
    expected = agent.returns(learner.params, Observation(jnp.ones((6, 2))), taus=taus).mean()
    np.testing.assert_allclose(even, expected, rtol=1e-5)
    agent, learner = made(acting=QuietActing(act_levels=500))
    drawn = values(agent, learner, 0, False)
    assert len(np.unique(drawn[:, 0])) == 6
    np.testing.assert_allclose(drawn, even, atol=0.1)


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_as_in_pytorch(seed):
    """Plain layers fill their range, biases as well; noisy layers keep their own beginning."""
    agent = small("irainbow", weights=TorchWeights()).build(task(Constant()).spec(8, 1))
    plain = small("irainbow").build(task(Constant()).spec(8, 1))
    hparams = jax.tree.map(lambda x: x[0], stack_hparams(1, "irainbow"))
    ours, theirs = (one.init(jax.random.key(seed), hparams)[0].params["params"] for one in (plain, agent))
    for layer, inputs in ((theirs["torso"]["Dense_0"], 2), (theirs["head"]["tau"], 16)):
        for numbers in layer.values():
            reach = 1 / np.sqrt(inputs)
            assert 0.8 * reach < float(jnp.max(jnp.abs(numbers))) <= reach
            assert abs(float(jnp.mean(numbers))) < 0.35 * reach
    for one, two in zip(jax.tree.leaves(ours["streams"]), jax.tree.leaves(theirs["streams"]), strict=True):
        np.testing.assert_array_equal(one, two)
