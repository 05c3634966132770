"""Greedy episodes in environments outside JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, Learner
from rollax.envs.host import HostTask, Stepper
from rollax.programs.background import beside
from rollax.programs.evaluate import Evaluation, nothing
from rollax.programs.host_loop import HostLoop, TimeStep, for_all, start, time_step_after
from rollax.types import Array, Carry, Key, Observation


@dataclass(frozen=True)
class HostEvaluator:
    """Greedy episodes outside JAX, each environment counted once: `Evaluator`'s counterpart."""

    agent: Agent
    task: HostTask
    episodes: int
    max_episode_steps: int

    @functools.cached_property
    def act(self) -> Callable:
        """One decision of all members, compiled once."""
        loop = HostLoop(self.agent, self.task, self.episodes, 1)

        def decide(learner: Learner, carry: Carry, obs: Observation, after: TimeStep, key: Key, step: Array) -> tuple:
            obs, decision = loop.act(learner, carry, obs, after, jax.random.fold_in(key, step), explore=False)
            return obs, decision.action, decision.carry

        return jax.jit(jax.vmap(decide, in_axes=(0, 0, 0, 0, 0, None)))

    def stepper(self, members: int) -> Stepper:
        """Environments for evaluations of so many members, which serve one after the other."""
        return self.task.stepper(members * self.episodes)

    def play(self, learner: Learner, keys: Key, stepper: Stepper, between: Callable[[], None] = nothing) -> Evaluation:
        """Evaluates a population: every leaf of the learner and the keys lead with the members.

        `between` is called between two steps, and may raise.
        """
        shape = (len(keys), self.episodes)
        split = jax.vmap(lambda key: jax.random.split(key, 2))(keys)
        envs = jax.vmap(lambda key: self.task.begin(key, self.episodes, self.agent.greedy_carry(self.episodes)))(keys)
        obs, carry = envs.obs, envs.carry
        after = start(stepper, split[:, 0], shape)
        returns, lengths = np.zeros(shape), np.zeros(shape, np.int32)
        running, cut = np.ones(shape, bool), np.ones(shape, bool)
        for step in range(self.max_episode_steps):
            between()
            arguments = (learner, carry, obs, after, split[:, 1], np.uint32(step))
            obs, action, carry = self.act(*arguments) if step else beside(self.act, *arguments)  # which compiles it
            stepper.submit(for_all(action))
            done = stepper.result()
            ended, truncated, reward = (x.reshape(shape) for x in (done.ended, done.truncated, done.reward))
            returns += np.where(running, reward, 0.0)
            lengths += running
            cut = np.where(running & ended, truncated & ~done.terminated.reshape(shape), cut)
            running = running & ~ended
            if done.lost is not None:  # a new episode in its place
                again = running & done.lost.reshape(shape)
                returns[again], lengths[again] = 0, 0
            if not running.any():
                break
            after = time_step_after(done, shape)
        return Evaluation(jnp.asarray(returns, jnp.float32), jnp.asarray(lengths), jnp.asarray(cut))
