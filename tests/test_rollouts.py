"""What agents share that learn from fresh rollouts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.agents.rollouts import MOST_BITS, random_orders, successor_values
from rollax.types import Discrete, EnvSpec, Observation, Transition

LENGTH, ENVS = 5, 4


def a_rollout():
    """Observations are numbers, all different; two environments run out of time, one terminates, one does neither."""
    rng = np.random.default_rng(0)
    seen, following = rng.normal(size=(2, LENGTH, ENVS)).astype(np.float32)
    terminated, truncated = np.zeros((2, LENGTH, ENVS), bool)
    truncated[1, 0] = truncated[4, 1] = terminated[2, 2] = True
    ends = terminated | truncated
    following[:-1] = np.where(ends[:-1], following[:-1], seen[1:])  # elsewhere the next step's observation
    obs, next_obs = (Observation(jnp.asarray(numbers)) for numbers in (seen, following))
    nothing = jnp.zeros((LENGTH, ENVS))
    carry = jnp.arange(LENGTH * ENVS, dtype=jnp.float32).reshape(LENGTH, ENVS)
    flags = jnp.asarray(terminated), jnp.asarray(truncated)
    return Transition(obs, nothing, nothing, *flags, next_obs, carry={"count": carry})


@pytest.mark.parametrize("interval", [1, LENGTH, 500])
def test_every_successor_has_its_own_value(interval):
    """With another value for each observation and carry: where time ran out, of what was seen last, not of the reset.

    `noted` has a mark that `value_of` has not, so that a value which was not asked for is seen to be that.
    """
    spec = EnvSpec(Observation(jax.ShapeDtypeStruct((), jnp.float32)), Discrete(2), ENVS, LENGTH, interval)
    rollout = a_rollout()
    noted = 3 * rollout.obs.features + 100

    def value_of(carry, obs):
        return 3 * obs.features + 1_000 * carry["count"]

    last = {"count": jnp.full(ENVS, 77.0)}
    found = np.asarray(successor_values(spec, rollout, noted, last, value_of))
    after = np.concatenate([rollout.carry["count"][1:], last["count"][None]])
    expected = 3 * np.asarray(rollout.next_obs.features) + 1_000 * after
    if interval >= LENGTH:  # what `act` has noted serves wherever the next step follows
        carries_on = ~np.asarray(rollout.truncated)[:-1]
        expected[:-1] = np.where(carries_on, np.asarray(noted)[1:], expected[:-1])
    used = ~np.asarray(rollout.terminated)
    np.testing.assert_allclose(found[used], expected[used], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 2_048, 2**MOST_BITS, 2**MOST_BITS + 1])
def test_orders_hold_every_number_once_and_differ(size):
    orders = np.asarray(random_orders(jax.random.key(0), 5, size))
    assert orders.shape == (5, size)
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(size), (5, 1)))
    if size > 10:
        assert len({tuple(order) for order in orders.tolist()}) == 5


def test_every_order_is_as_likely_as_any_other():
    """All 24 orders of four numbers, 48,000 times: Pearson's statistic of 23 degrees is below 49.7 in 999 of 1,000."""
    orders = np.asarray(random_orders(jax.random.key(1), 48_000, 4))
    counts = np.unique(orders @ [64, 16, 4, 1], return_counts=True)[1]
    assert len(counts) == 24
    assert np.sum((counts - 2_000) ** 2 / 2_000) < 49.7
