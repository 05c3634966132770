"""n-step targets and lambda returns: worked by hand, against slow references, and against rlax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from rollax.rules.targets import lambda_returns, n_step


def reference(reward, terminated, truncated, discount):
    """The textbook: walk along the window until an episode ends."""
    total, factor, length = 0.0, 1.0, 0
    for r, dead, late in zip(reward, terminated, truncated, strict=True):
        total += factor * r
        factor *= discount
        length += 1
        if dead:
            return total, 0.0, length, False
        if late:
            return total, factor, length, True
    return total, factor, length, False


def as_arrays(reward, terminated, truncated):
    return jnp.array([reward], jnp.float32), jnp.array([terminated], bool), jnp.array([truncated], bool)


def test_worked_by_hand():
    no = [False, False, False]
    cases = [
        (no, no, 1 + 0.9 * 2 + 0.81 * 4, 0.729, 3, False),
        ([False, True, False], no, 1 + 0.9 * 2, 0.0, 2, False),
        (no, [False, True, False], 1 + 0.9 * 2, 0.81, 2, True),
        ([True, False, False], [True, False, False], 1.0, 0.0, 1, False),
        (no, [False, False, True], 1 + 0.9 * 2 + 0.81 * 4, 0.729, 3, True),
    ]
    for terminated, truncated, total, factor, length, cut in cases:
        got = n_step(*as_arrays([1, 2, 4], terminated, truncated), 0.9)
        np.testing.assert_allclose(got.reward[0], total, rtol=1e-6)
        np.testing.assert_allclose(got.discount[0], factor, rtol=1e-6)
        assert int(got.length[0]) == length
        assert bool(got.truncated[0]) == cut


def test_the_bootstrap_is_discounted_by_the_power_of_the_length():
    """A library that discounts an n-step target once, by gamma, fails here."""
    for n in (1, 2, 5):
        nothing = [False] * n
        got = n_step(*as_arrays([0.0] * n, nothing, nothing), 0.5)
        np.testing.assert_allclose(got.discount[0], 0.5**n)


def test_discount_zero_and_one():
    nothing = [False, False]
    np.testing.assert_allclose(n_step(*as_arrays([3, 5], nothing, nothing), 0.0).reward[0], 3.0)
    np.testing.assert_allclose(n_step(*as_arrays([3, 5], nothing, nothing), 1.0).reward[0], 8.0)


@settings(max_examples=60)
@given(st.data())
def test_against_the_reference(data):
    n = data.draw(st.sampled_from([1, 2, 6]))  # each length is compiled
    reward = data.draw(st.lists(st.floats(-10, 10, width=32), min_size=n, max_size=n))
    terminated = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    truncated = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    discount = data.draw(st.floats(0, 1))
    expected = reference(reward, terminated, truncated, discount)
    got = jax.jit(n_step)(*as_arrays(reward, terminated, truncated), discount)
    np.testing.assert_allclose(got.reward[0], expected[0], atol=1e-3, rtol=1e-5)
    np.testing.assert_allclose(got.discount[0], expected[1], atol=1e-6)
    assert (int(got.length[0]), bool(got.truncated[0])) == expected[2:]


def test_against_rlax():
    """rlax bootstraps every step of a trajectory; its first target is the window's."""
    rng = np.random.default_rng(0)
    n = 4
    reward = rng.normal(size=n).astype(np.float32)
    values = rng.normal(size=n).astype(np.float32)
    ours = n_step(jnp.array([reward]), jnp.zeros((1, n), bool), jnp.zeros((1, n), bool), 0.97)
    theirs = rlax.n_step_bootstrapped_returns(jnp.array(reward), jnp.full(n, 0.97), jnp.array(values), n)
    np.testing.assert_allclose(ours.reward[0] + ours.discount[0] * values[-1], jnp.asarray(theirs)[0], rtol=1e-5)


