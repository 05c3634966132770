"""A network for HackMatrix: convolutions over the board, with the player marked on it."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from rollax.networks.convolution import Conv
from rollax.networks.torsos import Torso, dense_layers, rectify
from rollax.settings import COUNT, setting
from rollax.types import Array, Observation


class HackMatrixTorso(Torso):
    """Residual convolutions over the cells of a square board; what is known of the player is added to every cell.

    The grid does not show where the player stands, so its row and its column are marked as two more channels.  They
    are the first two of the player's features, as shares of the board's side.
    """

    channels: int = setting(64, "Number of filters of each convolution.", limit=COUNT, rare=True)
    depth: int = setting(2, "Number of residual blocks, of two convolutions each.", limit=COUNT, rare=True)
    hidden: tuple[int, ...] = setting(
        (256,), "Number of units of each dense layer after the convolutions.", limit=COUNT, memory=True
    )
    layer_norm: bool = setting(False, "Apply layer normalisation before each ReLU of the torso.")
    reads_raw: ClassVar[bool] = True

    def problems(self, observation: Observation) -> list[str]:
        shapes = [leaf.shape for leaf in jax.tree.leaves(observation.features)]
        if [len(shape) for shape in shapes] == [1, 1, 3] and shapes[2][0] == shapes[2][1]:
            return []
        return ["torso=hackmatrix reads the observations of HackMatrix-v0 only: try torso=mlp"]

    @nn.compact
    def __call__(self, features: Any) -> Array:
        player, programs, grid = features
        facts = jnp.concatenate([player, programs], axis=-1)
        side = grid.shape[1]
        lines = jnp.arange(side) == jnp.round((side - 1) * player[:, :2])[..., None]  # [B, 2, side]: row, column
        row = jnp.broadcast_to(lines[:, 0, :, None, None], (*grid.shape[:3], 1))
        col = jnp.broadcast_to(lines[:, 1, None, :, None], (*grid.shape[:3], 1))
        x = jnp.concatenate([grid, row, col, row & col], axis=-1)
        x = Conv(self.channels, (3, 3), padding="SAME")(x) + nn.Dense(self.channels)(facts)[:, None, None]
        for _ in range(self.depth):
            inner = Conv(self.channels, (3, 3), padding="SAME")(rectify(x, self.layer_norm))
            x = x + Conv(self.channels, (3, 3), padding="SAME")(rectify(inner, self.layer_norm))
        x = rectify(x, self.layer_norm).reshape(x.shape[0], -1)
        return dense_layers(jnp.concatenate([x, facts], axis=-1), self.hidden, self.layer_norm)
