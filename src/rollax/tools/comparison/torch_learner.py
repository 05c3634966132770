"""The treasure hunt's network and learner in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rollax.tools.comparison.numpy_replay import Drawn
from rollax.tools.comparison.settings import Settings
from rollax.tools.torch_learning import TorchWeights

Noise = Sequence[tuple[Tensor, Tensor]]  # of the weights and of the biases of each noisy layer


class NoisyLinear(nn.Module):
    """A linear layer whose weights are spread by independent noise around means that are learnt."""

    def __init__(self, inputs: int, outputs: int, spread: float) -> None:
        super().__init__()
        reach = math.sqrt(3 / inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-reach, reach))
        self.weight_spread = nn.Parameter(torch.full((outputs, inputs), spread))
        self.bias_spread = nn.Parameter(torch.full((outputs,), spread))

    def forward(self, x: Tensor, noise: tuple[Tensor, Tensor] | None) -> Tensor:
        if noise is None:
            return functional.linear(x, self.weight, self.bias)
        weight = torch.addcmul(self.weight, self.weight_spread, noise[0])
        return functional.linear(x, weight, torch.addcmul(self.bias, self.bias_spread, noise[1]))


class QuantileNetwork(nn.Module):
    """An implicit quantile network with noisy, dueling streams: a pure function of states, levels and noise."""

    waves: Tensor

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width, spread, actions = settings.shared_hidden, settings.noise_spread, settings.world.num_actions
        self.torso = nn.Linear(settings.inputs, width)
        self.tau = nn.Linear(settings.cosines, width)
        self.shared = NoisyLinear(width, width, spread)
        self.advantage = NoisyLinear(width, actions, spread)
        self.value = NoisyLinear(width, 1, spread)
        waves = math.pi * (settings.cosine_start + torch.arange(settings.cosines))
        self.register_buffer("waves", waves, persistent=False)

    @property
    def noisy_layers(self) -> tuple[NoisyLinear, ...]:
        return self.shared, self.advantage, self.value

    def draw_noise(self) -> Noise:
        """New noise for one pass."""
        return [(torch.randn_like(layer.weight), torch.randn_like(layer.bias)) for layer in self.noisy_layers]

    def forward(self, x: Tensor, taus: Tensor, noise: Noise | None = None) -> Tensor:
        """States `[B, inputs]` at levels `[B, N]` to returns `[B, N, A]`; without noise, of the mean weights."""
        shared, advantage, value = noise or (None, None, None)
        seen = functional.relu(self.torso(x))
        described = functional.relu(self.tau(torch.cos(taus[..., None] * self.waves)))
        joined = functional.relu(self.shared(seen[:, None] * described, shared))
        scores = self.advantage(joined, advantage)
        return self.value(joined, value) + scores - scores.mean(dim=-1, keepdim=True)


class Pass(NamedTuple):
    """What one pass of the network draws: levels `[B, N]`, and noise."""

    taus: Tensor
    noise: Noise


class TorchLearner(TorchWeights):
    """One agent: its network, the target of it, and its optimizer."""

    def __init__(self, settings: Settings, device: str = "cpu") -> None:
        super().__init__(QuantileNetwork(settings), settings, device)
        middles = (torch.arange(settings.act_levels, device=device) + 0.5) / settings.act_levels
        self.middles = middles[None]

    @torch.inference_mode()
    def best_action(self, state: np.ndarray) -> int:
        """The action with the highest mean over levels, without noise."""
        taus = self.middles
        if self.settings.act_level_choice == "random":
            taus = torch.rand((1, self.settings.act_levels), device=self.device)
        quantiles = self.network(torch.from_numpy(state).to(self.device), taus)
        return int(quantiles.mean(dim=1).argmax())

    def draw_pass(self, network: QuantileNetwork) -> Pass:
        taus = torch.rand((self.settings.batch_size, self.settings.quantiles), device=self.device)
        return Pass(taus, network.draw_noise())

    def loss(self, drawn: Drawn, judge: Pass, successor: Pass, now: Pass) -> Tensor:
        """The quantile Huber loss of a batch with what its three passes drew."""
        settings, kappa = self.settings, self.settings.huber_kappa
        state, action, reward, discount, next_state, valid = (
            torch.from_numpy(column).to(self.device) for column in drawn
        )
        with torch.no_grad():
            best = self.network(next_state, judge.taus, judge.noise).mean(dim=1).argmax(dim=-1)
            following = taken(self.target(next_state, successor.taus, successor.noise), best)
            targets = reward[:, None] + discount[:, None] * following
        predicted = taken(self.network(state, now.taus, now.noise), action)
        error = targets[:, None, :] - predicted[:, :, None]  # [B, predicted, target]
        size = error.abs()
        huber = torch.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa))
        weight = (now.taus[:, :, None] - (error.detach() < 0).float()).abs()
        losses = (weight * huber / kappa).mean(dim=2).sum(dim=1)
        return settings.loss_weight * (valid * losses).mean()

    def learn(self, drawn: Drawn) -> Tensor:
        """One gradient step, after which the target follows."""
        passes = (self.draw_pass(network) for network in (self.network, self.target, self.network))
        loss = self.loss(drawn, *passes)
        self.descend(loss)
        self.follow(self.settings.target_step)
        return loss.detach()


def taken(quantiles: Tensor, action: Tensor) -> Tensor:
    """The quantiles `[B, N]` of one action in each row."""
    return quantiles.gather(2, action[:, None, None].expand(-1, quantiles.shape[1], 1))[..., 0]
