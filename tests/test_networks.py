"""Networks: shapes, the dueling identity, and what reaches the first layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.networks import MLP, QNetwork, ScalarHead, Streams, flatten_features
from rollax.types import Observation


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("hidden", [0, 8])
def test_a_q_network_gives_one_value_for_each_action(dueling, hidden):
    network = QNetwork(3, MLP((16,)), ScalarHead(), dueling, hidden)
    features = jnp.ones((5, 4))
    params = network.init(jax.random.key(0), features)
    assert network.apply(params, features).mean().shape == (5, 3)


def test_advantages_are_centred():
    """The mean over actions of a dueling network is the value stream alone."""
    streams = Streams(num_actions=4, width=2, dueling=True, hidden=0)
    x = jax.random.normal(jax.random.key(0), (6, 3))
    params = streams.init(jax.random.key(1), x)
    out = streams.apply(params, x)
    value = x @ params["params"]["value"]["kernel"] + params["params"]["value"]["bias"]
    np.testing.assert_allclose(jnp.mean(out, axis=1), value, atol=1e-5)


def test_features_of_any_shape_and_dtype_become_one_vector():
    features = {"a": jnp.ones((2, 3, 2), jnp.uint8), "b": jnp.ones((2,), bool)}
    flat = flatten_features(features)
    assert flat.shape == (2, 7)
    assert flat.dtype == jnp.float32


def test_input_scale_multiplies_the_observation():
    plain, scaled = MLP((8,)), MLP((8,), input_scale=(2.0, 0.5))
    x = jnp.array([[1.0, 4.0]])
    params = plain.init(jax.random.key(0), x)
    np.testing.assert_allclose(scaled.apply(params, x), plain.apply(params, jnp.array([[2.0, 2.0]])), rtol=1e-6)
    shape = Observation(jax.ShapeDtypeStruct((3,), jnp.float32))
    assert scaled.problems(shape) == ["input_scale has 2 numbers, but the observation has 3"]
    assert plain.problems(shape) == []


def test_the_same_key_makes_the_same_weights():
    network = QNetwork(2, MLP(), ScalarHead())
    x = jnp.ones((1, 4))
    one, same, other = (jax.tree.leaves(network.init(jax.random.key(k), x)) for k in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
