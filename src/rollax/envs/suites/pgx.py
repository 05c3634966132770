"""Pgx's games for one player: `pgx:2048`.  Those of MinAtar are GPL-3.0, as the package `pgx-minatar` that has them."""

from __future__ import annotations

from typing import Any, cast

import pgx

from rollax.envs.suites.game import Game, Move
from rollax.errors import EnvError
from rollax.types import Array, Key, Observation

ALONE = ("2048", "minatar-asterix", "minatar-breakout", "minatar-freeway", "minatar-seaquest", "minatar-space_invaders")


def names() -> list[str]:
    """What it can make, games of several players included."""
    return list(pgx.available_envs())


def make(name: str) -> PgxGame:
    return PgxGame(pgx.make(cast(Any, name)))


def adapted(env: Any, params: Any) -> PgxGame:
    return PgxGame(env)


class PgxGame(Game):
    """A game for one player, with its mask of legal actions.  Time never runs out in it."""

    def __init__(self, env: Any):
        if env.num_players != 1:
            raise EnvError(
                f"pgx:{env.id} has {env.num_players} players, and rollax cannot play against itself yet; "
                f"its games for one are {', '.join(ALONE)}"
            )
        self.env, self.num_actions = env, env.num_actions

    def begin(self, key: Key) -> tuple[Any, Any]:
        state = self.env.init(key)
        return self.shown(state), state

    def move(self, key: Key, state: Any, action: Array) -> Move:
        state = self.env.step(state, action, key)
        return Move(self.shown(state), state, state.rewards[0], state.terminated, state.truncated & ~state.terminated)

    def shown(self, state: Any) -> Observation:
        return Observation(state.observation, state.legal_action_mask)
