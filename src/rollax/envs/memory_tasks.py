"""Small tasks that nobody solves who forgets: what is asked for was shown before, or is never shown at all."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs import gymnax
from rollax.envs.protocol import EnvConfig
from rollax.settings import Limit, setting
from rollax.types import Array, Key

POSITIONS = np.array([0, 2])  # in CartPole's observation; the others are velocities
TIME_LIMIT = 500  # of CartPole
WITHOUT_TRAIL = np.array([0, 1, 3])  # of Breakout's channels: paddle, ball, trail, bricks
BREAKOUT_LIMIT = 1_000  # steps


class RepeatState(NamedTuple):
    first: Array
    time: Array


@dataclass(frozen=True)
class RepeatFirst(EnvConfig):
    """Symbols are shown one after the other; every action should be the first of them.

    An observation is a flag for each symbol and one that is set in the first step.  An episode's rewards add up to 1
    for who always remembers, and to 1 / symbols for who guesses.
    """

    symbols: int = setting(4, "Number of symbols of RepeatFirst.", limit=Limit(2, 1_000), group="environment")
    length: int = setting(
        16, "Number of steps of an episode of RepeatFirst.", limit=Limit(2, 10_000), group="environment"
    )

    @property
    def num_actions(self) -> int:
        return self.symbols

    def reset(self, key: Key, params: Any) -> tuple[Array, RepeatState]:
        first = jax.random.randint(key, (), 0, self.symbols)
        return self.show(first, first_step=True), RepeatState(first, jnp.int32(0))

    def step(
        self, key: Key, state: RepeatState, action: Array, params: Any
    ) -> tuple[Array, RepeatState, Array, Array, Array, dict]:
        reset_key, symbol_key = jax.random.split(key)
        reward = (action == state.first) / self.length
        time = state.time + 1
        ended = time >= self.length
        shown = self.show(jax.random.randint(symbol_key, (), 0, self.symbols), first_step=False)
        new_shown, new_state = self.reset(reset_key, params)
        obs, state = jax.tree.map(
            lambda new, old: jnp.where(ended, new, old), (new_shown, new_state), (shown, RepeatState(state.first, time))
        )
        return obs, state, reward, ended, jnp.bool_(False), {"final_observation": shown}

    def show(self, symbol: Array, *, first_step: bool) -> Array:
        return jnp.append(jax.nn.one_hot(symbol, self.symbols), jnp.float32(first_step))


@dataclass(frozen=True)
class Partial(EnvConfig):
    """An environment of gymnax's of which only a part of each observation is shown."""

    game: ClassVar[str]

    @cached_property
    def whole(self) -> tuple[Any, Any]:
        """The environment and its parameters."""
        with jax.ensure_compile_time_eval():  # some hold arrays, and whoever asks first may be tracing
            return gymnax.make(self.game)

    @abstractmethod
    def part(self, obs: Array) -> Array:
        """What is shown of an observation."""

    def reset(self, key: Key, params: Any) -> tuple[Array, Any]:
        env, known = self.whole
        obs, state = env.reset(key, known)
        return self.part(obs), state

    def step(self, key: Key, state: Any, action: Array, params: Any) -> tuple[Array, Any, Array, Array, Array, dict]:
        env, known = self.whole
        obs, state, *rest, info = env.step(key, state, action, known)
        return self.part(obs), state, *rest, {"final_observation": self.part(info["final_observation"])}


@dataclass(frozen=True)
class PositionOnlyCartPole(Partial):
    """CartPole-v1 that shows where cart and pole are, and not how fast they move."""

    game = "CartPole-v1"
    num_actions = 2
    truncation_interval = TIME_LIMIT

    def part(self, obs: Array) -> Array:
        return obs[POSITIONS]


@dataclass(frozen=True)
class TraillessBreakout(Partial):
    """MinAtar's Breakout without the channel that shows where the ball was: which way it flies must be remembered."""

    game = "Breakout-MinAtar"
    num_actions = 3
    truncation_interval = BREAKOUT_LIMIT

    def part(self, obs: Array) -> Array:
        return obs[..., WITHOUT_TRAIL].astype(bool)


@dataclass(frozen=True)
class MemoryChain(EnvConfig):
    """bsuite's memory chain: what is shown in the first step is asked for in the last.  The optimum is 1."""

    memory_length: int = setting(
        5,
        "Number of steps over which the agent of a memory chain must remember what it saw first.",
        limit=Limit(1, 900),
        group="environment",
    )

    num_actions = 2

    @cached_property
    def whole(self) -> tuple[Any, Any]:
        """The environment and its parameters."""
        env, params = gymnax.make("MemoryChain-bsuite")
        return env, params.replace(memory_length=self.memory_length)

    def reset(self, key: Key, params: Any) -> tuple[Array, Any]:
        env, known = self.whole
        return env.reset(key, known)

    def step(self, key: Key, state: Any, action: Array, params: Any) -> tuple[Array, Any, Array, Array, Array, dict]:
        env, known = self.whole
        return env.step(key, state, action, known)
