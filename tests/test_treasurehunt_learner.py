"""The treasure hunt's learner, number by number, as its specification has them."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rollax.networks.heads import ImplicitQuantileHead, QNetwork, Streams
from rollax.networks.torsos import MLP
from rollax.rules.returns import Quantiles

LAYERS = ("shared", "advantage", "value")


@pytest.fixture(params=["float64", pytest.param("float32", marks=pytest.mark.thorough)])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


def close(dtype):
    """The specification's tolerances: cos(64 pi tau) loses digits in float32."""
    loose = dtype == jnp.float32
    return partial(np.testing.assert_allclose, rtol=2e-4 if loose else 1e-8, atol=2e-5 if loose else 1.1e-9)


def network(width, num_actions):
    return QNetwork(
        num_actions,
        MLP(hidden=(width,)),
        Streams(dueling=True, shared_hidden=width, noise="independent"),
        ImplicitQuantileHead(quantiles=3, cosine_start=1),
    )


def weights(inputs, width, num_actions, shift, amplitude, dtype):
    """Every number from a formula, in the order and the layout (out, in) of the specification."""
    shapes = [(width, inputs), (width,), (width, 64), (width,)]
    for outputs in (width, num_actions, 1):
        shapes += [(outputs, width), (outputs,)] * 2
    made = []
    for m, shape in enumerate(shapes):
        wave = np.sin(0.7 * np.arange(np.prod(shape)) + 0.3 * m + shift).reshape(shape)
        made.append(jnp.asarray(amplitude(m, shape) * wave.T, dtype))
    noisy = {
        name: dict(zip(("kernel", "bias", "kernel_spread", "bias_spread"), made[4 + 4 * n :], strict=False))
        for n, name in enumerate(LAYERS)
    }
    return {
        "params": {
            "torso": {"Dense_0": {"kernel": made[0], "bias": made[1]}},
            "head": {"tau": {"kernel": made[2], "bias": made[3]}},
            "streams": noisy,
        }
    }


def is_spread(m):
    return m >= 4 and m % 4 >= 2


def small_amplitude(m, shape):
    return 0.05 if is_spread(m) else 0.4


def full_amplitude(m, shape):
    return 0.017 if is_spread(m) else 0.05 if len(shape) == 1 else 1 / np.sqrt(shape[1])


def levels(number, rows, count, dtype):
    place = np.arange(rows * count).reshape(rows, count)
    return jnp.asarray((0.37 * place + 0.11 + 0.2 * number) % 1.0, dtype)


def noise(number, width, num_actions, dtype):
    parts = []
    for layer, outputs in enumerate((width, num_actions, 1)):
        for part, shape in enumerate(((outputs, width), (outputs,))):
            wave = np.cos(0.9 * np.arange(np.prod(shape)) + number + 0.5 * layer + 0.25 * part)
            parts.append(wave.reshape(shape).T.reshape(-1))
    return jnp.asarray(np.concatenate(parts), dtype)


class Tiny:
    """The small network of section 13.6, and one gradient step with it."""

    def __init__(self, dtype):
        self.dtype, self.network = dtype, network(4, 3)
        self.local, self.target = (weights(4, 4, 3, shift, small_amplitude, dtype) for shift in (0.0, 0.15))
        self.x = jnp.array([[0, 1, 2, 1], [1, 0, -1, 0.5]], dtype)
        self.following = jnp.array([[2, 1, 0, 1], [-1, 0.5, 0.5, 2]], dtype)

    def quantiles(self, params, x, number, *, noisy=True) -> Quantiles:
        drawn = noise(number, 4, 3, self.dtype) if noisy else None
        return self.network.apply(params, x, drawn, levels(number, 2, 3, self.dtype))

    def loss(self, params, target, reward=(1, -0.5), factor=0.99**3, done=(0, 0), valid=(1, 1), scale=1):
        x, following = scale * self.x, scale * self.following
        best = jnp.argmax(self.quantiles(params, following, 0).mean(), axis=-1)
        successor = self.quantiles(target, following, 1).under(jax.nn.one_hot(best, 3, dtype=self.dtype))
        taken = jax.nn.one_hot(jnp.array([2, 0]), 3, dtype=self.dtype)
        predicted = self.quantiles(params, x, 2).under(taken)
        reward, done, valid = (jnp.array(column, self.dtype) for column in (reward, done, valid))
        error = predicted.bellman_error(reward, factor * (1 - done), successor, 1.0)
        return jnp.mean(valid * error.loss) / 3  # the mean over predictions; ours is their sum


def test_quantiles_without_and_with_noise(dtype):
    tiny, equal = Tiny(dtype), close(dtype)
    acting = tiny.quantiles(tiny.local, tiny.x, 0, noisy=False)
    expected = [
        [[-0.3547918774, -1.2048666354, -0.5571951703], [-0.2393706650, -0.7803932634, -0.5644984594],
         [-0.2290797383, -0.8138959657, -0.5514759734]],
        [[-2.2969562721, -3.0537171989, -1.4488103043], [-0.2151938136, -0.7591680816, -0.5530562149],
         [-0.2138026222, -0.7569403451, -0.5525906722]],
    ]  # fmt: skip
    equal(jnp.swapaxes(acting.values, 1, 2), expected)
    equal(acting.mean(), [[-0.2744140936, -0.9330519548, -0.5577232011], [-0.9086509026, -1.5232752085, -0.8514857305]])
    noisy = tiny.quantiles(tiny.local, tiny.x, 0)
    equal(noisy.values[0, :, 0], [-0.4500585997, -1.3474631710, -0.5716897311])
    equal(noisy.values[1, :, 2], [-0.2597567855, -0.8137911941, -0.5430007786])
    equal(noisy.taus, [[0.11, 0.48, 0.85], [0.22, 0.59, 0.96]])


