"""Small trainings without a run folder, for tests of agents and of the loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rollax.agents.dqn import FAMILY, DQNConfig, DQNHParams
from rollax.envs.base import Task
from rollax.networks import MLP
from rollax.replay import UniformReplay
from rollax.training.evaluate import Evaluator
from rollax.training.jax_program import LIGHT, JaxProgram
from rollax.training.loop import Loop, TrainState

LOG = jnp.int32(10**6)


def stack_hparams(members: int, **values: Any) -> DQNHParams:
    """The same hyper-parameters for every member, as strong types."""
    hparams = DQNHParams(**values)
    return jax.tree.map(lambda x: jnp.full(members, x, jnp.int32 if isinstance(x, int) else jnp.float32), hparams)


def seed_keys(*seeds: int) -> jax.Array:
    return jax.vmap(jax.random.key)(jnp.array(seeds, jnp.uint32))


def make_program(
    task: Task, config: DQNConfig, num_envs: int = 8, rollout_length: int = 1, **options: Any
) -> JaxProgram:
    spec = task.spec(num_envs, rollout_length)
    assert config.problems(spec) == []
    agent = config.build(spec)
    evaluator = Evaluator(agent, task, episodes=16, max_episode_steps=50)
    return JaxProgram(Loop(agent, task, num_envs, rollout_length), evaluator, **options)


def start(program: JaxProgram, keys: jax.Array, hparams: DQNHParams, warm_up: int) -> TrainState:
    state, _ = lightly(program.init, keys, hparams)
    return lightly(lambda state, stop: program.repeat(state, stop, LOG, learn=False)[0], state, jnp.int32(warm_up))


def advance(program: JaxProgram, state: TrainState, stop: int) -> TrainState:
    return lightly(lambda state, stop: program.repeat(state, stop, LOG, learn=True)[0], state, jnp.int32(stop))


def lightly(function: Any, *arguments: Any) -> Any:
    """Compiles as the library does, in half the time that the compiler's last level would take, and calls."""
    return jax.jit(function).lower(*arguments).compile(LIGHT if jax.default_backend() == "cpu" else None)(*arguments)


def small(name: str, **changes: Any) -> DQNConfig:
    """A family member with a network and a replay that fit a probe."""
    from dataclasses import replace

    replay = UniformReplay(capacity=2_048, n_step=FAMILY[name].replay.n_step)
    return replace(FAMILY[name], torso=MLP((32,)), replay=replay, batch_size=64, **changes)


def solve(name: str, task: Task, iterations: int = 1_500, **hparams: Any) -> tuple[Any, Any]:
    """Trains a family member on a probe; returns the agent and its learner."""
    program = make_program(task, small(name))
    settings = {"learning_rate": 3e-3, "target_step": 0.05, "epsilon_steps": 2_000.0, "epsilon_end": 0.3} | hparams
    state = start(program, seed_keys(0), stack_hparams(1, **settings), warm_up=32)
    state = advance(program, state, 32 + iterations)
    return program.loop.agent, jax.tree.map(lambda leaf: leaf[0], state.learner)


def q_values(agent: Any, learner: Any, features: Any) -> jax.Array:
    from rollax.types import Observation

    return agent.returns(learner.params, Observation(jnp.asarray(features, jnp.float32))).mean()
