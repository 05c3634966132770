"""What learners in PyTorch have in common: weights, the target that follows them, and Adam."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


class TorchWeights:
    """A network and its target.  The settings hold `learning_rate`, `optimizer_eps` and `max_grad_norm`."""

    def __init__(self, network: Any, settings: Any, device: str) -> None:
        self.settings, self.device = settings, device
        self.network = network.to(device)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=settings.learning_rate, eps=settings.optimizer_eps, fused=True
        )

    def descend(self, loss: Tensor) -> None:
        """One gradient step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.max_grad_norm)
        self.optimizer.step()

    @torch.no_grad()
    def follow(self, step: float) -> None:
        """Moves the target's weights that part of the way; the whole way makes them equal."""
        torch._foreach_lerp_(list(self.target.parameters()), list(self.network.parameters()), step)
