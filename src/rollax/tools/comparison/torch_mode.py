"""The comparison's first mode: PyTorch, a world in NumPy, one agent after the other."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch

from rollax.experiment.experiment import Experiment
from rollax.tools.comparison.mode import PARTS, Mode
from rollax.tools.comparison.numpy_replay import NumpyReplay
from rollax.tools.comparison.numpy_world import NumpyWorld
from rollax.tools.comparison.settings import TYPICAL_EPSILON, settings_of
from rollax.tools.comparison.torch_learner import TorchLearner


class TorchMode(Mode):
    """All agents, their memories and the world, on all cores; `epoch` plays and learns once."""

    def __init__(self, experiment: Experiment, device: str = "cpu") -> None:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.settings, self.device = settings_of(experiment), device
        self.reset(experiment.seed)

    def reset(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.random = np.random.default_rng(seed)
        game = self.settings.world
        self.world = NumpyWorld(game.rules, self.random)
        self.learners = [TorchLearner(self.settings, self.device) for _ in range(game.agents)]
        self.memories = [
            NumpyReplay(self.settings.replay, game.frames, game.rules.observation_size) for _ in range(game.agents)
        ]
        self.played = 0  # epochs
        self.epsilon = self.settings.epsilon_start
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def epoch(self, epsilon: float | None = None) -> tuple[float, list[float]]:
        """One epoch: its return, and the loss of each agent's last gradient step; nan where there was none."""
        settings = self.settings
        share = self.epsilon if epsilon is None else epsilon
        for learner, memory in zip(self.learners, self.memories, strict=True):
            memory.add_gap()
            if settings.sync_period and self.played % settings.sync_period == 0:
                learner.follow(1.0)
        total = self.play(share)
        losses = [self.learn(learner, memory) for learner, memory in zip(self.learners, self.memories, strict=True)]
        self.epsilon = max(self.epsilon * (1 - settings.epsilon_decay), settings.epsilon_end)
        self.played += 1
        return total, losses

    def play(self, epsilon: float) -> float:
        """All turns of an epoch; returns the sum of rewards.

        In sequence each agent sees what those before it have done in this turn, else what was before the first moved.
        """
        game, total = self.settings.world, 0.0
        turns, agents = game.max_turns, game.agents
        with self.timed("world"):
            self.world.reset()
        for turn in range(turns):
            with self.timed("world"):
                self.world.spawn()
                order = self.random.permutation(agents) if game.shuffle_agent_order else range(agents)
                before = [] if game.in_turn else [self.world.observe(agent) for agent in range(agents)]
            for agent in order:
                with self.timed("world"):
                    frame = before[agent] if before else self.world.observe(agent)
                memory = self.memories[agent]
                with self.timed("acting"):
                    action = self.choose(agent, frame, epsilon)
                with self.timed("world"):
                    reward = self.world.move(agent, action)
                    memory.add(frame, action, reward, last=turn == turns - 1)
                total += reward
        return total

    def choose(self, agent: int, frame: np.ndarray, epsilon: float) -> int:
        if self.random.random() < epsilon:
            return int(self.random.integers(self.settings.world.num_actions))
        return self.learners[agent].best_action(self.memories[agent].stacked(frame))

    def learn(self, learner: TorchLearner, memory: NumpyReplay) -> float:
        settings, loss = self.settings, float("nan")
        if memory.num_windows < settings.batch_size:
            return loss
        for _ in range(settings.gradient_steps):
            with self.timed("sampling"):
                batch = memory.sample(self.random, settings.batch_size, settings.discount)
            with self.timed("training"):
                loss = float(learner.learn(batch))
        return loss

    @contextmanager
    def timed(self, part: str) -> Generator[None]:
        began = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - began

    def epochs(self, count: int, epsilon: float | None = None) -> list[float]:
        returns = [self.epoch(epsilon)[0] for _ in range(count)]
        if self.device != "cpu":
            torch.cuda.synchronize()
        return returns

    def greedy_returns(self, count: int, seed: int) -> list[float]:
        memories = copy.deepcopy(self.memories)
        self.random = self.world.random = np.random.default_rng(seed)
        returns = []
        for _ in range(count):
            for memory in self.memories:
                memory.add_gap()
            returns.append(self.play(0.0))
        self.memories = memories
        return returns

    def parts(self) -> dict[str, float]:
        count = 20
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.epochs(count, TYPICAL_EPSILON)
        return {part: spent / count for part, spent in self.seconds.items()}

    def device_name(self) -> str:
        return "cpu" if self.device == "cpu" else torch.cuda.get_device_name()

    def device_bytes(self) -> int | None:
        return None if self.device == "cpu" else torch.cuda.max_memory_allocated()
