"""The treasure hunt's world as a Python programmer keeps it: one board, changed in place."""

from __future__ import annotations

import numpy as np

from rollax.envs.treasurehunt.world import EMPTY, PLAYER, WALL, Rules


class NumpyWorld:
    """One board by the same rules as the compiled one, with randomness of its own.

    What all cells look like is kept beside the board, so that seeing is one slice.
    """

    def __init__(self, rules: Rules, random: np.random.Generator) -> None:
        self.rules, self.random = rules, random
        self.free = np.flatnonzero(~rules.border)
        self.steps = (-rules.width, rules.width, -1, 1)
        self.looks = rules.codes[:, None, None] + rules.ground  # of each kind on each cell
        reach = rules.radius
        self.planes = np.empty((rules.num_channels, rules.height + 2 * reach, rules.width + 2 * reach), np.float32)
        self.inside = self.planes[:, reach : reach + rules.height, reach : reach + rules.width]
        self.reset()

    def reset(self) -> None:
        """A new board: the players on different free cells, and no treasure."""
        rules = self.rules
        self.top = np.where(rules.border, WALL, EMPTY).astype(np.int8)
        self.cells = self.top.reshape(-1)
        self.position = [int(cell) for cell in self.random.choice(self.free, rules.players, replace=False)]
        self.cells[self.position] = PLAYER
        self.look_again()

    def look_again(self) -> None:
        """What all cells look like, from the board."""
        self.planes[:] = self.rules.codes[WALL][:, None, None]
        rows, cols = np.indices(self.top.shape)
        self.inside[:] = np.moveaxis(self.looks[self.top, rows, cols], -1, 0)

    def put(self, cell: int, kind: int) -> None:
        row, col = divmod(cell, self.rules.width)
        self.cells[cell] = kind
        self.inside[:, row, col] = self.looks[kind, row, col]

    def spawn(self) -> None:
        """Gives every empty cell its chance to hold a treasure."""
        empty = np.flatnonzero(self.cells == EMPTY)
        chosen = empty[self.random.random(len(empty)) < self.rules.spawn_prob]
        for cell in chosen:
            kinds = self.rules.treasures
            self.put(int(cell), kinds[0] if len(kinds) == 1 else kinds[self.random.integers(len(kinds))])

    def observe(self, player: int) -> np.ndarray:
        """What the player sees: `float32[channels * side * side]`."""
        row, col = divmod(self.position[player], self.rules.width)
        side = self.rules.side
        return self.planes[:, row : row + side, col : col + side].reshape(-1)

    def move(self, player: int, action: int) -> float:
        """One move: the value of what is on the cell that the player wanted to go to."""
        here = self.position[player]
        there = here + self.steps[action]
        found = int(self.cells[there])
        if found not in (WALL, PLAYER):
            self.put(here, EMPTY)
            self.put(there, PLAYER)
            self.position[player] = there
        return self.rules.values[found]
