"""A prioritised replay in NumPy, to which many actors add whole n-step transitions when they have them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from rollax.memory.prioritized import LARGEST_PRIORITY, SMALLEST_PRIORITY


class Draw(NamedTuple):
    """Batches of transitions: arrays `[count, batch, ...]`."""

    batch: Any  # a Batch
    weight: np.ndarray  # what each loss is multiplied by: at most 1
    handle: np.ndarray  # which transitions they were, counted from the first that was ever added


class FlatReplay:
    """The newest `capacity` transitions, drawn in proportion to a power of their priorities."""

    def __init__(self, capacity: int, exponent: float, seed: int | list[int]):
        self.capacity, self.exponent = capacity, exponent
        self.random = np.random.default_rng(seed)
        self.rows: Any = None  # like a Batch, each leaf [capacity, ...]
        self.weights = np.zeros(capacity)
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, batch: Any, priority: np.ndarray) -> None:
        """Puts transitions `[N, ...]` in place of the oldest."""
        if self.rows is None:
            self.rows = jax.tree.map(lambda x: np.zeros((self.capacity, *x.shape[1:]), x.dtype), batch)
        places = (self.added + np.arange(len(priority))) % self.capacity
        jax.tree.map(lambda store, new: store.__setitem__(places, new), self.rows, batch)
        self.weights[places] = self.powers(priority)
        self.added += len(priority)

    def draw(self, count: int, batch_size: int, importance_exponent: float) -> Draw:
        """So many batches, each with replacement; there must be a transition."""
        total = np.cumsum(self.weights)
        at = self.random.uniform(0.0, total[-1], (count, batch_size))
        places = np.minimum(np.searchsorted(total, at, side="right"), len(self) - 1)
        weight = (len(self) * self.weights[places] / total[-1]) ** -importance_exponent
        newest = self.added - 1
        handle = newest - (newest - places) % self.capacity
        batch = jax.tree.map(lambda store: store[places], self.rows)
        return Draw(batch, (weight / weight.max(axis=1, keepdims=True)).astype(np.float32), handle)

    def reprioritize(self, handle: np.ndarray, priority: np.ndarray) -> None:
        """New priorities of transitions that were drawn; those that have left meanwhile are passed over."""
        there = handle > self.added - 1 - self.capacity
        self.weights[handle[there] % self.capacity] = self.powers(priority[there])

    def powers(self, priority: np.ndarray) -> np.ndarray:
        finite = np.nan_to_num(np.asarray(priority, np.float64), nan=1.0)
        return np.power(np.clip(finite, SMALLEST_PRIORITY, LARGEST_PRIORITY), self.exponent)
