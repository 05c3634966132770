"""Small trainings without a run folder, for tests of agents and of the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from rollax.agents.names import AGENTS
from rollax.envs.protocol import Task
from rollax.experiment.tree import leaves, replace_at
from rollax.memory.sequences import SequenceReplay
from rollax.networks.heads import CategoricalHead, ImplicitQuantileHead, QuantileHead
from rollax.programs.compiling import LIGHT, NONE, compiler_options
from rollax.programs.evaluate import Evaluator
from rollax.programs.jit import JitProgram
from rollax.programs.loop import Loop, TrainState
from rollax.types import Discrete, Observation

LOG = jnp.int32(10**6)
QUANTILES = (QuantileHead, ImplicitQuantileHead)


def stack_hparams(members: int, name: str = "dqn", **values: Any) -> Any:
    """An agent's hyper-parameters, the same for every member, as strong types."""
    hparams = with_numbers(AGENTS[name].hparams, values)
    return jax.tree.map(lambda x: jnp.full(members, x, jnp.int32 if isinstance(x, int) else jnp.float32), hparams)


def with_numbers(hparams: Any, values: dict[str, Any]) -> Any:
    """Hyper-parameters with numbers or parts replaced by name, also inside of parts."""
    for leaf in leaves(hparams):
        if leaf.name in values:
            hparams = replace_at(hparams, leaf.path, values[leaf.name])
    return hparams.replace(**{name: value for name, value in values.items() if hasattr(hparams, name)})


def seed_keys(*seeds: int) -> jax.Array:
    return jax.vmap(jax.random.key)(jnp.array(seeds, jnp.uint32))


def make_program(task: Task, config: Any, num_envs: int = 8, rollout_length: int = 1, **options: Any) -> JitProgram:
    spec = task.spec(num_envs, rollout_length)
    assert config.problems(spec) == []
    agent = config.build(spec)
    evaluator = Evaluator(agent, task, episodes=16, max_episode_steps=50)
    return JitProgram(Loop(agent, task, num_envs, rollout_length), evaluator, **options)


def runner(program: JitProgram, keys: jax.Array, hparams: Any, warm_up: int = 0, level: dict = NONE) -> Any:
    """A compiled `run(keys, hparams, stop)`: a new population, its warm-up, and its learning up to `stop`."""

    def run(keys: jax.Array, hparams: Any, stop: jax.Array) -> TrainState:
        state, _ = program.init(keys, hparams)
        if warm_up:
            state, _ = program.repeat(state, jnp.int32(warm_up), LOG, learn=False)
        return program.repeat(state, stop, LOG, learn=True)[0]

    compiled = compile_lightly(run, keys, hparams, jnp.int32(0), level=level)
    return lambda keys, hparams, stop: compiled(keys, hparams, jnp.int32(stop))


def continuer(program: JitProgram, state: TrainState) -> Any:
    """A compiled `run(state, stop)` that goes on from a state."""
    compiled = compile_lightly(lambda state, stop: program.repeat(state, stop, LOG, learn=True)[0], state, jnp.int32(0))
    return lambda state, stop: compiled(state, jnp.int32(stop))


def start(program: JitProgram, keys: jax.Array, hparams: Any, warm_up: int) -> TrainState:
    return runner(program, keys, hparams, warm_up)(keys, hparams, warm_up)


def advance(program: JitProgram, state: TrainState, stop: int) -> TrainState:
    return continuer(program, state)(state, stop)


def compile_lightly(function: Any, *arguments: Any, level: dict = NONE) -> Any:
    """Compiles in half the time that the compiler's last level would take; `NONE` for what runs for a moment only."""
    return jax.jit(function).lower(*arguments).compile(compiler_options(level))


def home(name: str) -> str:
    """An environment in which the agent can act."""
    return "CartPole-v1" if Discrete in AGENTS[name].choices.takes else "Pendulum-v1"


def small(name: str, **changes: Any) -> Any:
    """An agent with a network and a replay that fit a probe."""
    choices: Any = AGENTS[name].choices
    sizes: dict[str, Any] = {"torso": choices.torso.clone(hidden=(48,))}
    if hasattr(choices, "streams") and choices.streams.stream_hidden:
        sizes["streams"] = choices.streams.clone(stream_hidden=32)
    if choices.replay is not None:
        sizes |= {"replay": replace(choices.replay, capacity=8_192), "batch_size": 64}
    if isinstance(choices.replay, SequenceReplay):
        sizes |= {"replay": SequenceReplay(8_192, 2, sequence=4, burn_in=2, stride=4), "batch_size": 16}
        sizes["recurrence"] = choices.recurrence.clone(units=16)
    if isinstance(getattr(choices, "head", None), CategoricalHead):
        sizes["head"] = CategoricalHead(atoms=41, value_min=-2.0, value_max=6.0)
    if isinstance(getattr(choices, "head", None), ImplicitQuantileHead):
        sizes["head"] = ImplicitQuantileHead(quantiles=8, cosines=16)
    return replace(choices, **(sizes | changes))


# What the agents that keep no replay need: a rollout to learn from.
ROLLOUT = {"pqn": 8, "ppo": 8}


def solve(name: str, task: Task, iterations: int = 1_500, **changes: Any) -> tuple[Any, Any]:
    """Trains an agent on a probe; returns the agent and its learner."""
    rollout = ROLLOUT.get(name, 1)
    program = make_program(task, small(name), rollout_length=rollout)
    agent: Any = program.loop.agent
    usual = AGENTS[name].hparams
    settings: dict[str, Any] = {
        "learning_rate": 3e-3,
        "learning_rate_end": 0.0,
        "learning_rate_steps": 8.0 * iterations,
    }
    settings |= {"target_step": 0.05, "importance_steps": 8.0 * iterations}
    settings |= {"epsilon_start": 1.0, "epsilon_steps": 16_000.0, "epsilon_end": 0.3}
    # A squared loss finds means; quantiles need one that is linear but for small errors.
    settings["huber_kappa"] = 1.0 if isinstance(getattr(agent.network, "head", None), QUANTILES) else 100.0
    settings |= changes
    numbers = {leaf.name for leaf in leaves(usual)}
    known = {name: value for name, value in settings.items() if name in numbers}
    warm_up = 0 if rollout > 1 else 32
    keys, hparams = seed_keys(0), stack_hparams(1, name, **known)
    state = runner(program, keys, hparams, warm_up, LIGHT)(keys, hparams, warm_up + iterations // rollout)
    return program.loop.agent, jax.tree.map(lambda leaf: leaf[0], state.learner)


def q_values(agent: Any, learner: Any, features: Any) -> jax.Array:
    return returns(agent, learner, features).mean()


def returns(agent: Any, learner: Any, features: Any) -> Any:
    """What the mean network says of observations with these features."""
    return agent.network.apply(learner.params, Observation(jnp.asarray(features, jnp.float32)).features)


def decide(agent: Any, learner: Any, obs: Observation, key: jax.Array, *, explore: bool = False) -> Any:
    """What an agent that remembers nothing does in the middle of episodes."""
    rows = jax.tree.leaves(obs.features)[0].shape[0]
    return agent.act(learner, (), obs, jnp.zeros(rows, bool), key, explore=explore)
