"""The same weights in both frameworks: a matrix of JAX's is (inputs, outputs), one of PyTorch's (outputs, inputs)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from rollax.types import Params

LAYERS = {
    "torso": ("torso", "Dense_0"),
    "tau": ("head", "tau"),
    "shared": ("streams", "shared"),
    "advantage": ("streams", "advantage"),
    "value": ("streams", "value"),
}
NAMES = {"weight": "kernel", "bias": "bias", "weight_spread": "kernel_spread", "bias_spread": "bias_spread"}


def to_torch(params: Params) -> dict[str, Tensor]:
    """One player's weights as the state of a `QuantileNetwork`."""
    state = {}
    for layer, (part, name) in LAYERS.items():
        own = params["params"][part][name]
        state |= {
            f"{layer}.{theirs}": torch.tensor(np.asarray(own[ours]).T) for theirs, ours in NAMES.items() if ours in own
        }
    return state


def from_torch(state: dict[str, Tensor]) -> Params:
    """The state of a `QuantileNetwork` as one player's weights."""
    tree: dict[str, dict[str, dict]] = {}
    for layer, (part, name) in LAYERS.items():
        own = {
            ours: jnp.asarray(state[f"{layer}.{theirs}"].detach().cpu().numpy().T)
            for theirs, ours in NAMES.items()
            if f"{layer}.{theirs}" in state
        }
        tree.setdefault(part, {})[name] = own
    return {"params": tree}
