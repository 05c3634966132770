"""An episode of a trained agent, one step at a time: what is seen, what the agent thinks, and what happens next.

With the same seed the agent plays the episode that `rollax watch` films.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, AgentDecider, Opinion
from rollax.envs.protocol import Envs, play_envs
from rollax.errors import ConfigError, EnvError
from rollax.programs.compiling import NONE, compiler_options
from rollax.reports.films import drawer_for
from rollax.runs.result import Policy
from rollax.types import Array, Carry, Decision, Discrete, Key, Observation

NOBODY = -1  # in place of a person's action: the agent plays


class Moment(NamedTuple):
    """Where a game stands, and what its agent thinks of it."""

    picture: np.ndarray  # uint8[height, width, 3]
    seed: int  # of the episode
    steps: int
    total: float  # the rewards so far
    action: np.ndarray  # what the agent is about to do: one, or of all players
    legal: np.ndarray | None  # bool[A], or bool[players, A]; None where all are
    opinions: tuple[Opinion, ...]  # of the agent, or of each player
    over: str = ""  # how the episode has ended, in words


class Game(Protocol):
    """An episode that waits for somebody to go on with it."""

    def begin(self, seed: int) -> Moment: ...

    def step(self, wish: int) -> Moment:
        """The next moment: after the agent's action, or where `wish` is one, after that of a person."""
        ...

    def close(self) -> None: ...


def game_of(player: Player) -> Game:
    """A game that a player can begin."""
    return OutsideGame(player) if player.policy.task.outside else InsideGame(player)


class Thought(NamedTuple):
    """What all players are about to do, after which they remember the carry, and what each of them thinks."""

    action: Array
    carry: Carry
    legal: Array | None
    opinions: tuple[Opinion, ...]


