"""Distributions over actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rollax.rules.distributions import masked_categorical

SCORES = jnp.array([[1.0, 3.0, 2.0, -1.0], [0.0, 0.0, 5.0, 5.0]])
LEGAL = jnp.array([[True, False, True, True], [True, True, False, False]])


def test_chances_are_a_softmax_over_the_legal_actions():
    for legal in (None, LEGAL):
        policy = masked_categorical(SCORES, legal)
        weights = np.exp(np.asarray(SCORES, np.float64)) * (1 if legal is None else np.asarray(legal))
        chances = weights / weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(np.exp(policy.log_probs), chances, rtol=1e-5)
        action = jnp.array([2, 0])
        np.testing.assert_allclose(policy.log_prob(action), np.log(chances[[0, 1], [2, 0]]), rtol=1e-5)
        entropy = -np.sum(np.where(chances > 0, chances * np.log(np.where(chances > 0, chances, 1)), 0), axis=1)
        np.testing.assert_allclose(policy.entropy(), entropy, rtol=1e-5)
    assert np.isfinite(masked_categorical(SCORES, LEGAL).log_probs).all()


def test_the_mode_is_the_best_legal_action_and_the_first_of_equals():
    assert masked_categorical(SCORES, LEGAL).mode().tolist() == [2, 0]
    assert masked_categorical(SCORES, None).mode().tolist() == [1, 2]


def test_draws_follow_the_chances():
    many = 40_000
    scores, legal = (jnp.broadcast_to(rows[0], (many, 4)) for rows in (SCORES, LEGAL))
    policy = masked_categorical(scores, legal)
    drawn = np.asarray(policy.draw(jax.random.key(0)))
    assert drawn.dtype == np.int32
    chances = np.exp(np.asarray(policy.log_probs[0], np.float64))
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / many, chances, atol=0.01)
    assert not np.any(drawn == 1)


def test_one_legal_action_is_certain_and_its_gradients_are_finite():
    alone = jnp.array([[False, True, False, False]])
    policy = masked_categorical(SCORES[:1], alone)
    assert float(policy.entropy()[0]) == 0.0
    assert float(policy.log_prob(jnp.array([1]))[0]) == 0.0

    def total(scores):
        policy = masked_categorical(scores, alone)
        return jnp.sum(policy.entropy() + policy.log_prob(jnp.array([1])))

    np.testing.assert_array_equal(jax.grad(total)(SCORES[:1]), 0.0)
