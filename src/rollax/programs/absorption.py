"""A rollout that is being remembered and learnt from, part by part, while environments outside JAX are stepped."""

from __future__ import annotations

import jax
import numpy as np

from rollax.programs.host_loop import HostRollout
from rollax.programs.host_pieces import Pieces, slim
from rollax.programs.loop import TrainState
from rollax.types import Key


class Absorption:
    """A rollout, if there is one, that is being remembered and learnt from, part by part."""

    def __init__(self, pieces: Pieces, parts: int, state: TrainState, raw: HostRollout | None, key: Key, learn: bool):
        self.pieces, self.state, self.raw = pieces, state, raw
        self.memory = state.memory
        self.parts = parts if learn and raw is not None else 0
        self.key, self.done = key, -1

    def advance(self, share: float) -> None:
        """Sends to the device what is missing of that share of the work."""
        if self.done < 0:
            self.begin()
        while self.done < int(self.parts * share):
            self.learning, self.memory, self.sums = self.pieces.part(
                self.learning, self.memory, self.lessons, self.sums, np.int32(self.done)
            )
            self.done += 1

    def begin(self) -> None:
        self.done = 0
        if self.raw is not None and jax.tree.leaves(self.memory):
            self.memory = self.pieces.remember(self.memory, self.raw)
        if self.parts:
            self.learning, self.memory, self.lessons, self.sums = self.pieces.begin(
                self.state.learner, self.memory, self.raw, self.key
            )

    def finish(self, episodes: np.ndarray) -> TrainState:
        """The state after all of it, with the sums over an iteration's episodes."""
        self.advance(1.0)
        if self.raw is None:
            return self.pieces.waited(slim(self.state), episodes)._replace(memory=self.memory)
        if not self.parts:
            return self.pieces.warmed(slim(self.state), self.raw, episodes)._replace(memory=self.memory)
        new, memory = self.pieces.learnt(
            slim(self.state), self.learning, self.memory, self.lessons, self.sums, self.raw, episodes
        )
        return new._replace(memory=memory)
