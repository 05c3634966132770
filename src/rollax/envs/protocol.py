"""The environment protocol, and stepping a batch of environments with their episode statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rollax.envs.actions import for_environment
from rollax.tracing import ACTING, STEPPING, phase
from rollax.types import (
    Array,
    Carry,
    Decision,
    Discrete,
    EnvSpec,
    Key,
    Observation,
    Space,
    Transition,
    action_shape,
    count_of,
)

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


class EnvConfig:
    """What can be chosen of an environment: subclasses are frozen dataclasses of settings."""

    def problems(self) -> list[str]:
        """What is wrong with these choices together, each with its fix."""
        return []


class Step(NamedTuple):
    """One step of one environment: where it stands now, and what just happened."""

    obs: Observation  # of the next episode where one ended
    state: EnvState
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Observation  # the true successor


class Decider(Protocol):
    """Who acts in a batch of environments."""

    def all(self, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        """What all players do in view of observations `[B, ...]`, of which `fresh` are the first of an episode."""
        ...

    def one(self, player: Any, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        """The same for one player alone, with what is its own of all of these."""
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
    shows_last: bool = False  # an observation comes with the action and the reward before it
    outside: ClassVar[bool] = False  # of JAX
    pictures_per_second: ClassVar[int] = 6  # at which a film of it can be followed
    protocol: ClassVar[tuple] = ()  # what a score depends on beside the environment's name

    @property
    def num_actions(self) -> int:
        return count_of(self.action)

    def spec(self, num_envs: int, rollout_length: int) -> EnvSpec:
        return EnvSpec(self.observation, self.action, num_envs, rollout_length, self.truncation_interval, self.stack)

    def begin(self, key: Key, num_envs: int, carry: Carry = ()) -> Envs:
        """A batch at the beginning of its first episodes."""
        return reset_envs(self, key, num_envs, carry)

    def fresh(self, envs: Envs) -> Array:
        """Which observations are the first of an episode: `bool[B]`, or `bool[B, players]`."""
        begins = envs.episode_length == 0
        return jnp.repeat(begins[:, None], self.players, axis=1) if self.players else begins

    def reset(self, key: Key) -> tuple[Observation, EnvState]:
        obs, state = self.env.reset(key, self.params)
        shown = self.see(obs)
        return self.with_last(shown, *self.nothing_before()) if self.shows_last else shown, state

    def step(self, key: Key, state: EnvState, action: Array) -> Step:
        step = self.outcome(self.env.step(key, state, self.for_environment(action), self.params))
        if not self.shows_last:
            return step
        ended = step.terminated | step.truncated
        last = jax.tree.map(lambda none, one: jnp.where(ended, none, one), self.nothing_before(), (action, step.reward))
        obs, next_obs = self.with_last(step.obs, *last), self.with_last(step.next_obs, action, step.reward)
        return step._replace(obs=obs, next_obs=next_obs)

    def nothing_before(self) -> tuple[Array, Array]:
        """The action and the reward before the first of an episode: no action at all, or numbers 0, and 0."""
        none = action_shape(self.action)
        return jnp.full(none.shape, -1 if isinstance(self.action, Discrete) else 0, none.dtype), jnp.float32(0)

    def with_last(self, obs: Observation, action: Array, reward: Array) -> Observation:
        """An observation with what was done before it, a numbered action as a flag for each, and what that brought."""
        done = jax.nn.one_hot(action, self.num_actions) if isinstance(self.action, Discrete) else action
        return obs._replace(features={"observation": obs.features, "last_action": done, "last_reward": reward[None]})

    def for_environment(self, action: Any) -> Any:
        """Actions `[...]` of an agent as the environment takes them, scaled to its bounds."""
        return for_environment(self.action, action)

    def turn(
        self, key: Key, state: EnvState, decide: Callable[[Any, Observation], Decision]
    ) -> tuple[Observation, Decision, Step]:
        """A step in which each player decides when it is asked: what they saw, what they decided, what happened."""

        def asked(player: Any, raw: Any) -> tuple[Array, Any]:
            action, *rest = decide(player, self.see(raw))
            return action, rest

        (raw, action, rest), result = self.env.turn(key, state, asked, self.params)
        return self.see(raw), Decision(action, *rest), self.outcome(result)

    def outcome(self, result: tuple) -> Step:
        obs, state, reward, terminated, truncated, info = result
        reward = jnp.asarray(reward, jnp.float32)
        flags = (jnp.broadcast_to(jnp.asarray(flag, bool), reward.shape) for flag in (terminated, truncated))
        return Step(self.see(obs), state, reward, *flags, self.see(info["final_observation"]))

    def see(self, raw: Any) -> Observation:
        """An observation without its oddities: a number, or numbers that are 0 or 1, as flags."""
        obs = raw if isinstance(raw, Observation) else Observation(raw)
        if self.one_hot:
            obs = obs._replace(features=jax.nn.one_hot(obs.features, self.one_hot))
        if self.binary:
            obs = obs._replace(features=obs.features.astype(bool))
        return obs


class Envs(NamedTuple):
    """A batch of environments: their states, what they show, what their agent remembers, and running sums.

    Nobody clears the carry here: who reads it does, where `Task.fresh` says that an episode begins.
    """

    state: EnvState
    obs: Observation
    carry: Carry
    episode_return: Array
    episode_length: Array


class Episodes(NamedTuple):
    """The episodes that ended in a step, `[B]`, or sums of several: 0 where none has."""

    count: Array
    return_sum: Array
    length_sum: Array

    @classmethod
    def none(cls, num_envs: int) -> Episodes:
        """Before the first step."""
        return cls(*jnp.zeros((3, num_envs), jnp.float32))


def reset_envs(task: Task, key: Key, num_envs: int, carry: Carry = ()) -> Envs:
    """A batch at the beginning of its first episodes."""
    obs, state = jax.vmap(task.reset)(jax.random.split(key, num_envs))
    return Envs(state, obs, carry, jnp.zeros(num_envs, jnp.float32), jnp.zeros(num_envs, jnp.int32))


def play_envs(task: Task, envs: Envs, decider: Decider, key: Key) -> tuple[Envs, Transition, Episodes]:
    """One step of every environment with somebody who acts in them."""
    act_key, step_key = key
    if not task.in_turn:
        with phase(ACTING):
            decision = decider.all(envs.carry, envs.obs, task.fresh(envs), act_key)
        return step_envs(task, envs, decision, step_key)
    num_envs = envs.episode_return.shape[0]

    def turn(
        act_key: Key, step_key: Key, state: EnvState, fresh: Array, carry: Carry
    ) -> tuple[Observation, Decision, Step]:
        def decide(player: Any, obs: Observation) -> Decision:
            own_carry, own_fresh = jax.tree.map(lambda leaf: leaf[player], (carry, fresh))
            alone = jax.tree.map(lambda leaf: leaf[None], (own_carry, obs, own_fresh))
            with phase(ACTING):
                return jax.tree.map(lambda leaf: leaf[0], decider.one(player, *alone, act_key))

        return task.turn(step_key, state, decide)

    keys = (jax.random.split(act_key, num_envs), jax.random.split(step_key, num_envs))
    arguments = (*keys, envs.state, task.fresh(envs), envs.carry)
    if num_envs == 1:  # whatever depends on a condition is then really left out
        with phase(STEPPING):
            single = turn(*jax.tree.map(lambda leaf: leaf[0], arguments))
        obs, decision, step = jax.tree.map(lambda leaf: leaf[None], single)
    else:
        with phase(STEPPING):
            obs, decision, step = jax.vmap(turn)(*arguments)
    return advance(task, envs, obs, decision, step)


def step_envs(task: Task, envs: Envs, decision: Decision, key: Key) -> tuple[Envs, Transition, Episodes]:
    """One step of every environment: the new batch, the true transition, and what ended."""
    num_envs = envs.episode_return.shape[0]
    with phase(STEPPING):
        step = jax.vmap(task.step)(jax.random.split(key, num_envs), envs.state, decision.action)
        return advance(task, envs, envs.obs, decision, step)


def advance(
    task: Task, envs: Envs, obs: Observation, decision: Decision, step: Step
) -> tuple[Envs, Transition, Episodes]:
    """The batch after a step of all, who saw `obs`; the transitions, and what ended."""
    transition = Transition(
        obs=obs,
        action=decision.action,
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        next_obs=step.next_obs,
        notes=decision.notes,
        fresh=task.fresh(envs),
        carry=envs.carry,
    )
    ended = of_all_players(jnp.any, step.terminated | step.truncated)
    total = envs.episode_return + of_all_players(jnp.sum, step.reward)
    length = envs.episode_length + 1
    episodes = Episodes(
        count=ended.astype(jnp.float32),
        return_sum=jnp.where(ended, total, 0.0),
        length_sum=jnp.where(ended, length, 0).astype(jnp.float32),
    )
    sums = jnp.where(ended, 0.0, total), jnp.where(ended, 0, length)
    envs = Envs(step.state, step.obs, decision.carry, *sums)
    return envs, transition, episodes


def of_all_players(reduce: Callable[..., Array], values: Array) -> Array:
    """Values `[B]` of environments, from values `[B]` or `[B, players]`."""
    return values if values.ndim == 1 else reduce(values, axis=-1)
