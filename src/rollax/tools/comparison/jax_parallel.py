"""What the comparison's two modes in JAX have in common, and the one in which everything is one program."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import own_axes
from rollax.agents.dqn import DQN
from rollax.agents.players import Independent
from rollax.envs.protocol import play_envs
from rollax.envs.random_play import RandomPlay
from rollax.experiment.experiment import Experiment
from rollax.memory.replay import Request
from rollax.programs.compiling import LIGHT, compiler_options
from rollax.programs.loop import Loop, TrainState
from rollax.programs.plan import make_plan
from rollax.tools.comparison.mode import Mode
from rollax.tools.comparison.settings import TYPICAL_EPSILON
from rollax.types import Array, Key

MOST = 1_000  # epochs of one call


def jit(function: Callable, donate_argnums: Sequence[int] = ()) -> Any:
    """`jax.jit` with the compiler's options of a training run."""
    return jax.jit(function, donate_argnums=donate_argnums, compiler_options=compiler_options(LIGHT))


class JaxMode(Mode):
    """What both modes are: an experiment, compiled, with the state that it has reached."""

    def __init__(self, experiment: Experiment) -> None:
        plan = make_plan(experiment)
        self.loop: Loop = plan.program.loop
        self.evaluator = plan.program.evaluator
        assert isinstance(self.loop.agent, Independent)
        self.agent: Independent = self.loop.agent
        self.hparams = jax.tree.map(lambda leaf: leaf[0], plan.hparams)
        self.begin = self.compiled(self.loop.init, jax.random.key(0), self.hparams)
        self.reset(experiment.seed)

    def compiled(self, function: Callable, *arguments: Any, donate: Sequence[int] = ()) -> Callable:
        """The function, compiled for such arguments, with the time on the clock."""
        began = time.perf_counter()
        program = jit(function, donate_argnums=donate).lower(*arguments).compile()
        self.compile_seconds += time.perf_counter() - began
        return program

    def reset(self, seed: int) -> None:
        self.state: TrainState = self.begin(jax.random.key(seed), self.hparams)

    def hold_epsilon(self, epsilon: float | None) -> None:
        """Sets the share of random actions to a number, or back to its schedule."""
        known = self.hparams
        if epsilon is not None:
            share = jnp.float32(epsilon)
            known = known.replace(exploration=known.exploration.replace(epsilon_start=share, epsilon_end=share))
        players = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.agent.players, *leaf.shape)), known)
        self.state = self.state._replace(learner=self.state.learner._replace(hparams=players))

    def greedy_returns(self, count: int, seed: int) -> list[float]:
        evaluator = dataclasses.replace(self.evaluator, episodes=count)
        alone = jax.tree.map(lambda leaf: leaf[None], self.state.learner)
        return np.asarray(jax.jit(evaluator)(alone, jax.random.key(seed)[None]).returns)[0].tolist()

    def timed(self, function: Callable, *arguments: Any, times: int = 10) -> float:
        """Seconds of one call: the median."""
        program, spent = jit(function), []
        jax.block_until_ready(program(*arguments))
        for _ in range(times):
            began = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            spent.append(time.perf_counter() - began)
        return float(np.median(spent))

    def sampling_seconds(self) -> float:
        """Of all agents' draws from their memories for one epoch."""
        agent, axes = self.agent.agent, own_axes(self.state.memory)
        assert isinstance(agent, DQN)

        def sample(memory: Any, key: Key) -> Any:
            return agent.buffer.sample(memory, key, Request(agent.config.batch_size, discount=0.99))

        every = jax.vmap(sample, in_axes=(axes, 0))
        return agent.updates * self.timed(every, self.state.memory, self.agent.keys(jax.random.key(0)))

    def device_name(self) -> str:
        return jax.devices()[0].device_kind

    def device_bytes(self) -> int | None:
        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


class JaxParallel(JaxMode):
    """Epochs without end in one compiled program; the host only says how many."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment)
        self.advance = self.compiled(self.many, self.state, jnp.int32(1), donate=(0,))

    def many(self, state: TrainState, count: Array) -> tuple[TrainState, Array]:
        """The state after so many epochs, and their returns."""

        def epoch(number: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
            state, returns = carry
            after = self.loop.iteration(state._replace(window=jnp.zeros_like(state.window)), learn=True)
            return after, returns.at[number].set(after.window[1])

        return jax.lax.fori_loop(0, count, epoch, (state, jnp.zeros(MOST)))

    def epochs(self, count: int, epsilon: float | None = None) -> list[float]:
        self.hold_epsilon(epsilon)
        returns: list[float] = []
        while len(returns) < count:
            share = min(MOST, count - len(returns))
            self.state, found = self.advance(self.state, jnp.int32(share))
            returns += np.asarray(found)[:share].tolist()
        jax.block_until_ready(self.state)
        return returns

    def parts(self) -> dict[str, float]:
        """Seconds of an epoch by what they go into, each measured as a program of its own."""
        state, key, task = self.state, jax.random.key(0), self.loop.task
        random = RandomPlay(task)

        def walk(envs: Any, keys: Key) -> Any:
            return jax.lax.scan(lambda envs, key: play_envs(task, envs, random, key)[:2], envs, keys)

        keys = jax.random.split(key, (self.loop.rollout_length, 2))
        self.hold_epsilon(TYPICAL_EPSILON)
        collect = self.timed(self.loop.collect, self.state.learner, state.envs, key)
        world = self.timed(walk, state.envs, keys)
        rollout = jax.jit(self.loop.collect)(state.learner, state.envs, key)[1]
        learn = self.timed(self.agent.learn, state.learner, state.memory, rollout, key)
        sampling = self.sampling_seconds()
        return {"acting": collect - world, "training": learn - sampling, "sampling": sampling, "world": world}
