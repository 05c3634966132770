"""The environment protocol, and stepping a batch of environments with their episode statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rollax.tracing import ACTING, STEPPING, phase
from rollax.types import Array, Box, EnvSpec, Key, Observation, Space, Transition, count_of

EnvState = Any


class Environment(Protocol):
    """The step protocol of gymnax 1.x: any of its environments is one already.

    `step` resets by itself: the observation and state that it returns are already of the next
    episode, and `info["final_observation"]` is the true successor.  An observation is an array, a
    pytree of arrays, or an `Observation` with a mask of legal actions, of which there must be one
    as long as the episode runs.  An environment of several players has an attribute `players`: actions and rewards
    are then `[players]`, observations lead with the players, and the flags are of all together.  Where one decides
    after the other, and sees what those before it have done, it has `in_turn`, and a method `turn(key, state, decide,
    params)` that asks `decide(player, observation)` for an action and notes, and returns observations, actions and
    notes of all players, and what `step` returns.  One whose observations are stacks of frames `[H, W, stack]`, as
    `EnvSpec` says, has an attribute `stack`: a replay then keeps each frame once.
    """

    def reset(self, key: Key, params: Any) -> tuple[Any, EnvState]: ...

    def step(
        self, key: Key, state: EnvState, action: Array, params: Any
    ) -> tuple[Any, EnvState, Array, Array, Array, dict]: ...


class Step(NamedTuple):
    """One step of one environment: where it stands now, and what just happened."""

    obs: Observation  # of the next episode where one ended
    state: EnvState
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Observation  # the true successor


class Decisions(NamedTuple):
    """What all players of an environment saw, did, and noted."""

    obs: Observation
    action: Array
    extras: Any


class Decider(Protocol):
    """Who acts in a batch of environments."""

    def all(self, obs: Observation, key: Key) -> tuple[Array, Any]:
        """Actions for observations `[B, ...]`, and what to note of them."""
        ...

    def one(self, player: Any, obs: Observation, key: Key) -> tuple[Array, Any]:
        """The same for one player alone."""
        ...


@dataclass(frozen=True)
class Task:
    """An environment with its parameters, brought to the library's own data types."""

    env: Any
    params: Any
    observation: Observation  # of jax.ShapeDtypeStruct
    action: Space  # what may be done, as the agent speaks of it
    one_hot: int = 0  # an observation that is a number below this becomes a vector of as many flags
    truncation_interval: int = 1
    binary: bool = False  # every number of an observation is 0 or 1, so it is kept as a flag
    costly: bool = False  # its own arithmetic is a good part of a run, and worth the compiler's best
    players: int = 0  # who act together; 0 where there is one, and no axis for it
    in_turn: bool = False  # each player sees what those before it have just done
    stack: int = 1  # an observation is so many successive frames: see `EnvSpec`

    @property
    def num_actions(self) -> int:
        return count_of(self.action)

    def spec(self, num_envs: int, rollout_length: int) -> EnvSpec:
        return EnvSpec(self.observation, self.action, num_envs, rollout_length, self.truncation_interval, self.stack)

    def reset(self, key: Key) -> tuple[Observation, EnvState]:
        obs, state = self.env.reset(key, self.params)
        return self.observe(obs), state

    def step(self, key: Key, state: EnvState, action: Array) -> Step:
        return self.outcome(self.env.step(key, state, self.as_the_environment_has_it(action), self.params))

    def as_the_environment_has_it(self, action: Array) -> Array:
        """An action of an agent, whose numbers lie in [-1, 1], scaled to the bounds of the environment."""
        if not isinstance(self.action, Box):
            return action
        low, high = jnp.array(self.action.low, jnp.float32), jnp.array(self.action.high, jnp.float32)
        return low + (jnp.clip(action, -1.0, 1.0) + 1.0) / 2.0 * (high - low)

    def turn(self, key: Key, state: EnvState, decide: Callable[[Any, Observation], Any]) -> tuple[Decisions, Step]:
        """A step in which each player decides when it is asked."""
        (obs, action, extras), result = self.env.turn(
            key, state, lambda player, raw: decide(player, self.observe(raw)), self.params
        )
        return Decisions(self.observe(obs), action, extras), self.outcome(result)

    def outcome(self, result: tuple) -> Step:
        obs, state, reward, terminated, truncated, info = result
        reward = jnp.asarray(reward, jnp.float32)
        flags = (jnp.broadcast_to(jnp.asarray(flag, bool), reward.shape) for flag in (terminated, truncated))
        return Step(self.observe(obs), state, reward, *flags, self.observe(info["final_observation"]))

    def observe(self, raw: Any) -> Observation:
        """An observation without its oddities: a number, or numbers that are 0 or 1, as flags."""
        obs = raw if isinstance(raw, Observation) else Observation(raw)
        if self.one_hot:
            obs = obs._replace(features=jax.nn.one_hot(obs.features, self.one_hot))
        if self.binary:
            obs = obs._replace(features=obs.features.astype(bool))
        return obs


