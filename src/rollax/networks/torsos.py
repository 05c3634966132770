"""From what is observed to a vector of features."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from rollax.networks.convolution import Conv, max_pool
from rollax.settings import COUNT, POSITIVE, setting
from rollax.types import Array, Observation

Precision = Literal["float32", "bfloat16"]
LARGE = 36  # pixels of a side, the least that the convolutions of Mnih et al. 2015 can see


class Torso(nn.Module):
    """From the features of observations, a tree of `[B, ...]`, to one vector `[B, D]` for each."""

    reads_raw: ClassVar[bool] = False  # it knows what single features mean, so they must come as they are

    def problems(self, observation: Observation) -> list[str]:
        """What is wrong with this torso for such observations, each with its fix."""
        return []


class MLP(Torso):
    """Dense layers with ReLU over the flattened features."""

    hidden: tuple[int, ...] = setting((128, 128), "Number of units of each hidden layer.", limit=COUNT, memory=True)
    layer_norm: bool = setting(False, "Apply layer normalisation before each ReLU of the torso.")
    input_scale: tuple[float, ...] = setting(
        (), "Factors that the numbers of an observation are multiplied with, one for each.", limit=POSITIVE
    )

    def problems(self, observation: Observation) -> list[str]:
        size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(observation.features))
        if len(self.input_scale) in (0, size):
            return []
        return [f"input_scale has {len(self.input_scale)} numbers, but the observation has {size}; give one for each"]

    @nn.compact
    def __call__(self, features: Any) -> Array:
        x = flatten_features(features)
        if self.input_scale:
            x = x * jnp.array(self.input_scale, jnp.float32)
        return dense_layers(x, self.hidden, self.layer_norm)


class MixedTorso(MLP):
    """Dense layers over any observation: pictures pass through convolutions first, all else is flattened and joined.

    A picture is an array [height, width, channels] of at least 3 x 3.  One of at least 36 x 36 passes through the
    convolutions of `nature`, a smaller one through a single layer.
    """

    channels: int = setting(32, "Number of filters of the convolution over a small picture.", limit=COUNT, rare=True)

    def problems(self, observation: Observation) -> list[str]:
        rest = [leaf for leaf in jax.tree.leaves(observation.features) if not is_picture(leaf.shape)]
        return super().problems(Observation(rest))

    @nn.compact
    def __call__(self, features: Any) -> Array:
        leaves = jax.tree.leaves(features)
        seen = [self.view(leaf) for leaf in leaves if is_picture(leaf.shape[1:])]
        rest = [leaf for leaf in leaves if not is_picture(leaf.shape[1:])]
        if rest:
            x = flatten_features(rest)
            seen.append(x * jnp.array(self.input_scale, jnp.float32) if self.input_scale else x)
        return dense_layers(jnp.concatenate(seen, axis=-1), self.hidden, self.layer_norm)

    def view(self, x: Array) -> Array:
        """What convolutions see in pictures `[B, H, W, C]`, as rows.  For use in a compact module."""
        scale, large = pixel_scale(x), min(x.shape[1:3]) >= LARGE
        layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if large else ((self.channels, 3, 1),)
        for filters, size, stride in layers:
            conv = Conv(filters, (size, size), (stride, stride), "VALID" if large else "SAME", scale=scale)
            x, scale = rectify(conv(x), self.layer_norm), 1.0
        return x.reshape(x.shape[0], -1)


class MinAtarTorso(Torso):
    """One small convolution over a 10 x 10 board, then dense layers (Young and Tian 2019)."""

    channels: int = setting(16, "Number of filters of the convolution.", limit=COUNT, rare=True)
    hidden: tuple[int, ...] = setting(
        (128,), "Number of units of each dense layer after the convolutions.", limit=COUNT, memory=True
    )
    layer_norm: bool = setting(False, "Apply layer normalisation before each ReLU of the torso.")
    precision: Precision = setting(
        "float32", "Precision of the torso's matrix products; its weights and features stay float32.", rare=True
    )

    def problems(self, observation: Observation) -> list[str]:
        return image_problems("minatar", observation, least=3)

    @nn.compact
    def __call__(self, features: Any) -> Array:
        x = picture(features)
        x = rectify(
            Conv(self.channels, (3, 3), scale=pixel_scale(x), dtype=dtype_of(self.precision))(x), self.layer_norm
        )
        x = x.reshape(x.shape[0], -1)
        return dense_layers(x, self.hidden, self.layer_norm, self.precision)


class NatureTorso(Torso):
    """The network of Mnih et al. 2015 for 84 x 84 frames, up to its hidden dense layer; or one of other layers."""

    filters: tuple[int, ...] = setting((32, 64, 64), "Number of filters of each convolution.", limit=COUNT, rare=True)
    windows: tuple[int, ...] = setting((8, 4, 3), "Side length of each convolution's window.", limit=COUNT, rare=True)
    strides: tuple[int, ...] = setting((4, 2, 1), "Stride of each convolution.", limit=COUNT, rare=True)
    hidden: tuple[int, ...] = setting(
        (512,), "Number of units of each dense layer after the convolutions.", limit=COUNT, memory=True
    )
    layer_norm: bool = setting(False, "Apply layer normalisation before each ReLU of the torso.")
    precision: Precision = setting(
        "float32", "Precision of the torso's matrix products; its weights and features stay float32.", rare=True
    )

    def problems(self, observation: Observation) -> list[str]:
        if not len(self.filters) == len(self.windows) == len(self.strides):
            return ["filters, windows and strides must have the same length: one of each for every convolution"]
        least = 1
        for window, stride in reversed(list(zip(self.windows, self.strides, strict=True))):
            least = (least - 1) * stride + window
        return image_problems("nature", observation, least)

    @nn.compact
    def __call__(self, features: Any) -> Array:
        x = picture(features)
        for channels, size, stride in zip(self.filters, self.windows, self.strides, strict=True):
            layer = Conv(channels, (size, size), (stride, stride), scale=pixel_scale(x), dtype=dtype_of(self.precision))
            x = rectify(layer(x), self.layer_norm)
        x = x.reshape(x.shape[0], -1)
        return dense_layers(x, self.hidden, self.layer_norm, self.precision)


class ImpalaTorso(Torso):
    """The residual network of Espeholt et al. 2018: three stages that each halve the picture."""

    stages: tuple[int, ...] = setting((16, 32, 32), "Number of filters of each residual stage.", limit=COUNT, rare=True)
    hidden: tuple[int, ...] = setting(
        (256,), "Number of units of each dense layer after the convolutions.", limit=COUNT, memory=True
    )
    layer_norm: bool = setting(False, "Apply layer normalisation before the ReLU of each dense layer.")
    precision: Precision = setting(
        "float32", "Precision of the torso's matrix products; its weights and features stay float32.", rare=True
    )

    def problems(self, observation: Observation) -> list[str]:
        return image_problems("impala", observation, least=2 ** len(self.stages))

    @nn.compact
    def __call__(self, features: Any) -> Array:
        x = picture(features)
        for channels in self.stages:
            x = Conv(channels, (3, 3), padding="SAME", scale=pixel_scale(x), dtype=dtype_of(self.precision))(x)
            x = max_pool(x, (3, 3), (2, 2), "SAME")
            for _ in range(2):
                inner = Conv(channels, (3, 3), padding="SAME", dtype=dtype_of(self.precision))(nn.relu(x))
                x = x + Conv(channels, (3, 3), padding="SAME", dtype=dtype_of(self.precision))(nn.relu(inner))
        x = nn.relu(x).reshape(x.shape[0], -1)
        return dense_layers(x, self.hidden, self.layer_norm, self.precision)


def rectify(x: Array, layer_norm: bool) -> Array:
    """ReLU, after a layer normalisation if there is one.  For use in a compact module."""
    return nn.relu(nn.LayerNorm(dtype=x.dtype)(x) if layer_norm else x)


def dense_layers(x: Array, widths: tuple[int, ...], layer_norm: bool, precision: Precision = "float32") -> Array:
    """Dense layers of these widths, each rectified, to float32.  For use in a compact module."""
    for width in widths:
        x = rectify(nn.Dense(width, dtype=dtype_of(precision))(x), layer_norm)
    return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x


def dtype_of(precision: Precision) -> Any:
    """What products are computed in; None for what their arguments are."""
    return jnp.bfloat16 if precision == "bfloat16" else None


def flatten_features(features: Any) -> Array:
    """Every leaf `[B, ...]` as float32, flattened and joined to one vector for each row."""
    leaves = jax.tree.leaves(features)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves], axis=-1)


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape, without an axis for several, counts as a picture."""
    return len(shape) == 3 and min(shape[:2]) >= 3


def picture(features: Any) -> Array:
    """The one picture `[B, H, W, C]` of the features, as it is: flags, bytes or numbers."""
    (x,) = jax.tree.leaves(features)
    return x


def pixel_scale(x: Array) -> float:
    """What brings a picture's numbers to between 0 and 1."""
    return 1 / 255 if x.dtype == jnp.uint8 else 1.0


def image_problems(name: str, observation: Observation, least: int) -> list[str]:
    """Whether observations are one picture of at least that size."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(observation.features)]
    side = min(shapes[0][:2]) if len(shapes) == 1 and len(shapes[0]) == 3 else 0  # of the one picture
    if side >= least:
        return []
    wanted = f"torso={name} wants one picture (height, width, channels) of at least {least} x {least}"
    return [f"{wanted}; this is {', '.join(map(str, shapes))}: try torso={'minatar' if side >= 3 else 'mlp'}"]
