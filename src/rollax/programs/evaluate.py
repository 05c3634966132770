"""Greedy episodes, each environment counted once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rollax.agents.base import Agent, AgentDecider, Learner
from rollax.envs.protocol import Envs, Task, of_all_players, play_envs, reset_envs
from rollax.types import Array, Key, Params


class Evaluation(NamedTuple):
    """The first episode of each environment: arrays `[members, episodes]`."""

    returns: Array
    lengths: Array
    truncated: Array  # cut by the environment's time limit or by `max_episode_steps`


class Best(NamedTuple):
    """The weights of each member's best evaluation so far."""

    score: Array  # [members], -inf before the first
    params: Params


@dataclass(frozen=True)
class Evaluator:
    """Plays `episodes` environments until the first episode of each has ended, or `max_episode_steps` is reached."""

    agent: Agent
    task: Task
    episodes: int
    max_episode_steps: int

    def __call__(self, learner: Learner, keys: Key) -> Evaluation:
        """Evaluates a population: every leaf of the learner and the keys lead with the members."""
        split = jax.vmap(lambda key: jax.random.split(key, 2))(keys)
        reset_keys, step_keys = split[:, 0], split[:, 1]
        carry = self.agent.initial_carry(self.episodes)
        envs = jax.vmap(lambda key: reset_envs(self.task, key, self.episodes, carry))(reset_keys)
        nothing = Evaluation(
            returns=jnp.zeros(envs.episode_return.shape),
            lengths=jnp.zeros(envs.episode_length.shape, jnp.int32),
            truncated=jnp.ones(envs.episode_return.shape, bool),
        )

        def play(learner: Learner, envs: Envs, key: Key, result: Evaluation, running: Array, steps: Array):
            keys = jax.random.split(jax.random.fold_in(key, steps))
            decider = AgentDecider(self.agent, learner, explore=False)
            envs, transition, _ = play_envs(self.task, envs, decider, keys)
            terminated, truncated = (
                of_all_players(jnp.any, flag) for flag in (transition.terminated, transition.truncated)
            )
            ended, reward = terminated | truncated, of_all_players(jnp.sum, transition.reward)
            result = Evaluation(
                returns=result.returns + jnp.where(running, reward, 0.0),
                lengths=result.lengths + running,
                truncated=jnp.where(running & ended, ~terminated, result.truncated),
            )
            return envs, result, running & ~ended

        def unfinished(carry) -> Array:
            _, _, running, steps = carry
            return jnp.any(running) & (steps < self.max_episode_steps)

        def step(carry):
            envs, result, running, steps = carry
            played = jax.vmap(play, in_axes=(0, 0, 0, 0, 0, None))(learner, envs, step_keys, result, running, steps)
            return (*played, steps + 1)

        running = jnp.ones(envs.episode_return.shape, bool)
        _, result, _, _ = jax.lax.while_loop(unfinished, step, (envs, nothing, running, jnp.int32(0)))
        return result


def keep_best(best: Best, learner: Learner, result: Evaluation) -> Best:
    """The better of the best weights so far and these; the later of equals.

    Neither weights nor a score that are not finite are ever the best.
    """
    score = jnp.mean(result.returns, axis=-1)
    better = (score >= best.score) & jnp.isfinite(score) & finite_members(learner.params)

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(better.reshape(better.shape + (1,) * (new.ndim - 1)), new, old)

    return Best(jnp.where(better, score, best.score), jax.tree.map(choose, learner.params, best.params))


def finite_members(params: Params) -> Array:
    """`[members]`: whether all weights of each are finite."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(params)]
    return jnp.all(jnp.stack([jnp.all(leaf, axis=1) for leaf in leaves]), axis=0)