class Envs(NamedTuple):
    """A batch of environments: their states, what they show, and the sums of their running episodes."""

    state: EnvState
    obs: Observation
    episode_return: Array
    episode_length: Array


class Episodes(NamedTuple):
    """Sums over the episodes that just ended: `[...]` as the flags that they come from."""

    count: Array
    return_sum: Array
    length_sum: Array


def reset_envs(task: Task, key: Key, num_envs: int) -> Envs:
    obs, state = jax.vmap(task.reset)(jax.random.split(key, num_envs))
    return Envs(state, obs, jnp.zeros(num_envs, jnp.float32), jnp.zeros(num_envs, jnp.int32))


def play_envs(task: Task, envs: Envs, decider: Decider, key: Key) -> tuple[Envs, Transition, Episodes]:
    """One step of every environment with somebody who acts in them."""
    act_key, step_key = key
    if not task.in_turn:
        with phase(ACTING):
            action, extras = decider.all(envs.obs, act_key)
        return step_envs(task, envs, action, extras, step_key)
    num_envs = envs.episode_return.shape[0]

    def turn(act_key: Key, step_key: Key, state: EnvState) -> tuple[Decisions, Step]:
        def decide(player: Any, obs: Observation) -> tuple[Array, Any]:
            alone = jax.tree.map(lambda leaf: leaf[None], obs)
            with phase(ACTING):
                return jax.tree.map(lambda leaf: leaf[0], decider.one(player, alone, act_key))

        return task.turn(step_key, state, decide)

    keys = (jax.random.split(act_key, num_envs), jax.random.split(step_key, num_envs))
    if num_envs == 1:  # whatever depends on a condition is then really left out
        with phase(STEPPING):
            single = turn(*jax.tree.map(lambda leaf: leaf[0], (*keys, envs.state)))
        decisions, step = jax.tree.map(lambda leaf: leaf[None], single)
    else:
        with phase(STEPPING):
            decisions, step = jax.vmap(turn)(*keys, envs.state)
    return advance(envs, decisions, step)


def step_envs(task: Task, envs: Envs, action: Array, extras: Any, key: Key) -> tuple[Envs, Transition, Episodes]:
    """One step of every environment: the new batch, the true transition, and what ended."""
    num_envs = envs.episode_return.shape[0]
    with phase(STEPPING):
        step = jax.vmap(task.step)(jax.random.split(key, num_envs), envs.state, action)
        return advance(envs, Decisions(envs.obs, action, extras), step)


def advance(envs: Envs, decisions: Decisions, step: Step) -> tuple[Envs, Transition, Episodes]:
    """The batch after a step of all, the transitions, and what ended."""
    obs, action, extras = decisions
    transition = Transition(obs, action, step.reward, step.terminated, step.truncated, step.next_obs, extras)
    ended = of_all_players(jnp.any, step.terminated | step.truncated)
    total = envs.episode_return + of_all_players(jnp.sum, step.reward)
    length = envs.episode_length + 1
    episodes = Episodes(
        count=jnp.sum(ended, dtype=jnp.float32),
        return_sum=jnp.sum(jnp.where(ended, total, 0.0)),
        length_sum=jnp.sum(jnp.where(ended, length, 0), dtype=jnp.float32),
    )
    envs = Envs(step.state, step.obs, jnp.where(ended, 0.0, total), jnp.where(ended, 0, length))
    return envs, transition, episodes


def of_all_players(reduce: Callable[..., Array], values: Array) -> Array:
    """Values `[B]` of environments, from values `[B]` or `[B, players]`."""
    return values if values.ndim == 1 else reduce(values, axis=-1)
