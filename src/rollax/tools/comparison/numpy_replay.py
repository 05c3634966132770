"""The replay of whole epochs for a learner that is not compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rollax.memory.epochs import EpochReplay


class Drawn(NamedTuple):
    """A batch of windows, the states as one row of all frames each."""

    state: np.ndarray  # float32[B, frames * D]
    action: np.ndarray  # int64[B]
    reward: np.ndarray  # float32[B]
    discount: np.ndarray  # float32[B]: what the next state's value counts, 0 after an end
    next_state: np.ndarray
    valid: np.ndarray  # float32[B]: 0 for a window that reaches over an epoch's end


class NumpyReplay:
    """One agent's ring, changed in place, with the choices of an `EpochReplay`."""

    def __init__(self, choices: EpochReplay, stack: int, size: int) -> None:
        self.choices, self.stack, self.capacity = choices, stack, choices.capacity
        self.frames = np.zeros((self.capacity, size), np.float32)
        self.action = np.zeros(self.capacity, np.int64)
        self.reward = np.zeros(self.capacity, np.float32)
        self.done = np.zeros(self.capacity, bool)
        self.row = self.size = 0
        self.older = np.arange(1 - stack, 0)

    def add_gap(self) -> None:
        """What separates an epoch from the one before."""
        length = self.stack - 1
        if self.choices.gap_fill == "zero":
            places = (self.row + np.arange(length)) % self.capacity
            for store in (self.frames, self.action, self.reward, self.done):
                store[places] = 0
        self.advance(length, length if self.choices.gap_size < 0 else self.choices.gap_size)

    def add(self, frame: np.ndarray, action: int, reward: float, *, last: bool) -> None:
        row = self.row
        self.frames[row], self.action[row], self.reward[row] = frame, action, reward
        self.done[row] = last and self.choices.episode_end == "terminal"
        self.advance(1, 1)

    def advance(self, length: int, counted: int) -> None:
        self.row = (self.row + length) % self.capacity
        self.size = min(self.size + counted, self.capacity)

    def stacked(self, frame: np.ndarray) -> np.ndarray:
        """What the network sees: the frames before, and this one: `float32[1, frames * D]`."""
        return np.concatenate([self.frames[(self.row + self.older) % self.capacity].reshape(-1), frame])[None]

    @property
    def num_windows(self) -> int:
        """How many windows can be drawn."""
        if self.choices.sample_index == "physical":
            return max(1, self.size - self.stack - 1)
        return max(0, self.size - self.stack - self.choices.n_step + 1)

    def sample(self, random: np.random.Generator, batch_size: int, discount: float) -> Drawn:
        return self.windows(random.choice(self.num_windows, batch_size, replace=False), discount)

    def windows(self, start: np.ndarray, discount: float) -> Drawn:
        """The windows with these numbers."""
        choices, stack = self.choices, self.stack
        base = self.row if choices.sample_index == "logical" and self.size == self.capacity else 0
        ahead = choices.n_step if choices.nstep_mode == "full" else 1
        rows = (base + start[:, None] + np.arange(stack + ahead)) % self.capacity
        steps = rows[:, stack - 1 : stack - 1 + ahead]
        done = self.done[steps]
        running = np.cumprod(np.concatenate([np.ones((len(start), 1)), ~done[:, :-1]], axis=1), axis=1)
        reward = np.sum(self.reward[steps] * running * discount ** np.arange(ahead), axis=1)
        goes_on = ~done.any(axis=1)
        frames = self.frames[rows]
        return Drawn(
            state=frames[:, :stack].reshape(len(start), -1),
            action=self.action[steps[:, 0]],
            reward=reward.astype(np.float32),
            discount=np.where(goes_on, discount**choices.n_step, 0).astype(np.float32),
            next_state=frames[:, ahead : ahead + stack].reshape(len(start), -1),
            valid=(~self.done[rows[:, : stack - 1]].any(axis=1)).astype(np.float32),
        )
