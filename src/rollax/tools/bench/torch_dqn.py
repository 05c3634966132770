"""DQN in PyTorch, as one would write it for speed without giving up eager mode."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rollax.tools.bench.gymnasium_side import greedy_score, vector_envs
from rollax.tools.bench.settings import Course, Settings
from rollax.tools.torch_learning import TorchWeights


class Batch(NamedTuple):
    """Transitions `[B, ...]`."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    continues: Tensor  # 0 after a termination, else 1: a time limit cuts what is seen, not what is worth
    next_obs: Tensor


class Replay:
    """The newest transitions, in arrays that are made once."""

    def __init__(self, capacity: int, obs_size: int, device: str) -> None:
        self.capacity, self.device, self.added = capacity, device, 0
        self.data = Batch(
            obs=torch.zeros((capacity, obs_size), device=device),
            action=torch.zeros(capacity, dtype=torch.int64, device=device),
            reward=torch.zeros(capacity, device=device),
            continues=torch.zeros(capacity, device=device),
            next_obs=torch.zeros((capacity, obs_size), device=device),
        )

    def add(self, rows: Batch) -> None:
        places = torch.arange(self.added, self.added + len(rows.action), device=self.device) % self.capacity
        for column, new in zip(self.data, rows, strict=True):
            column[places] = new.to(self.device)
        self.added += len(rows.action)

    def sample(self, count: int) -> Batch:
        places = torch.randint(min(self.added, self.capacity), (count,), device=self.device)
        return Batch(*(column[places] for column in self.data))


def make_network(obs_size: int, hidden: tuple[int, ...], num_actions: int) -> nn.Sequential:
    sizes = itertools.pairwise((obs_size, *hidden))
    layers = [layer for inputs, outputs in sizes for layer in (nn.Linear(inputs, outputs), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], num_actions))


class TorchDQN(TorchWeights):
    """The learner: weights, their target, and the optimizer."""

    def __init__(self, settings: Settings, obs_size: int, num_actions: int, device: str = "cpu") -> None:
        super().__init__(make_network(obs_size, settings.hidden, num_actions), settings, device)
        self.num_actions = num_actions
        self.gradient_steps = 0

    @torch.inference_mode()
    def best_actions(self, obs: np.ndarray) -> np.ndarray:
        return self.network(torch.from_numpy(obs).to(self.device)).argmax(dim=1).cpu().numpy()

    def actions(self, obs: np.ndarray, epsilon: float, random: np.random.Generator) -> np.ndarray:
        """A coin for each environment; the network is asked only if it is needed."""
        drawn = random.integers(self.num_actions, size=len(obs))
        by_chance = random.random(len(obs)) < epsilon
        return drawn if by_chance.all() else np.where(by_chance, drawn, self.best_actions(obs))

    def loss(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            following = self.target(batch.next_obs).amax(dim=1)
            wanted = batch.reward + self.settings.discount * batch.continues * following
        predicted = self.network(batch.obs).gather(1, batch.action[:, None])[:, 0]
        return functional.smooth_l1_loss(predicted, wanted)

    def learn(self, batch: Batch) -> None:
        """One gradient step, after which the target may follow."""
        self.descend(self.loss(batch))
        self.gradient_steps += 1
        if self.gradient_steps % self.settings.target_period == 0:
            self.follow(1.0)


def train(settings: Settings, seed: int, device: str = "cpu") -> Course:
    """A whole training."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    envs = vector_envs(settings, settings.num_envs)
    (obs_size,) = envs.single_observation_space.shape
    learner = TorchDQN(settings, obs_size, int(envs.single_action_space.n), device)
    replay = Replay(settings.capacity, obs_size, device)
    obs, _ = envs.reset(seed=seed)
    over, step = np.zeros(settings.num_envs, bool), 0
    course = Course(settings)
    while step < settings.steps:
        action = learner.actions(obs, settings.epsilon(step), random)
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        kept = np.flatnonzero(~over)  # where an episode was over, this step only began another
        columns = (obs, action, reward.astype(np.float32), (~terminated).astype(np.float32), next_obs)
        replay.add(Batch(*(torch.from_numpy(column[kept]) for column in columns)))
        obs, over, step = next_obs, terminated | truncated, step + len(kept)
        while learner.gradient_steps < (step - settings.warm_up_steps) * settings.updates_per_step:
            learner.learn(replay.sample(settings.batch_size))
        if course.due(step):
            course.reached(step, lambda: [greedy_score(settings, learner.best_actions, seed)])
    return course