def test_what_a_target_is_made_of(dtype):
    tiny, equal = Tiny(dtype), close(dtype)
    judged = tiny.quantiles(tiny.local, tiny.following, 0).mean()
    equal(judged, [[-0.2819760679, -0.8910005367, -0.5445345095], [-1.7230085237, -2.4420307320, -1.1632265373]])
    own = tiny.quantiles(tiny.target, tiny.following, 1).mean()
    assert jnp.argmax(judged, axis=-1).tolist() == [0, 2]
    assert jnp.argmax(own, axis=-1).tolist() == [0, 0]  # without double selection the target would differ
    policy = jax.nn.one_hot(jnp.array([0, 2]), 3, dtype=dtype)
    successor = tiny.quantiles(tiny.target, tiny.following, 1).under(policy)
    equal(successor.values[0], [-0.2364155717, -0.2400368844, -0.2915057746])
    equal(successor.values[1], [-0.5558337768, -0.5421502877, -0.5795542969])
    now = tiny.quantiles(tiny.local, tiny.x, 2).under(jax.nn.one_hot(jnp.array([2, 0]), 3, dtype=dtype))
    equal(now.values[0], [-0.5060689246, -0.4901195284, -0.4975756010])
    equal(now.values[1], [-0.1298509678, -0.1295632381, -0.1577056519])
    equal(now.taus, [[0.51, 0.88, 0.25], [0.62, 0.99, 0.36]])


@pytest.mark.parametrize(
    ("change", "loss", "norm"),
    [
        ({}, 0.27326112076, 0.49859399393),
        ({"factor": 0.99}, 0.27358722205, 0.49892627301),
        ({"done": (0, 1)}, 0.21510951169, 0.52224393695),
        ({"valid": (1, 0)}, 0.20440767672, 0.57534908447),
        ({"reward": (10, -1)}, 2.81812064097, 0.50309540168),
        ({"reward": (100, -100)}, 44.41312064097, 0.50309540168),
        ({"scale": 20}, 0.31773490051, 2.54657022786),
    ],
    ids="ABCDEFG",
)
def test_losses_and_gradients(dtype, change, loss, norm):
    tiny, equal = Tiny(dtype), close(dtype)
    found, grads = jax.value_and_grad(tiny.loss)(tiny.local, tiny.target, **change)
    equal(found, loss)
    equal(optax.tree.norm(grads), norm)
    if not change:
        grads = grads["params"]
        equal(grads["streams"]["value"]["bias"], [-0.1196203691])
        equal(grads["streams"]["advantage"]["bias"], [0.1935864206, 0.0398734564, -0.2334598770])
        equal(grads["head"]["tau"]["bias"], [-0.0132782698, -0.0009850873, 0.0186616825, -0.0048867901])
        spread = grads["streams"]["shared"]["kernel_spread"].T.reshape(-1)
        equal(spread[:4], [0.0067073257, -0.0002615050, 0.0067730269, -0.0000184529])


def test_three_steps_of_learning(dtype):
    """Adam after a clip at norm 1, and the target following by a thousandth after each step."""
    tiny, equal = Tiny(dtype), close(dtype)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.00025))
    local, target = tiny.local, tiny.target
    state = optimizer.init(local)
    expected = [
        (0.2732611208, -0.2748564637, -0.3153695481, 2.3999663431, 25.5849514833, 1.5833475295, 25.6339097870),
        (0.2723985619, -0.2746064594, -0.3153287850, 2.4007222587, 25.5854504419, 1.5841649042, 25.6332863762),
        (0.2715341071, -0.2743564477, -0.3152878127, 2.4014874766, 25.5859961291, 1.5849822268, 25.6326653620),
    ]
    for row in expected:
        loss, grads = jax.value_and_grad(tiny.loss)(local, target)
        updates, state = optimizer.update(grads, state)
        local = optax.apply_updates(local, updates)
        target = optax.incremental_update(local, target, 0.001)
        sums = [
            total
            for tree in (local, target)
            for total in (optax.tree.sum(tree), optax.tree.sum(jax.tree.map(jnp.square, tree)))
        ]
        both: Any = (local, target)
        bias = [tree["params"]["streams"]["value"]["bias"][0] for tree in both]
        equal(jnp.stack([loss, *bias, *sums]), row)


@pytest.mark.parametrize(
    ("size", "ones", "acting", "noisy", "total"),
    [
        (125, 114, [-0.0694704654, -0.0256317209, -0.1356192136, -0.3204710775],
         [-0.0850749183, -0.0360254178, -0.1416333733, -0.3235574790], -13.1143517662),
        (150, 137, [-0.0731723807, -0.0280551248, -0.1357363475, -0.3191061903],
         [-0.0888314033, -0.0384457340, -0.1425587334, -0.3231508857], -13.1675582242),
    ],
)  # fmt: skip
def test_the_full_network_has_its_fingerprint(dtype, size, ones, acting, noisy, total):
    equal, made = close(dtype), network(250, 4)
    params = weights(5 * size, 250, 4, 0.0, full_amplitude, dtype)
    place = np.arange(2 * 5 * size)
    x = jnp.asarray((7 * place % 11 == 0).reshape(2, -1), dtype)
    assert int(x.sum()) == ones
    calm = made.apply(params, x, None, levels(0, 2, 12, dtype))
    equal(calm.mean()[0], acting)
    np.testing.assert_allclose(jnp.sum(calm.values), total, rtol=1e-4 if dtype == jnp.float32 else 1e-9)
    equal(made.apply(params, x, noise(0, 250, 4, dtype), levels(0, 2, 12, dtype)).mean()[0], noisy)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert count == {125: 300_760, 150: 332_010}[size]
