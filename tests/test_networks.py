"""Networks: shapes, sizes, the dueling identity, noise that is drawn anew, and what reaches the first layer."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.networks.heads import (
    CategoricalHead,
    ImplicitQuantileHead,
    NoisyDense,
    QNetwork,
    QuantileHead,
    ScalarHead,
    Streams,
    midpoints,
)
from rollax.networks.torsos import MLP, ImpalaTorso, MinAtarTorso, NatureTorso, flatten_features
from rollax.networks.weights import orthogonal
from rollax.types import Observation

HEADS = [ScalarHead(), CategoricalHead(atoms=7), QuantileHead(quantiles=5), ImplicitQuantileHead(quantiles=6)]


def apply(module: nn.Module, variables: Any, *inputs: Any, **options: Any) -> Any:
    """What a network without changing state says."""
    return module.apply(variables, *inputs, **options)


def count(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("noise", ["none", "factorised", "independent"])
def test_a_q_network_gives_one_value_for_each_action(head, dueling, noise):
    network = QNetwork(3, MLP((16,)), Streams(dueling=dueling, stream_hidden=8, noise=noise), head)
    features = jnp.ones((5, 4))
    params = network.init(jax.random.key(0), features)
    for rngs in (None, {"noise": jax.random.key(1), "levels": jax.random.key(2)}):
        values = apply(network, params, features, rngs=rngs).mean()
        assert values.shape == (5, 3)
        assert np.isfinite(values).all()


@pytest.mark.parametrize("noise", ["none", "factorised"])
def test_advantages_are_centred(noise):
    """The mean over actions of a dueling network is the value stream alone."""
    streams = Streams(dueling=True, noise=noise)
    x = jax.random.normal(jax.random.key(0), (6, 3))
    params = streams.init(jax.random.key(1), x, 4, 2)
    out = apply(streams, params, x, 4, 2)
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
    np.testing.assert_allclose(apply(scaled, params, x), apply(plain, params, jnp.array([[2.0, 2.0]])), rtol=1e-6)
    shape = Observation(jax.ShapeDtypeStruct((3,), jnp.float32))
    assert scaled.problems(shape) == ["input_scale has 2 numbers, but the observation has 3; give one for each"]
    assert plain.problems(shape) == []


def test_the_same_key_makes_the_same_weights():
    network = QNetwork(2, MLP(), Streams(), ScalarHead())
    x = jnp.ones((1, 4))
    one, same, other = (jax.tree.leaves(network.init(jax.random.key(k), x)) for k in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_layer_norm_keeps_the_units_in_proportion():
    """Inputs a thousand times as large give the same features: what PQN rests on."""
    torso = MLP((16, 16), layer_norm=True)
    x = jax.random.normal(jax.random.key(0), (4, 3))
    params = torso.init(jax.random.key(1), x)
    np.testing.assert_allclose(apply(torso, params, 1_000 * x), apply(torso, params, x), rtol=1e-3, atol=1e-4)
    assert not np.allclose(apply(MLP((16, 16)), params, 1_000 * x), apply(MLP((16, 16)), params, x), rtol=0.5)


# -- pictures


def test_the_nature_network_has_its_known_size():
    network = QNetwork(4, NatureTorso(), Streams(), ScalarHead())
    params = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((1, 84, 84, 4), jnp.uint8))
    assert count(params) == 1_686_180


def test_the_other_torsos_have_their_sizes():
    board = jnp.zeros((1, 10, 10, 4), bool)
    minatar = jax.eval_shape(MinAtarTorso().init, jax.random.key(0), board)
    assert count(minatar) == 3 * 3 * 4 * 16 + 16 + 8 * 8 * 16 * 128 + 128
    frames = jnp.zeros((1, 84, 84, 4), jnp.uint8)
    impala = jax.eval_shape(ImpalaTorso().init, jax.random.key(0), frames)

    def stage(before, after):
        return (9 * before + 1) * after + 4 * (9 * after + 1) * after

    convolutions = stage(4, 16) + stage(16, 32) + stage(32, 32)
    assert count(impala) == convolutions + (11 * 11 * 32 + 1) * 256


@pytest.mark.parametrize(
    "torso", [MinAtarTorso(), NatureTorso(), ImpalaTorso()], ids=lambda torso: type(torso).__name__
)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_bytes_are_read_as_shares_of_255(torso, layer_norm):
    torso = torso.clone(layer_norm=layer_norm)
    frames = jax.random.randint(jax.random.key(0), (2, 40, 40, 2), 0, 256).astype(jnp.uint8)
    params = torso.init(jax.random.key(1), frames)
    seen, expected = apply(torso, params, frames), apply(torso, params, frames.astype(jnp.float32) / 255)
    np.testing.assert_allclose(seen, expected, rtol=1e-3, atol=1e-4)
    assert seen.ndim == 2


def test_a_board_of_flags_is_read_as_zeros_and_ones():
    board = jax.random.bernoulli(jax.random.key(0), shape=(3, 10, 10, 4))
    torso = MinAtarTorso()
    params = torso.init(jax.random.key(1), board)
    np.testing.assert_allclose(apply(torso, params, board), apply(torso, params, board.astype(jnp.float32)), atol=1e-5)


def test_a_torso_for_pictures_refuses_what_is_none():
    vector = Observation(jax.ShapeDtypeStruct((4,), jnp.float32))
    board = Observation(jax.ShapeDtypeStruct((10, 10, 4), jnp.float32))
    assert "wants one picture" in MinAtarTorso().problems(vector)[0]
    assert MinAtarTorso().problems(board) == []
    assert "at least 36 x 36; this is (10, 10, 4)" in NatureTorso().problems(board)[0]


# -- noise


def normals(layer, inputs, key):
    return jax.random.normal(jax.random.key(key), (layer.noise_size(inputs),))


@pytest.mark.parametrize("noise", ["factorised", "independent"])
@pytest.mark.parametrize("dueling", [False, True])
def test_noise_is_drawn_anew_for_each_pass_and_absent_without_a_key(noise, dueling):
    streams = Streams(noise=noise, stream_hidden=8, dueling=dueling)
    x = jax.random.normal(jax.random.key(0), (4, 5))
    params = streams.init(jax.random.key(1), x, 3, 2)
    one, same, other = (apply(streams, params, x, 3, 2, rngs={"noise": jax.random.key(k)}) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.all(one != other)
    still = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "spread" in jax.tree_util.keystr(path) else leaf, params
    )
    means = apply(streams, params, x, 3, 2)
    np.testing.assert_allclose(apply(streams, still, x, 3, 2, rngs={"noise": jax.random.key(0)}), means, rtol=1e-5)


def test_layers_of_a_pass_have_noise_of_their_own():
    """Two streams of the same size, one of them silenced at a time: under one key their noise differs."""
    streams = Streams(noise="independent", dueling=True)
    x = jnp.eye(5)
    still = jax.tree.map(jnp.zeros_like, streams.init(jax.random.key(1), x, 2, 1)["params"])
    seen = {}
    for name in ("advantage", "value"):
        noisy = {**still[name], "kernel_spread": jnp.ones_like(still[name]["kernel_spread"])}
        out = apply(streams, {"params": {**still, name: noisy}}, x, 2, 1, rngs={"noise": jax.random.key(3)})[..., 0]
        # Advantages are centred, so their difference shows them; a value is the same for both actions.
        seen[name] = np.asarray(out[:, 0] - out[:, 1]) if name == "advantage" else np.asarray(out[:, 0])
    assert np.all(np.abs(seen["advantage"]) > 1e-3)
    assert np.all(np.abs(seen["value"]) > 1e-3)
    assert not np.isclose(seen["advantage"], seen["value"], rtol=1e-3).any()


@pytest.mark.parametrize(
    ("noise", "reach", "spread"), [("factorised", 1 / 8, 0.5 / 8), ("independent", 3**0.5 / 8, 0.017)]
)
def test_means_and_spreads_start_as_in_the_paper(noise, reach, spread):
    params = NoisyDense(200, noise, 0.5).init(jax.random.key(0), jnp.ones((1, 64)), None)["params"]
    for name in ("kernel", "bias"):
        assert np.abs(params[name]).max() <= reach
        np.testing.assert_allclose(np.abs(params[name]).max(), reach, rtol=0.05)
        np.testing.assert_allclose(params[f"{name}_spread"], spread, rtol=1e-6)


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_the_output_has_the_mean_and_the_spread_of_its_weights(noise):
    """Over many draws: means stay, and the variance is that of the sum of the noisy terms."""
    layer = NoisyDense(2, noise, 0.5)
    x = jnp.array([[1.0, -2.0, 0.5]])
    params = layer.init(jax.random.key(1), x, None)
    drawn = jax.random.normal(jax.random.key(2), (20_000, layer.noise_size(3)))
    draws = jax.vmap(lambda normals: apply(layer, params, x, normals)[0])(drawn)
    np.testing.assert_allclose(jnp.mean(draws, axis=0), apply(layer, params, x, None)[0], atol=0.05)
    spread = params["params"]["kernel_spread"][0, 0]
    # f(x) = sign(x) sqrt(|x|) has mean 0 and mean square sqrt(2 / pi); the bias shares the outputs' noise.
    unit = np.sqrt(2 / np.pi)
    energy = float(jnp.sum(x**2))
    variance = spread**2 * (energy * unit**2 + unit) if noise == "factorised" else spread**2 * (energy + 1)
    np.testing.assert_allclose(jnp.var(draws, axis=0), variance, rtol=0.06)


@pytest.mark.parametrize(("noise", "rank"), [("factorised", 1), ("independent", 4)])
def test_factorised_noise_has_rank_one(noise, rank):
    layer = NoisyDense(4, noise, 0.5)
    params = layer.init(jax.random.key(0), jnp.ones((1, 5)), None)
    drawn = normals(layer, 5, 3)
    weights = apply(layer, params, jnp.eye(5), drawn) - apply(layer, params, jnp.zeros((1, 5)), drawn)
    noise = (weights - params["params"]["kernel"]) / params["params"]["kernel_spread"]
    assert np.linalg.matrix_rank(noise, tol=1e-3) == rank


# -- quantiles


def test_taus_are_drawn_anew_for_each_pass_and_row():
    network = QNetwork(2, MLP((8,)), Streams(), ImplicitQuantileHead(quantiles=16))
    x = jnp.ones((300, 3))
    params = network.init(jax.random.key(0), x)
    one, other = (apply(network, params, x, rngs={"levels": jax.random.key(k)}).taus for k in (0, 1))
    assert len(np.unique(np.concatenate([one, other]))) > 9_000  # of 9,600
    assert np.all((np.asarray(one) >= 0) & (np.asarray(one) < 1))
    np.testing.assert_allclose(np.mean(one), 0.5, atol=0.02)
    assert apply(network, params, x).taus[0].tolist() == midpoints(16).tolist()


def test_a_value_depends_on_its_own_tau_alone():
    """The value of a level is the same whatever other levels were asked for beside it."""
    x = jax.random.normal(jax.random.key(0), (3, 4))
    few = QNetwork(2, MLP((8,)), Streams(), ImplicitQuantileHead(quantiles=2))
    many = QNetwork(2, MLP((8,)), Streams(), ImplicitQuantileHead(quantiles=6))
    params = few.init(jax.random.key(1), x)
    two, six = apply(few, params, x), apply(many, params, x)
    np.testing.assert_allclose(two.taus[0], [0.25, 0.75])
    np.testing.assert_allclose(two.values[:, :, 0], six.values[:, :, 1], rtol=1e-5)  # (1 + 0.5) / 6 = 0.25
    np.testing.assert_allclose(two.values[:, :, 1], six.values[:, :, 4], rtol=1e-5)
    assert not np.allclose(six.values[:, :, 0], six.values[:, :, 5])


def test_qr_levels_are_the_midpoints():
    network = QNetwork(2, MLP((8,)), Streams(), QuantileHead(quantiles=4))
    x = jnp.ones((3, 3))
    returns = apply(network, network.init(jax.random.key(0), x), x)
    assert returns.values.shape == (3, 2, 4)
    np.testing.assert_allclose(returns.taus, np.broadcast_to([0.125, 0.375, 0.625, 0.875], (3, 4)))


def test_a_support_must_rise():
    problems = CategoricalHead(value_min=1.0, value_max=1.0).problems()
    assert problems == ["value_min=1.0 must be below value_max=1.0; exchange them or move one"]
    assert CategoricalHead().problems() == []


@pytest.mark.parametrize("shape", [(64, 2), (64, 1), (8, 64), (5, 5), (64, 64)])
def test_orthogonal_weights_are_jaxs_and_need_no_other_library(shape):
    """LAPACK's QR, in a population's program, can hang on two cores, and in a program that was loaded it crashes."""
    keys, begin = jax.random.split(jax.random.key(0), 6), orthogonal(0.5)
    compiled = jax.jit(jax.vmap(lambda key: begin(key, shape))).lower(keys).compile()
    assert "custom_call_target" not in str(compiled.as_text())
    for key, one in zip(keys, compiled(keys), strict=True):
        np.testing.assert_allclose(one, jax.nn.initializers.orthogonal(0.5)(key, shape), atol=2e-6)
