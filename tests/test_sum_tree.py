"""The sum tree: its sums are exact, its draws are fair, and nothing that it is given breaks it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollax.memory import sum_tree


def leaves_of(tree, count):
    return np.asarray(tree.levels[0]).reshape(tree.levels[0].shape[0], -1)[:, :count]


def consistent(tree):
    """Every parent is the sum of its children as they are, to the rounding of that one sum."""
    for below, above in zip(tree.levels, tree.levels[1:], strict=False):
        sums = np.asarray(below, np.float64).sum(-1)
        shown = np.asarray(above).reshape(above.shape[0], -1)
        np.testing.assert_allclose(shown[:, : sums.shape[1]], sums, rtol=1e-6)
        assert np.all(shown[:, sums.shape[1] :] == 0)


def filled(num_envs, leaves, seed=0):
    tree = sum_tree.init(num_envs, leaves)
    weights = np.random.default_rng(seed).uniform(size=(num_envs, leaves)).astype(np.float32)
    env, leaf = np.divmod(np.arange(num_envs * leaves), leaves)
    return jax.jit(sum_tree.set_leaves)(tree, jnp.array(env), jnp.array(leaf), jnp.array(weights.ravel())), weights


@pytest.mark.parametrize(("num_envs", "leaves"), [(1, 1), (1, 16), (2, 17), (3, 300), (40, 5)])
def test_leaves_and_sums(num_envs, leaves):
    tree, weights = filled(num_envs, leaves)
    np.testing.assert_array_equal(leaves_of(tree, leaves), weights)
    consistent(tree)
    assert tree.levels[-1].shape[1] == 1


def test_columns_are_leaves_of_every_environment():
    tree, weights = filled(3, 300)
    tree = jax.jit(sum_tree.set_columns)(tree, jnp.array([5, 299, 0]), jnp.array([2.0, 0.0, 7.0]))
    weights[:, [5, 299, 0]] = [2.0, 0.0, 7.0]
    np.testing.assert_array_equal(leaves_of(tree, 300), weights)
    consistent(tree)


def test_a_leaf_that_is_there_twice_gets_the_larger_weight():
    tree, _ = filled(2, 50)
    tree = sum_tree.set_leaves(tree, jnp.array([1, 1, 1]), jnp.array([7, 7, 7]), jnp.array([0.1, 0.3, 0.2]))
    assert leaves_of(tree, 50)[1, 7] == np.float32(0.3)
    consistent(tree)


def test_sums_do_not_drift():
    """Beside it, a sum that is kept by adding differences in float32: that one does drift under the same changes."""
    tree, _ = filled(1, 256)
    kept = jnp.sum(tree.levels[-1])

    @jax.jit
    def change(tree, kept, leaf, weight):
        old = tree.levels[0].reshape(-1)[leaf]
        tree = sum_tree.set_leaves(tree, jnp.zeros_like(leaf), leaf, weight)
        return tree, kept + jnp.sum(weight - old)

    rng = np.random.default_rng(0)
    for _ in range(300):
        leaf = jnp.array(rng.choice(256, 8, replace=False))
        tree, kept = change(tree, kept, leaf, jnp.array(np.exp(10 * rng.normal(size=8)), jnp.float32))
    everywhere = jnp.arange(256)
    for part in jnp.split(everywhere, 32):
        tree, kept = change(tree, kept, part, jnp.full(8, 1e-3))
    np.testing.assert_allclose(jnp.sum(tree.levels[-1]), 0.256, rtol=1e-6)
    consistent(tree)
    assert abs(float(kept) - 0.256) > 0.1


@pytest.mark.parametrize(("num_envs", "leaves"), [(1, 40), (3, 20), (20, 3)])
def test_draws_are_in_proportion(num_envs, leaves):
    tree, weights = filled(num_envs, leaves, seed=4)
    weights[0, 1] = 0.0
    tree = sum_tree.set_leaves(tree, jnp.array([0]), jnp.array([1]), jnp.array([0.0]))
    count = 60_000
    drawn = jax.jit(sum_tree.draw, static_argnums=2)(tree, jax.random.key(1), count)
    shares = weights / weights.sum()
    seen = np.zeros_like(weights)
    np.add.at(seen, (np.asarray(drawn.env), np.asarray(drawn.leaf)), 1)
    assert seen[0, 1] == 0
    positive = shares > 0
    chi_square = np.sum((seen - count * shares)[positive] ** 2 / (count * shares)[positive])
    degrees = positive.sum() - 1
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)
    np.testing.assert_allclose(drawn.share, shares[drawn.env, drawn.leaf], rtol=1e-5)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1e-3, 1.0, 1e6, 1e12]), st.sampled_from([1, 2, 33, 300]))
def test_only_positive_leaves_are_drawn(seed, scale, leaves):
    """Whatever the spread of the weights: a leaf without weight, or beyond the end, never comes up."""
    rng = np.random.default_rng(seed)
    weights = np.where(rng.uniform(size=(2, leaves)) < 0.7, 0.0, rng.uniform(size=(2, leaves)) * scale)
    weights[rng.integers(2), rng.integers(leaves)] = 1e-6  # one at least, and it may be far smaller than the rest
    env, leaf = np.divmod(np.arange(2 * leaves), leaves)
    tree = sum_tree.set_leaves(
        sum_tree.init(2, leaves), jnp.array(env), jnp.array(leaf), jnp.array(weights.ravel(), jnp.float32)
    )
    drawn = sum_tree.draw(tree, jax.random.key(seed), 256)
    assert np.all(np.asarray(drawn.leaf) < leaves)
    assert np.all(weights[drawn.env, drawn.leaf] > 0)


def test_fractions_at_the_edges_stay_inside():
    children = jnp.array([[0.0, 0.3, 0.0, 0.1] + [0.0] * 12])
    lowest, highest = jnp.array([0.0]), jnp.array([1 - 2**-24])
    node = jnp.array([0])
    assert int(sum_tree._descend(children, node, lowest)[0][0]) == 1
    assert int(sum_tree._descend(children, node, highest)[0][0]) == 3
