"""Greedy episodes, each environment counted once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, AgentDecider, Learner
from rollax.envs.protocol import Envs, Task, of_all_players, play_envs, reset_envs
from rollax.programs import cluster
from rollax.tracing import fetch
from rollax.types import Array, Key, Params

PART_SECONDS = 2.0  # that a part of an evaluation takes, after which a signal can be heard
FIRST_PART, GROWTH = 8, 8  # steps, when it is not known how long one takes; and how fast parts may grow


class Evaluation(NamedTuple):
    """The first episode of each environment: arrays `[members, episodes]`."""

    returns: Array
    lengths: Array
    truncated: Array  # cut by the environment's time limit or by `max_episode_steps`


class Playing(NamedTuple):
    """An evaluation on its way.  All of it leads with the members."""

    envs: Envs
    result: Evaluation  # so far
    running: Array  # bool[members, episodes]: whose first episode has not ended
    keys: Key  # [members], from which a step's are derived


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
        return self.go_on(learner, self.begin(keys), jnp.int32(0), jnp.int32(self.max_episode_steps)).result

    def begin(self, keys: Key) -> Playing:
        """All episodes at their start."""
        split = jax.vmap(lambda key: jax.random.split(key, 2))(keys)
        reset_keys, step_keys = split[:, 0], split[:, 1]
        carry = self.agent.greedy_carry(self.episodes)
        envs = jax.vmap(lambda key: reset_envs(self.task, key, self.episodes, carry))(reset_keys)
        nothing = Evaluation(
            returns=jnp.zeros(envs.episode_return.shape),
            lengths=jnp.zeros(envs.episode_length.shape, jnp.int32),
            truncated=jnp.ones(envs.episode_return.shape, bool),
        )
        return Playing(envs, nothing, jnp.ones(envs.episode_return.shape, bool), step_keys)

    def go_on(self, learner: Learner, playing: Playing, first: Array, stop: Array) -> Playing:
        """Plays from step `first` to before step `stop`, or until all episodes have ended.

        Into how many parts the steps are cut changes no bit of the result.
        """

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
            return jnp.any(running) & (steps < stop)

        def step(carry):
            envs, result, running, steps = carry
            played = jax.vmap(play, in_axes=(0, 0, 0, 0, 0, None))(learner, envs, playing.keys, result, running, steps)
            return (*played, steps + 1)

        start = (playing.envs, playing.result, playing.running, first)
        envs, result, running, _ = jax.lax.while_loop(unfinished, step, start)
        return Playing(envs, result, running, playing.keys)

    def part(
        self, learner: Learner, keys: Key, best: Best, playing: Playing, first: Array, stop: Array
    ) -> tuple[Playing, Best]:
        """Plays from one step to another, from the beginning where `first` is 0: how it stands then.

        The best weights are right once all is played.
        """
        playing = jax.lax.cond(first == 0, lambda: self.begin(keys), lambda: playing)
        playing = self.go_on(learner, playing, first, stop)
        return playing, keep_best(best, learner, playing.result)


def blank(playing: Any) -> Any:
    """Arrays of these shapes, to begin an evaluation with; what is in them is never looked at."""

    def empty(leaf: Any) -> Array:
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.zeros(leaf.shape, leaf.dtype)
        words = jax.eval_shape(jax.random.key_data, leaf)
        return jax.random.wrap_key_data(jnp.zeros(words.shape, words.dtype))

    return jax.tree.map(empty, playing)


def nothing() -> None:
    """Between the parts of an evaluation that nobody wants to end."""


def in_parts(
    part: Callable[[Playing, Any, Any], tuple[Playing, Best]],
    playing: Playing,
    most: int,
    between: Callable[[], None],
) -> tuple[Evaluation, Best]:
    """A whole evaluation of at most so many steps, in parts of about two seconds: `part(playing, first, stop)`.

    Each returns how it stands, and the best weights if that was all.  `between` is called between two parts, by all
    processes at the same moments, and may raise.
    """
    first, steps = 0, FIRST_PART
    while True:
        stop, began = min(first + steps, most), time.perf_counter()
        playing, best = part(playing, np.int32(first), np.int32(stop))
        running = bool(fetch(playing.running).any())
        if stop == most or not running:
            return playing.result, best
        (spent,) = cluster.agree(time.perf_counter() - began)
        first, steps = stop, max(1, min(GROWTH * steps, int(PART_SECONDS * (stop - first) / spent)))
        between()


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
