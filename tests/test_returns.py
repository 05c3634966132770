"""What a return means, and its Bellman loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rlax

from rollax.returns import Scalar, huber


def test_huber_by_hand():
    errors = jnp.array([-3.0, -1.0, 0.0, 0.5, 2.0])
    np.testing.assert_allclose(huber(errors, 1.0), [2.5, 0.5, 0.0, 0.125, 1.5])
    np.testing.assert_allclose(huber(errors, jnp.inf), 0.5 * errors**2)


def test_huber_against_optax_with_its_gradient():
    errors = jnp.linspace(-4, 4, 33)
    for kappa in (0.5, 1.0, 3.0):
        np.testing.assert_allclose(huber(errors, kappa), optax.huber_loss(errors, delta=kappa), rtol=1e-6)
        ours = jax.vmap(jax.grad(lambda e, kappa=kappa: huber(e, kappa)))(errors)
        np.testing.assert_allclose(ours, jnp.clip(errors, -kappa, kappa), atol=1e-6)


def test_the_squared_loss_has_a_finite_gradient():
    gradient = jax.vmap(jax.grad(lambda e: huber(e, jnp.inf)))(jnp.array([-2.0, 0.0, 3.0]))
    np.testing.assert_allclose(gradient, [-2.0, 0.0, 3.0])


def test_at_takes_one_action_and_passes_its_gradient_to_it_alone():
    values = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    action = jnp.array([2, 0])
    np.testing.assert_allclose(Scalar(values).at(action).values, [3.0, 4.0])
    gradient = jax.grad(lambda v: jnp.sum(Scalar(v).at(action).values))(values)
    np.testing.assert_allclose(gradient, [[0, 0, 1], [1, 0, 0]])


def test_at_ignores_what_other_actions_hold():
    assert float(Scalar(jnp.array([[1.0, jnp.inf]])).at(jnp.array([0])).values[0]) == 1.0


def test_bellman_loss_by_hand():
    predicted, successor = Scalar(jnp.array([1.0, 1.0])), Scalar(jnp.array([10.0, 10.0]))
    loss = predicted.bellman_loss(jnp.array([0.5, 0.5]), jnp.array([0.1, 0.0]), successor, jnp.inf)
    np.testing.assert_allclose(loss, [0.5 * 0.25, 0.5 * 0.25])


def test_the_target_gets_no_gradient():
    def loss(successor):
        return jnp.sum(Scalar(jnp.zeros(2)).bellman_loss(jnp.ones(2), jnp.ones(2), Scalar(successor), 1.0))

    np.testing.assert_array_equal(jax.grad(loss)(jnp.array([3.0, -3.0])), 0.0)


def test_double_q_target_against_rlax():
    rng = np.random.default_rng(1)
    q, judge, target = (jnp.array(rng.normal(size=(1, 4)), jnp.float32) for _ in range(3))
    action, reward, discount = jnp.array([2]), jnp.array([0.3]), jnp.array([0.9])
    successor = Scalar(target).at(jnp.argmax(judge, axis=-1))
    ours = Scalar(q).at(action).bellman_loss(reward, discount, successor, jnp.inf)
    error = rlax.double_q_learning(q[0], action[0], reward[0], discount[0], target[0], judge[0])
    np.testing.assert_allclose(ours[0], 0.5 * error**2, rtol=1e-5)
