import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from rollax.networks.convolution import Conv, max_pool

LAYERS = {
    "nature 1": ((84, 84, 4), 32, (8, 8), (4, 4), "VALID"),
    "nature 2": ((20, 20, 32), 64, (4, 4), (2, 2), "VALID"),
    "nature 3": ((9, 9, 64), 64, (3, 3), (1, 1), "VALID"),
    "minatar 4": ((10, 10, 4), 16, (3, 3), (1, 1), "VALID"),
    "minatar 10": ((10, 10, 10), 16, (3, 3), (1, 1), "VALID"),
    "impala 1": ((84, 84, 4), 16, (3, 3), (1, 1), "SAME"),
    "impala 2": ((42, 42, 16), 32, (3, 3), (1, 1), "SAME"),
    "impala 3": ((11, 11, 32), 32, (3, 3), (1, 1), "SAME"),
    "odd, valid": ((11, 13, 5), 7, (5, 3), (2, 2), "VALID"),
    "odd, same": ((11, 13, 5), 7, (5, 3), (2, 3), "SAME"),
    "odd, deep": ((11, 14, 9), 7, (5, 4), (2, 3), "SAME"),
    "even kernel, same": ((7, 6, 3), 4, (4, 2), (1, 1), "SAME"),
    "kernel within a stride": ((9, 8, 3), 4, (1, 2), (3, 3), "VALID"),
    "one pixel": ((5, 5, 3), 4, (1, 1), (1, 1), "SAME"),
}
GRID = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())


def pair(layer, **options):
    _, features, window, strides, padding = layer
    ours = Conv(features, window, strides, padding, **options)
    return ours, nn.Conv(features, window, strides, padding=padding)


def image(layer, *lead):
    return np.random.default_rng(0).normal(size=(*lead, *layer[0])).astype(np.float32)


def parameters_of(layer, *lead):
    """Drawn by numpy, which compiles nothing."""
    (_, _, channels), features, window, _, _ = layer
    draw = np.random.default_rng(1)
    kernel = draw.normal(scale=0.1, size=(*lead, *window, channels, features))
    return {"params": {"kernel": kernel.astype(np.float32), "bias": draw.normal(size=(*lead, features)).astype("f")}}


def everything(module, parameters, x):
    """Output, gradients of the parameters, gradient of the input: no number of the output weighs the same."""

    def loss(parameters, x):
        out = module.apply(parameters, x)
        return jnp.sum(out * jnp.sin(jnp.arange(out.size)).reshape(out.shape)), out

    (gradients, dx), out = jax.grad(loss, argnums=(0, 1), has_aux=True)(parameters, x)
    return {"out": out, **gradients["params"], "x": dx}


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-5 * np.abs(value).max(), err_msg=name)


@GRID
def test_convolution_and_gradients_are_those_of_flax(layer):
    ours, theirs = pair(layer)
    x, parameters = image(layer, 2), parameters_of(layer)
    compiled = jax.jit(everything, static_argnums=0)
    assert_same(compiled(ours, parameters, x), compiled(theirs, parameters, x))


@GRID
def test_each_member_has_its_own_kernel(layer):
    ours, theirs = pair(layer)
    x, parameters = image(layer, 3, 1), parameters_of(layer, 3)
    members = jax.jit(jax.vmap(lambda p, x: everything(ours, p, x)))(parameters, x)
    alone = jax.jit(lambda p, x: everything(theirs, p, x))
    for i in range(3):
        assert_same(take(members, i), alone(take(parameters, i), x[i]))


def take(tree, i):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.mark.parametrize("name", ["nature 2", "minatar 10", "odd, same"])
def test_parameters_are_those_of_flax(name):
    layer = LAYERS[name]
    ours, theirs = (jax.jit(module.init)(jax.random.key(3), image(layer, 2)) for module in pair(layer))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_kernel_init_is_used():
    layer = LAYERS["minatar 4"]
    ours, _ = pair(layer, kernel_init=nn.initializers.ones_init())
    assert jnp.all(ours.init(jax.random.key(0), image(layer, 2))["params"]["kernel"] == 1)


@pytest.mark.parametrize("name", ["nature 1", "minatar 4", "impala 1", "odd, same"])
@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.uint8])
def test_bytes_and_bits_are_cast_and_scaled(name, dtype):
    layer = LAYERS[name]
    scale = 1 / 255 if dtype == jnp.uint8 else 1.0
    ours, theirs = pair(layer, scale=scale)
    x = np.random.default_rng(0).integers(256 if dtype == jnp.uint8 else 2, size=(2, *layer[0])).astype(dtype)
    parameters = parameters_of(layer)

    @functools.partial(jax.jit, static_argnums=0)
    def found(module, x):
        out, pull = jax.vjp(lambda parameters: module.apply(parameters, x), parameters)
        return {"out": out, **pull(jnp.sin(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape))[0]["params"]}

    assert_same(found(ours, x), found(theirs, x.astype(jnp.float32) * scale))


@pytest.mark.parametrize("size", [(84, 84), (21, 21), (11, 8), (7, 6)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("window", [(3, 3), (2, 3)])
def test_max_pool_and_gradient_are_those_of_flax(size, padding, window):
    # Small integers, so that most windows have ties, which must fall the same way.
    x = np.random.default_rng(0).integers(-2, 2, size=(2, *size, 3)).astype(np.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def found(pool):
        out, pull = jax.vjp(lambda x: pool(x, window, (2, 2), padding), x)
        return {"out": out, "x": pull(jnp.sin(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape))[0]}

    assert_same(found(max_pool), found(nn.max_pool))