def lambda_reference(reward, next_value, terminated, truncated, discount, lam):
    """The textbook: a mixture of n-step returns, each of which stops where the episode or the rollout does."""
    length = len(reward)
    out = []
    for start in range(length):
        total, weight, factor, gain, lasting = 0.0, 1.0, 1.0, 0.0, True
        for now in range(start, length):
            gain += factor * reward[now]
            factor *= discount
            n_step_return = gain + (0.0 if terminated[now] else factor * next_value[now])
            lasting = not (terminated[now] or truncated[now] or now == length - 1)
            total += weight * ((1 - lam) if lasting else 1.0) * n_step_return
            weight *= lam
            if not lasting:
                break
        out.append(total)
    return out


def test_lambda_returns_by_hand():
    """Off by one step, the middle return would mix in the value of the wrong state."""
    reward, next_value = jnp.array([1.0, 2.0, 4.0]), jnp.array([10.0, 20.0, 30.0])
    never = jnp.zeros(3, bool)
    last = 4 + 0.5 * 30
    middle = 2 + 0.5 * (0.25 * 20 + 0.75 * last)
    first = 1 + 0.5 * (0.25 * 10 + 0.75 * middle)
    got = lambda_returns(reward, next_value, never, never, 0.5, 0.75)
    np.testing.assert_allclose(got, [first, middle, last])
    # A termination in the middle: nothing after it counts, not even its own successor.
    got = lambda_returns(reward, next_value, jnp.array([False, True, False]), never, 0.5, 0.75)
    np.testing.assert_allclose(got, [1 + 0.5 * (0.25 * 10 + 0.75 * 2), 2.0, last])
    # A time limit in the middle: its successor counts in full, and the next episode does not.
    got = lambda_returns(reward, next_value, never, jnp.array([False, True, False]), 0.5, 0.75)
    np.testing.assert_allclose(got, [1 + 0.5 * (0.25 * 10 + 0.75 * 12), 12.0, last])


def test_lambda_zero_and_one():
    reward, next_value, never = jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0]), jnp.zeros(2, bool)
    np.testing.assert_allclose(lambda_returns(reward, next_value, never, never, 0.5, 0.0), [6.0, 12.0])
    np.testing.assert_allclose(lambda_returns(reward, next_value, never, never, 0.5, 1.0), [7.0, 12.0])


@settings(max_examples=60)
@given(st.data())
def test_lambda_returns_against_the_reference(data):
    n = data.draw(st.sampled_from([1, 2, 6]))  # each length is compiled
    numbers = st.lists(st.floats(-10, 10, width=32), min_size=n, max_size=n)
    flags = st.lists(st.booleans(), min_size=n, max_size=n)
    reward, next_value, terminated, truncated = (data.draw(kind) for kind in (numbers, numbers, flags, flags))
    discount, lam = data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))
    expected = lambda_reference(reward, next_value, terminated, truncated, discount, lam)
    columns = [jnp.array(x)[:, None] for x in (reward, next_value, terminated, truncated)]
    got = jax.jit(lambda_returns)(*columns, discount, lam)[:, 0]
    np.testing.assert_allclose(got, expected, atol=1e-3, rtol=1e-4)


def test_lambda_returns_and_advantages_against_rlax():
    rng = np.random.default_rng(0)
    reward, values = rng.normal(size=6).astype(np.float32), rng.normal(size=7).astype(np.float32)
    terminated = np.array([False, False, True, False, False, False])
    discounts = jnp.array(np.where(terminated, 0.0, 0.9), jnp.float32)
    ours = lambda_returns(jnp.array(reward), jnp.array(values[1:]), jnp.array(terminated), jnp.zeros(6, bool), 0.9, 0.8)
    np.testing.assert_allclose(ours, rlax.lambda_returns(reward, discounts, values[1:], 0.8), rtol=1e-5)
    advantages = rlax.truncated_generalized_advantage_estimation(reward, discounts, 0.8, values)
    np.testing.assert_allclose(ours - values[:-1], advantages, rtol=1e-4, atol=1e-5)
