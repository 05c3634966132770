"""n-step targets: worked by hand, against a slow reference, and against rlax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from rollax.targets import n_step


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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_against_the_reference(data):
    n = data.draw(st.integers(1, 6))
    reward = data.draw(st.lists(st.floats(-10, 10, width=32), min_size=n, max_size=n))
    terminated = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    truncated = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    discount = data.draw(st.floats(0, 1))
    expected = reference(reward, terminated, truncated, discount)
    for function in (n_step, jax.jit(n_step)):
        got = function(*as_arrays(reward, terminated, truncated), discount)
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
    np.testing.assert_allclose(ours.reward[0] + ours.discount[0] * values[-1], theirs[0], rtol=1e-5)
