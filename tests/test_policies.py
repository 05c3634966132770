"""From scores to actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.rules.policies import epsilon_greedy, greedy, mask_illegal


def test_masked_scores_are_finite():
    masked = mask_illegal(jnp.array([1.0, 2.0]), jnp.array([True, False]))
    assert np.isfinite(masked).all()
    assert float(0 * masked[1]) == 0


def test_greedy_takes_the_best_legal_action_and_the_first_of_equals():
    scores = jnp.array([[1.0, 5.0, 5.0], [1.0, 5.0, 9.0]])
    assert greedy(scores, None).tolist() == [1, 2]
    assert greedy(scores, jnp.array([[True, False, True], [True, False, False]])).tolist() == [2, 0]


def test_greedy_prefers_a_legal_action_to_an_illegal_one_of_any_score():
    scores = jnp.array([[-1e30, 1e30]])
    assert greedy(scores, jnp.array([[True, False]])).tolist() == [0]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0])
def test_share_of_random_actions(epsilon):
    """Of three actions, a random draw leaves the greedy one two times in three."""
    count = 100_000
    coins = jax.random.uniform(jax.random.key(0), (2, count))
    actions = epsilon_greedy(coins, jnp.tile(jnp.array([0.0, 1.0, 0.0]), (count, 1)), None, epsilon)
    expected = epsilon * 2 / 3
    spread = np.sqrt(expected * (1 - expected) / count)
    assert abs(float(np.mean(actions != 1)) - expected) <= 4 * spread + 1e-9


def test_random_actions_are_uniform_among_the_legal():
    count = 60_000
    legal = jnp.tile(jnp.array([True, False, True, True, False]), (count, 1))
    coins = jax.random.uniform(jax.random.key(1), (2, count))
    actions = np.asarray(epsilon_greedy(coins, jnp.zeros((count, 5)), legal, 1.0))
    shares = np.bincount(actions, minlength=5) / count
    assert shares[1] == shares[4] == 0
    np.testing.assert_allclose(shares[[0, 2, 3]], 1 / 3, atol=0.01)
