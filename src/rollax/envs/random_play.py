"""Random legal play: what an environment costs without anybody who thinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from rollax.envs.actions import random_action
from rollax.envs.protocol import Envs, Task, play_envs
from rollax.types import Array, Carry, Decision, Key, Observation


@dataclass(frozen=True)
class RandomPlay:
    """A decider: every legal action is as likely as any other."""

    task: Task

    def all(self, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        return Decision(self.draw(obs, key, fresh.shape))

    def one(self, player: Any, carry: Carry, obs: Observation, fresh: Array, key: Key) -> Decision:
        return Decision(self.draw(obs, jax.random.fold_in(key, player), fresh.shape))

    def draw(self, obs: Observation, key: Key, shape: tuple[int, ...]) -> Array:
        return random_action(self.task.action, key, shape, obs.legal)


def random_play(task: Task, steps: int) -> Callable[[Envs, Key], tuple[Envs, Array]]:
    """A function of environments and a key: `steps` steps of each, and a number that everything is part of."""

    def step(carry: tuple[Envs, Array], key: Key) -> tuple[tuple[Envs, Array], None]:
        envs, total = carry
        envs, transition, episodes = play_envs(task, envs, RandomPlay(task), jax.random.split(key))
        used = [transition.reward, transition.next_obs, envs.obs, *episodes]
        for leaf in jax.tree.leaves(used):
            total += jnp.sum(leaf, dtype=jnp.float32)
        return (envs, total), None

    def run(envs: Envs, key: Key) -> tuple[Envs, Array]:
        return jax.lax.scan(step, (envs, jnp.float32(0)), jax.random.split(key, steps))[0]

    return run
