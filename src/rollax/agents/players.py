"""Several players in one environment: a learner for each of them, or one for all.  Neither touches an algorithm.

With players, observations, actions, rewards and flags are `[B, players, ...]`, in a rollout `[T, B, players, ...]`.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from rollax.agents.base import Agent, Learner, Memory, Opinion, own_axes
from rollax.types import Array, Carry, Decision, EnvSpec, Key, Metrics, Observation, Params, Transition

AgentMap = Literal["vmap", "map"]
UNROLLED = 8  # players, at most, whose decisions are compiled one by one
SHARED = -1  # in place of an axis, for what all players share


@dataclass(frozen=True)
class Players(Agent):
    """An agent for all players, made of one for a learner.  What it carries is `[B, players, ...]`."""

    agent: Agent
    players: int

    @property
    def metric_names(self) -> tuple[str, ...]:
        return self.agent.metric_names

    @property
    def spec(self) -> EnvSpec:
        return self.agent.spec

    @abstractmethod
    def act_as(
        self, learner: Learner, player: Any, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        """What one player does, with observations `[B, ...]` of its own; `learner` may be `apart`."""

    def opinion_as(self, learner: Learner, player: int, carry: Carry, obs: Observation, fresh: Array) -> Opinion:
        """What one player thinks of observations `[B, ...]` of its own."""
        return self.agent.opinion(self.learner_of(learner, player), carry, obs, fresh)

    def learner_of(self, learner: Learner, player: int) -> Learner:
        """The learner that one player acts by; by default that of all."""
        return learner

    @property
    def hides_nans(self) -> bool:
        return self.agent.hides_nans

    def doubtful(self, learner: Learner) -> Any:
        return self.agent.doubtful(learner)

    def concern(self, metrics: dict[str, float], done: float) -> str | None:
        return self.agent.concern(metrics, done)

    def apart(self, learner: Learner) -> Learner:
        """The learner as a loop in which it acts wants it."""
        return learner


def of_player(learner: Learner, player: Any) -> Learner:
    """One player's learner, of those of all."""
    return jax.tree.map(lambda leaf: leaf[player], learner)


class SeparateLearners(tuple):
    """The learners of independent players, one by one."""


