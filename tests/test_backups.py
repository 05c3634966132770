"""What a target follows, with masks and without."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from rollax.rules.backups import GreedyBackup, MunchausenBackup
from rollax.types import Observation

Q = jnp.array([[1.0, 3.0, 2.0], [5.0, 4.0, 9.0]])
LEGAL = jnp.array([[True, False, True], [True, True, False]])


def test_the_best_legal_action_follows():
    backup = GreedyBackup()
    np.testing.assert_array_equal(backup.follow(Q, Observation(Q)).policy, [[0, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(backup.follow(Q, Observation(Q, LEGAL)).policy, [[0, 0, 1], [1, 0, 0]])
    assert backup.reward_bonus(lambda: pytest.fail("asked without need"), Observation(Q), jnp.zeros(2)) == 0.0


def test_the_soft_policy_and_its_entropy():
    backup = MunchausenBackup(temperature=2.0)
    got = backup.follow(Q, Observation(Q))
    weights = np.exp(np.asarray(Q) / 2)
    policy = weights / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(got.policy, policy, rtol=1e-5)
    np.testing.assert_allclose(got.bonus, -2 * np.sum(policy * np.log(policy), axis=-1), rtol=1e-5)


def test_illegal_actions_have_no_part_in_the_soft_policy():
    backup = MunchausenBackup(temperature=2.0)
    got = backup.follow(Q, Observation(Q, LEGAL))
    np.testing.assert_array_equal(np.asarray(got.policy)[~np.asarray(LEGAL)], 0.0)
    pair = np.exp(np.array([1.0, 2.0]) / 2)
    pair /= pair.sum()
    np.testing.assert_allclose(got.policy[0, [0, 2]], pair, rtol=1e-5)
    np.testing.assert_allclose(jnp.asarray(got.bonus)[0], -2 * np.sum(pair * np.log(pair)), rtol=1e-5)
    alone = backup.follow(Q, Observation(Q, jnp.array([[True, False, False]] * 2)))
    np.testing.assert_allclose(alone.bonus, 0.0, atol=1e-6)


def test_a_cold_policy_is_greedy_and_stays_finite():
    backup = MunchausenBackup(temperature=1e-3)
    got = backup.follow(100 * Q, Observation(Q, LEGAL))
    np.testing.assert_allclose(got.policy, [[0, 0, 1], [1, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(got.bonus, 0.0, atol=1e-6)


def test_the_reward_bonus_is_clipped_from_below_and_never_positive():
    backup = MunchausenBackup(temperature=0.03, log_policy_weight=0.9, log_policy_floor=-1.0)
    obs = Observation(Q)
    best = backup.reward_bonus(lambda: Q, obs, jnp.array([1, 2]))
    worst = backup.reward_bonus(lambda: Q, obs, jnp.array([0, 1]))
    np.testing.assert_allclose(best, 0.0, atol=1e-6)
    np.testing.assert_allclose(worst, -0.9, rtol=1e-6)
