"""From an experiment to its learners: what each knows of its environment, their players, keys and numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent
from rollax.agents.players import UNROLLED, Independent, Shared
from rollax.envs.host import HostTask
from rollax.envs.protocol import Task
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment, LoopConfig, Member
from rollax.experiment.scheduled import followed
from rollax.experiment.tree import leaves, numbers_of, replace_at
from rollax.types import EnvSpec, Key


def built_agent(experiment: Experiment, spec: EnvSpec) -> Agent:
    """The experiment's agent in an environment.  Raises ConfigError where one of the user's own is none."""
    try:
        agent = experiment.choices.build(spec)
    except TypeError as error:
        if "abstract" not in str(error):
            raise
        raise ConfigError(f"agent={experiment.agent!r}: {error}; write what is missing") from error
    if not isinstance(agent, Agent):
        kind = type(agent).__name__
        raise ConfigError(f"agent={experiment.agent!r}: {kind} must be a subclass of rollax.agents.base.Agent")
    return agent


def learner_spec(task: Task | HostTask, loop: LoopConfig) -> EnvSpec:
    """What one learner knows of where it acts; to a shared one each player is an environment."""
    shared = max(task.players, 1) if loop.learners == "shared" else 1
    return task.spec(loop.num_envs * shared, loop.rollout_length)


def with_players(agent: Agent, task: Task | HostTask, loop: LoopConfig) -> Agent:
    """The agent of all players."""
    if not task.players:
        return agent
    if loop.learners == "shared":
        return Shared(agent, task.players)
    if loop.agent_map != "auto":
        return Independent(agent, task.players, loop.agent_map, loop.agent_map)
    if jax.default_backend() != "cpu":
        return Independent(agent, task.players, "vmap", "vmap")
    # One player's large products fill a CPU's cores, and stay in its cache; many players' small ones do not.
    return Independent(agent, task.players, "map" if task.players <= UNROLLED else "vmap", "map")


def keys_and_hparams(experiment: Experiment, members: list[Member]) -> tuple[Key, Any]:
    """Of all members, `[members]`; numbers as strong types, so that a restored run meets the same program."""
    tree = experiment
    for leaf in (leaf for leaf in leaves(experiment) if leaf.traced):
        if leaf.scheduled:
            if leaf.value is not None:  # padded alike for all members that the experiment ever has
                own = [member.hparams[leaf.name] for member in members]
                tree = replace_at(tree, leaf.path, followed(leaf.name, numbers_of(leaf), own))
            continue
        numbers = [member.hparams[leaf.name] for member in members]
        tree = replace_at(
            tree, leaf.path, jnp.asarray(np.array(numbers, np.int32 if leaf.annotation is int else np.float32))
        )
    keys = jax.vmap(jax.random.key)(np.array([member.seed for member in members], np.uint32))
    return keys, tree.hparams