@dataclass(frozen=True)
class Independent(Players):
    """One learner and one memory for each player: nothing is shared, and no player's data reaches another's learner.

    The players lead in every leaf of the learner and of the memory, but for the memory's counters, which are the same
    for all.  `vmap` does all players' work at once, `map` one player's after the other's.
    """

    act_map: AgentMap = "vmap"
    learn_map: AgentMap = "vmap"

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The agent's, and each player's loss."""
        return (*self.agent.metric_names, *(f"loss_player_{player}" for player in range(self.players)))

    def init(self, key: Key, hparams: Any) -> tuple[Learner, Memory]:
        shapes = jax.eval_shape(self.agent.init, key, hparams)
        axes = (jax.tree.map(lambda _: 0, shapes[0]), own_axes(shapes[1]))
        return jax.vmap(lambda key: self.agent.init(key, hparams), out_axes=axes)(self.keys(key))

    def initial_carry(self, num: int) -> Carry:
        alone = self.agent.initial_carry(num)
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], self.players, axis=1), alone)

    def act(
        self, learner: Learner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        if isinstance(learner, SeparateLearners):
            each = [
                self.act_as(
                    learner,
                    player,
                    *jax.tree.map(lambda leaf, row=player: leaf[:, row], (carry, obs, fresh)),
                    key,
                    explore=explore,
                )
                for player in range(self.players)
            ]
            return jax.tree.map(lambda *rows: jnp.stack(rows, axis=1), *each)
        act = functools.partial(self.agent.act, explore=explore)
        return over_players(act, self.act_map, (0, 1, 1, 1, 0), 1)(learner, carry, obs, fresh, self.keys(key))

    def act_as(
        self, learner: Learner, player: Any, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        key = jax.random.fold_in(key, player)

        def act(own: Learner) -> Decision:
            return self.agent.act(own, carry, obs, fresh, key, explore=explore)

        if not isinstance(learner, SeparateLearners):
            return act(of_player(learner, player))
        if isinstance(player, int):
            return act(learner[player])
        return jax.lax.switch(player, [functools.partial(act, own) for own in learner])

    def learner_of(self, learner: Learner, player: int) -> Learner:
        return of_player(learner, player)

    def apart(self, learner: Learner) -> Learner:
        """Of a few players each apart, so that none is copied in each turn."""
        if self.act_map == "vmap" or self.players > UNROLLED:
            return learner
        return SeparateLearners(of_player(learner, player) for player in range(self.players))

    def remember(self, memory: Memory, rollout: Transition) -> Memory:
        axes = own_axes(memory)
        return jax.vmap(self.agent.remember, in_axes=(axes, 2), out_axes=axes)(memory, rollout)

    def interrupt(self, memory: Memory, obs: Observation) -> Memory:
        axes = own_axes(memory)
        return jax.vmap(self.agent.interrupt, in_axes=(axes, 1), out_axes=axes)(memory, obs)

    def learn(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Learner, Memory, Metrics]:
        """All players' learning; the metrics are means over them, but for each one's own loss."""
        axes = own_axes(memory)
        learn = over_players(self.agent.learn, self.learn_map, (0, axes, 2, 0), (0, axes, 0))
        learner, memory, metrics = learn(learner, memory, rollout, self.keys(key))
        own = {f"loss_player_{player}": metrics["loss"][player] for player in range(self.players)}
        return learner, memory, jax.tree.map(lambda metric: jnp.mean(metric, axis=0), metrics) | own

    def with_weights(self, learner: Learner, params: Params) -> Learner:
        return jax.vmap(self.agent.with_weights)(learner, params)

    def keys(self, key: Key) -> Key:
        """A key for each player."""
        return jax.vmap(lambda player: jax.random.fold_in(key, player))(jnp.arange(self.players))


@dataclass(frozen=True)
class Shared(Players):
    """One learner for all players: each of them is one more environment to it, of `num_envs * players`."""

    def init(self, key: Key, hparams: Any) -> tuple[Learner, Memory]:
        return self.agent.init(key, hparams)

    def initial_carry(self, num: int) -> Carry:
        return self.unfold(self.agent.initial_carry(num * self.players))

    def act(
        self, learner: Learner, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        return self.unfold(self.agent.act(learner, *fold((carry, obs, fresh), 0), key, explore=explore))

    def act_as(
        self, learner: Learner, player: Any, carry: Carry, obs: Observation, fresh: Array, key: Key, *, explore: bool
    ) -> Decision:
        return self.agent.act(learner, carry, obs, fresh, jax.random.fold_in(key, player), explore=explore)

    def unfold(self, tree: Any) -> Any:
        """Rows `[B * players, ...]` as `[B, players, ...]`."""
        return jax.tree.map(lambda x: x.reshape(-1, self.players, *x.shape[1:]), tree)

    def remember(self, memory: Memory, rollout: Transition) -> Memory:
        return self.agent.remember(memory, fold(rollout, 1))

    def interrupt(self, memory: Memory, obs: Observation) -> Memory:
        return self.agent.interrupt(memory, fold(obs, 0))

    def learn(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Learner, Memory, Metrics]:
        return self.agent.learn(learner, memory, fold(rollout, 1), key)

    def with_weights(self, learner: Learner, params: Params) -> Learner:
        return self.agent.with_weights(learner, params)


def fold(tree: Any, axis: int) -> Any:
    """Every leaf with this axis and the next, environments and players, as one."""
    return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :]), tree)


def over_players(function: Callable, kind: AgentMap, in_axes: tuple, out_axes: Any) -> Callable:
    """The function for all players: `vmap`, or the same one after the other; axes as `vmap` has them."""
    if kind == "vmap":
        return jax.vmap(function, in_axes, out_axes)

    def run(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        axes = jax.tree.leaves(spread(in_axes, arguments))
        pairs = list(zip(leaves, axes, strict=True))
        mapped = [jnp.moveaxis(leaf, axis, 0) for leaf, axis in pairs if axis != SHARED]

        def one(rows: list[Array]) -> Any:
            row = iter(rows)
            return function(*jax.tree.unflatten(tree, [leaf if axis == SHARED else next(row) for leaf, axis in pairs]))

        results, shape = jax.tree.flatten(jax.lax.map(one, mapped))
        places = jax.tree.leaves(spread(out_axes, jax.tree.unflatten(shape, results)))
        moved = [
            result[0] if axis == SHARED else jnp.moveaxis(result, 0, axis)
            for result, axis in zip(results, places, strict=True)
        ]
        return jax.tree.unflatten(shape, moved)

    return run


def spread(axes: Any, tree: Any) -> Any:
    """An axis for every leaf, `SHARED` for none, from axes for whole branches."""

    def fill(axis: int | None, branch: Any) -> Any:
        return jax.tree.map(lambda _: SHARED if axis is None else axis, branch)

    return jax.tree.map(fill, axes, tree, is_leaf=lambda axis: axis is None)