@dataclass(frozen=True)
class Wishing:
    """An agent as a decider, in which a person decides for the first player."""

    agent: Any
    inner: AgentDecider
    wish: Array

    def all(self, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        return self.inner.all(carry, obs, fresh, key)

    def one(self, player: Any, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        decision = self.inner.one(player, carry, obs, fresh, key)
        wished = (jnp.asarray(player) == 0) & (self.wish >= 0)
        return decision._replace(action=jnp.where(wished, self.wish, decision.action))


@dataclass(frozen=True)
class Player:
    """A policy with all that playing it step by step needs, compiled once for every game."""

    policy: Policy
    name: str  # of the environment

    @functools.cached_property
    def think(self) -> Callable[..., Thought]:
        """From the learner, carry, state, observation `[...]`, freshness, wish and key to the players' thought."""
        task, agent = self.policy.task, self.policy.agent

        def together(learner: Any, carry: Carry, state: Any, obs: Any, fresh: Any, wish: Array, key: Key) -> Thought:
            if task.in_turn:
                single = jax.tree.map(lambda leaf: leaf[None], state)
                envs = Envs(single, task.observation, carry, jnp.zeros(1), jnp.where(fresh, 0, 1)[None])
                decider = Wishing(agent, AgentDecider(agent, learner, explore=False), wish)
                envs, seen, _ = play_envs(task, envs, decider, jax.random.split(key))
                action, after, shown = seen.action, envs.carry, seen.obs
            else:
                shown = jax.tree.map(lambda leaf: leaf[None], obs)
                flags = jnp.broadcast_to(fresh, (1, task.players) if task.players else (1,))
                decision = agent.act(learner, carry, shown, flags, key, explore=False)
                action, after = wished(decision.action, wish, task.players), decision.carry
            flags = jnp.broadcast_to(fresh, (1, task.players) if task.players else (1,))
            opinions = opinions_of(agent, task.players, learner, carry, shown, flags)
            legal = None if shown.legal is None else shown.legal[0]
            return Thought(action[0], after, legal, opinions)

        return quickly(together)

    @functools.cached_property
    def reset(self) -> Callable[[Key], Any]:
        """The first observation and state.  Their types are those of later ones, so that nothing compiles twice."""
        return quickly(lambda key: jax.tree.map(strong, self.policy.task.reset(key)))

    @functools.cached_property
    def step(self) -> Callable[..., Any]:
        """From a key, a state and an action to the `Step`."""
        return quickly(lambda key, state, action: jax.tree.map(strong, self.policy.task.step(key, state, action)))


def quickly(function: Callable) -> Callable:
    """The function, compiled with little effort: a person waits for it, and not for a step that it makes."""
    return jax.jit(function, compiler_options=compiler_options(NONE))


def wished(action: Array, wish: Array, players: int) -> Array:
    """Actions of an agent `[1]` or `[1, players]`, the first one a person's where there is a wish."""
    if not jnp.issubdtype(action.dtype, jnp.integer):
        return action
    if not players:
        return jnp.where(wish >= 0, wish, action)
    return jnp.where((wish >= 0) & (jnp.arange(players) == 0), wish, action)


def strong(leaf: Any) -> Any:
    """An array whose type does not give way to others'."""
    if not hasattr(leaf, "dtype") or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return jax.lax.convert_element_type(leaf, leaf.dtype)


def opinions_of(
    agent: Agent, players: int, learner: Any, carry: Carry, obs: Observation, fresh: Array
) -> tuple[Opinion, ...]:
    """What the agent thinks, or each player of what it sees of its own; without the axis of environments."""
    if not players:
        return (agent.opinion(learner, carry, obs, fresh),)
    as_player: Any = agent
    return tuple(
        as_player.opinion_as(learner, player, *jax.tree.map(lambda leaf, own=player: leaf[:, own], (carry, obs, fresh)))
        for player in range(players)
    )


class InsideGame:
    """A game in JAX."""

    def __init__(self, player: Player):
        self.player, self.policy, self.task = player, player.policy, player.policy.task
        self.draw = drawer_for(self.task, player.name)

    def begin(self, seed: int) -> Moment:
        self.seed, self.steps, self.total, self.over = seed, 0, 0.0, ""
        self.key, self.carry = jax.random.key(seed), self.policy.start()
        self.obs, self.state = self.player.reset(jax.random.fold_in(self.key, 0))
        return self.moment()

    def thought(self, wish: int) -> Thought:
        draw = jax.random.key(self.seed + self.steps)
        return self.player.think(
            self.policy.learner, self.carry, self.state, self.obs, self.steps == 0, jnp.int32(wish), draw
        )

    def moment(self) -> Moment:
        features = self.obs.features["observation"] if self.task.shows_last else self.obs.features
        self.before = self.thought(NOBODY)
        self.seen = moment_of(self.before, self.draw(self.state, features), self.seed, self.steps, self.total)
        return self.seen

    def step(self, wish: int) -> Moment:
        if self.over:
            return self.begin(self.seed + 1)
        thought = self.before if wish == NOBODY else self.thought(wish)
        self.steps += 1
        step = self.player.step(jax.random.fold_in(self.key, self.steps), self.state, thought.action)
        self.obs, self.state, self.carry = step.obs, step.state, thought.carry
        self.total += float(jnp.sum(step.reward))
        if bool(jnp.any(step.terminated)) or bool(jnp.any(step.truncated)):
            self.over = "ended" if bool(jnp.any(step.terminated)) else "reached its time limit"
            return self.seen._replace(
                steps=self.steps, total=self.total, over=self.over
            )  # the last board that was seen
        return self.moment()

    def close(self) -> None:
        """Nothing has to be given back."""


class OutsideGame:
    """A game outside JAX: the agent plays in one environment, and a camera follows in another like it."""

    def __init__(self, player: Player):
        self.player, self.policy, self.task = player, player.policy, player.policy.task
        if self.task.camera is None:
            raise ConfigError(f"env={player.name!r} cannot be drawn: it has no pictures in colours")
        self.steppers: list[Any] = []

    def begin(self, seed: int) -> Moment:
        self.close()  # so that a seed is the same episode, whatever was played before
        self.steppers = [self.task.stepper(1), self.task.camera_stepper()]
        self.seed, self.steps, self.total, self.over = seed, 0, 0.0, ""
        seeds = np.array([seed], np.int32)
        shown, self.picture = (stepper.reset(seeds) for stepper in self.steppers)
        envs = self.task.begin(jax.random.key(0), 1, self.policy.start())
        self.carry = envs.carry
        self.obs, self.fresh = self.task.observe(envs.obs, shown, jnp.ones(1, bool)), True
        return self.moment()

    def thought(self, wish: int) -> Thought:
        single = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], self.obs)
        draw = jax.random.key(self.seed + self.steps)
        return self.player.think(self.policy.learner, self.carry, (), single, self.fresh, jnp.int32(wish), draw)

    def moment(self) -> Moment:
        self.before = self.thought(NOBODY)
        self.seen = moment_of(self.before, np.asarray(self.picture[0]), self.seed, self.steps, self.total)
        return self.seen

    def step(self, wish: int) -> Moment:
        if self.over:
            return self.begin(self.seed + 1)
        thought = self.before if wish == NOBODY else self.thought(wish)
        for stepper in self.steppers:
            stepper.submit(np.asarray(thought.action)[None])
        played, filmed = (stepper.result() for stepper in self.steppers)
        self.steps, self.total = self.steps + 1, self.total + float(played.reward[0])
        if played.lost is not None:
            raise EnvError(f"{self.player.name} broke and was started anew; begin a new game")
        if played.ended[0]:
            self.over = "ended" if played.terminated[0] else "reached its time limit"
            return self.seen._replace(steps=self.steps, total=self.total, over=self.over)
        self.obs = self.task.observe(self.obs, played.shown, jnp.zeros(1, bool))
        self.picture, self.carry = filmed.shown, thought.carry
        self.fresh = bool(played.terminated[0] or played.truncated[0])
        return self.moment()

    def close(self) -> None:
        for stepper in self.steppers:
            with closing(stepper):
                pass
        self.steppers = []


def moment_of(thought: Thought, picture: np.ndarray, seed: int, steps: int, total: float) -> Moment:
    """A moment on this side of the device; opinions without the axis of environments."""
    action, legal = jax.device_get((thought.action, thought.legal))
    return Moment(picture, seed, steps, total, action, legal, jax.device_get(thought.opinions))


def is_numbered(policy: Policy) -> bool:
    """Whether actions are numbered, so that a person can choose one by a key."""
    return isinstance(policy.task.action, Discrete)
