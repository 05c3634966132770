"""What a return means, and its Bellman error: by hand, against slow references, and against rlax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from rollax.rules.returns import Categorical, Quantiles, Scalar, huber, project


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


def one_hot(action, actions):
    return jax.nn.one_hot(jnp.array(action), actions)


def test_one_action_is_taken_and_its_gradient_reaches_it_alone():
    values = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    policy = one_hot([2, 0], 3)
    np.testing.assert_allclose(Scalar(values).under(policy).values, [3.0, 4.0])
    gradient = jax.grad(lambda v: jnp.sum(Scalar(v).under(policy).values))(values)
    np.testing.assert_allclose(gradient, [[0, 0, 1], [1, 0, 0]])


def test_scalar_error_by_hand():
    predicted, successor = Scalar(jnp.array([1.0, 1.0])), Scalar(jnp.array([10.0, 10.0]))
    error = predicted.bellman_error(jnp.array([0.5, -2.0]), jnp.array([0.1, 0.0]), successor, 1.0)
    np.testing.assert_allclose(error.loss, [0.5 * 0.25, 2.5])  # errors of -0.5 and 3
    np.testing.assert_allclose(error.priority, [0.5, 3.0])  # their absolute values, also where the loss is linear


def test_double_q_target_against_rlax():
    rng = np.random.default_rng(1)
    q, judge, target = (jnp.array(rng.normal(size=(1, 4)), jnp.float32) for _ in range(3))
    reward, discount = jnp.array([0.3]), jnp.array([0.9])
    successor = Scalar(target).under(jax.nn.one_hot(jnp.argmax(judge, axis=-1), 4))
    ours = Scalar(q).under(one_hot([2], 4)).bellman_error(reward, discount, successor, jnp.inf)
    error = rlax.double_q_learning(q[0], jnp.int32(2), reward[0], discount[0], target[0], judge[0])
    np.testing.assert_allclose(ours.loss[0], 0.5 * error**2, rtol=1e-5)


# -- C51


def project_slowly(atoms, probabilities, support):
    """Bellemare et al. 2017, algorithm 1: one atom at a time, to its lower and its upper neighbour."""
    low, high, step = support[0], support[-1], support[1] - support[0]
    out = np.zeros(len(support))
    for atom, probability in zip(atoms, probabilities, strict=True):
        place = (min(max(atom, low), high) - low) / step
        lower, upper = int(np.floor(place)), int(np.ceil(place))
        if lower == upper:
            out[lower] += probability
        else:
            out[lower] += probability * (upper - place)
            out[upper] += probability * (place - lower)
    return out


def test_projection_by_hand():
    support = jnp.array([0.0, 1.0, 2.0])
    atoms = jnp.array([[0.25, 1.0, 7.0], [-3.0, 1.5, 2.0]])
    probabilities = jnp.array([[0.4, 0.4, 0.2], [0.5, 0.2, 0.3]])
    expected = [[0.3, 0.5, 0.2], [0.5, 0.1, 0.4]]
    np.testing.assert_allclose(project(atoms, probabilities, support), expected, atol=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([2, 5, 9]), st.floats(-2, 2), st.floats(0, 1))  # sizes are compiled
def test_projection_against_the_slow_one_and_rlax(seed, atoms, reward, discount):
    rng = np.random.default_rng(seed)
    support = np.linspace(-1.5, 2.0, atoms).astype(np.float32)
    probabilities = rng.dirichlet(np.ones(atoms)).astype(np.float32)
    moved = np.float32(reward) + np.float32(discount) * support
    ours = jax.jit(project)(jnp.array([moved]), jnp.array([probabilities]), jnp.array(support))[0]
    np.testing.assert_allclose(ours, project_slowly(moved, probabilities, support), atol=2e-5)
    theirs = rlax.categorical_l2_project(jnp.array(moved), jnp.array(probabilities), jnp.array(support))
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    np.testing.assert_allclose(np.sum(ours), 1.0, atol=1e-5)


def test_categorical_error_by_hand_and_against_rlax():
    support = jnp.array([0.0, 1.0, 2.0])
    logits = jnp.log(jnp.array([[0.2, 0.3, 0.5]]))
    following = Categorical(jnp.log(jnp.array([[0.1, 0.8, 0.1]])), support)
    reward, discount = jnp.array([0.5]), jnp.array([0.5])
    error = Categorical(logits, support).bellman_error(reward, discount, following, 1.0)
    target = np.array([0.05, 0.05 + 0.8 + 0.05, 0.05])  # atoms 0.5, 1, 1.5
    expected = np.sum(target * np.log(target / [0.2, 0.3, 0.5]))
    np.testing.assert_allclose(error.loss[0], expected, rtol=1e-5)
    np.testing.assert_allclose(error.priority, error.loss)
    cross_entropy = rlax.categorical_q_learning(
        support, logits[0][None], jnp.int32(0), reward[0], discount[0], support, following.logits[0][None]
    )
    entropy = -np.sum(target * np.log(target))
    np.testing.assert_allclose(error.loss[0], cross_entropy - entropy, rtol=1e-4)


def test_a_right_categorical_prediction_has_no_loss():
    support = jnp.linspace(-1, 1, 5)
    logits = jax.random.normal(jax.random.key(0), (3, 5))
    error = Categorical(logits, support).bellman_error(jnp.zeros(3), jnp.ones(3), Categorical(logits, support), 1.0)
    np.testing.assert_allclose(error.loss, 0.0, atol=1e-6)
    assert np.all(np.asarray(error.priority) >= 0)


def test_a_categorical_mean_and_mixture():
    support = jnp.array([0.0, 1.0])
    both = Categorical(jnp.log(jnp.array([[[0.5, 0.5], [0.1, 0.9]]])), support)
    np.testing.assert_allclose(both.mean(), [[0.5, 0.9]], rtol=1e-6)
    mixed = both.under(jnp.array([[0.25, 0.75]]))
    np.testing.assert_allclose(jax.nn.softmax(mixed.logits)[0], [0.2, 0.8], rtol=1e-5)
    np.testing.assert_array_equal(both.under(one_hot([1], 2)).logits, both.logits[:, 1])


def test_a_sure_categorical_prediction_has_a_finite_loss_and_gradient():
    """Probabilities that underflow to 0 must not become the logarithm of 0."""
    support = jnp.array([0.0, 1.0])

    def loss(logits):
        predicted = Categorical(logits, support).under(one_hot([0], 2))
        return predicted.bellman_error(jnp.zeros(1), jnp.zeros(1), Categorical(jnp.zeros((1, 2)), support), 1.0).loss[0]

    value, gradient = jax.value_and_grad(loss)(jnp.array([[[-300.0, 300.0], [0.0, 0.0]]]))
    np.testing.assert_allclose(value, 600.0)
    assert np.isfinite(gradient).all()


# -- QR-DQN and IQN


def quantile_loss_slowly(predicted, taus, targets, kappa):
    """Every prediction with every target: summed over predictions, averaged over targets."""
    total = 0.0
    for value, tau in zip(predicted, taus, strict=True):
        for target in targets:
            error = target - value
            size = 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)
            total += abs(tau - (error < 0)) * size / len(targets)
    return total


def test_quantile_loss_by_hand():
    predicted = Quantiles(jnp.array([[0.0, 4.0]]), jnp.array([[0.25, 0.75]]))
    successor = Quantiles(jnp.array([[1.0]]), jnp.array([[0.5]]))
    error = predicted.bellman_error(jnp.array([0.0]), jnp.array([1.0]), successor, 1.0)
    # Errors 1 and -3: 0.25 * 0.5 for the low quantile, 0.25 * 2.5 for the high one.
    np.testing.assert_allclose(error.loss, [0.125 + 0.625])
    np.testing.assert_allclose(error.priority, error.loss)


@pytest.mark.parametrize(("predicted_count", "target_count"), [(5, 5), (3, 7), (8, 1)])
@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_quantile_loss_against_the_slow_one_and_rlax(predicted_count, target_count, kappa):
    """With different numbers of predictions and targets, so that exchanged axes cannot pass."""
    rng = np.random.default_rng(predicted_count)
    values = jnp.array(rng.normal(size=(4, predicted_count)), jnp.float32)
    taus = jnp.array(rng.uniform(size=(4, predicted_count)), jnp.float32)
    later = jnp.array(rng.normal(size=(4, target_count)), jnp.float32)
    reward, discount = jnp.array(rng.normal(size=4), jnp.float32), jnp.array([0.9, 0.0, 0.5, 1.0])
    successor = Quantiles(later, jnp.full((4, target_count), 0.5))
    ours = Quantiles(values, taus).bellman_error(reward, discount, successor, kappa).loss
    goals = reward[:, None] + discount[:, None] * later
    for row in range(4):
        slow = quantile_loss_slowly(values[row], taus[row], goals[row], kappa)
        np.testing.assert_allclose(ours[row], slow, rtol=1e-4)
        theirs = rlax.quantile_regression_loss(values[row], taus[row], goals[row], kappa)
        np.testing.assert_allclose(ours[row], theirs, rtol=1e-4)


def test_quantile_mean_and_policy():
    both = Quantiles(jnp.array([[[0.0, 2.0], [1.0, 5.0]]]), jnp.array([[0.25, 0.75]]))
    np.testing.assert_allclose(both.mean(), [[1.0, 3.0]])
    np.testing.assert_allclose(both.under(one_hot([1], 2)).values, [[1.0, 5.0]])
    np.testing.assert_allclose(both.under(jnp.array([[0.5, 0.5]])).values, [[0.5, 3.5]])


def test_minimising_the_quantile_loss_finds_the_quantiles():
    """Samples of a known distribution: the predictions settle on its quantiles, each on its own."""
    taus = jnp.array([[0.1, 0.5, 0.9]])
    samples = jax.random.exponential(jax.random.key(0), (4_000,))
    targets = Quantiles(samples[None], jnp.full((1, 4_000), 0.5))

    @jax.jit
    def step(values, rate):
        def loss(v):
            return jnp.sum(Quantiles(v, taus).bellman_error(jnp.zeros(1), jnp.ones(1), targets, 0.01).loss)

        return values - rate * jax.grad(loss)(values)

    values = jnp.zeros((1, 3))
    for number in range(400):
        values = step(values, 100.0 * 0.99**number)
    np.testing.assert_allclose(values[0], np.quantile(samples, [0.1, 0.5, 0.9]), atol=0.05)


EXAMPLES = {
    "scalar": lambda x: Scalar(x[:, 0]),
    "categorical": lambda x: Categorical(x, jnp.linspace(-1, 1, 4)),
    "quantiles": lambda x: Quantiles(x, jnp.broadcast_to(jnp.array([0.1, 0.4, 0.6, 0.9]), x.shape)),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_targets_and_priorities_get_no_gradient(kind):
    make: Any = EXAMPLES[kind]
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))

    def total(now, later, what):
        return jnp.sum(getattr(make(now).bellman_error(jnp.ones(3), jnp.full(3, 0.9), make(later), 1.0), what))

    assert np.any(jax.grad(lambda x: total(x, later, "loss"))(now) != 0)
    np.testing.assert_array_equal(jax.grad(lambda x: total(now, x, "loss"))(later), 0.0)
    np.testing.assert_array_equal(jax.grad(lambda x: total(x, later, "priority"))(now), 0.0)
