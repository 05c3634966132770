"""The processes beside the learner: actors, shards of the replay, and the board on which weights are published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.dqn import DQNConfig
from rollax.envs import registry
from rollax.envs.protocol import Envs
from rollax.experiment.experiment import Experiment, from_json, population
from rollax.memory.ring import Batch, Ring
from rollax.memory.rows import RingState
from rollax.memory.uniform import UniformReplay
from rollax.programs import streams
from rollax.programs.flat_replay import Draw, FlatReplay
from rollax.programs.learners import built_agent, keys_and_hparams, learner_spec
from rollax.programs.loop import Loop
from rollax.rules.schedules import LinearEpsilon
from rollax.types import Array, Key

BASE, POWER = 0.4, 7.0  # of the actors' epsilons, as in the paper
UNANSWERED = 2  # rollouts that an actor may have sent and not been thanked for


class Notes(NamedTuple):
    """What an actor says of a rollout beside its transitions."""

    version: int  # of the weights that it acted with
    steps: int
    episodes: tuple[float, float, float]  # that ended: count, returns, lengths
    cause: int  # what is wrong with this or an earlier rollout, as in `Health`; 0 for nothing


class Totals(NamedTuple):
    """What a shard has seen."""

    steps: int
    episodes: tuple[float, float, float]
    version: int  # of the newest weights that a rollout came from
    cause: int  # what was wrong first with a rollout, as in `Health`; 0 for nothing


def epsilon_of(actor: int, actors: int) -> float:
    """From 0.4 for the first to almost nothing for the last."""
    return BASE ** (1.0 + (POWER * actor / (actors - 1) if actors > 1 else 0.0))


def mean_epsilon(actors: int) -> float:
    """The share of random actions of all actors together: each collects as many steps as another."""
    return sum(epsilon_of(actor, actors) for actor in range(actors)) / actors


def own_share(experiment: Experiment, actor: int) -> Experiment:
    """What one actor runs: its part of the environments, and its own epsilon."""
    loop, choices = experiment.loop, cast(DQNConfig, experiment.choices)
    epsilon, envs = epsilon_of(actor, loop.actors), loop.num_envs // loop.actors
    hparams = experiment.hparams.replace(exploration=LinearEpsilon(epsilon_start=epsilon, epsilon_end=epsilon))
    # A ring that holds a rollout, and the windows that wait for it.
    rows = (-(-(choices.replay.n_step + 1) // loop.rollout_length) + 2) * loop.rollout_length
    ring = UniformReplay(capacity=envs * rows, n_step=choices.replay.n_step)
    quiet = replace(loop, num_envs=envs, actors=0, devices=1, warm_up_steps=envs * rows)
    return replace(experiment, choices=replace(choices, replay=ring), hparams=hparams, loop=quiet)


class Actor:
    """Collects for ever: its rollouts become n-step transitions with priorities, and go to a shard."""

    def __init__(self, config: dict[str, Any], actor: int):
        experiment = own_share(from_json(config), actor)
        task, num_envs = (
            registry.make_inside(experiment.env, experiment.world, experiment.view),
            experiment.loop.num_envs,
        )
        self.length = experiment.loop.rollout_length
        self.agent: Any = built_agent(experiment, learner_spec(task, experiment.loop))
        self.loop = Loop(self.agent, task, num_envs, self.length)
        keys, hparams = keys_and_hparams(experiment, population(experiment))
        self.ring: Ring = self.agent.buffer.ring
        self.root, self.hparams = streams.roots(keys[0]).loop, jax.tree.map(lambda leaf: leaf[0], hparams)
        self.program = jax.jit(self.collect, donate_argnums=(1, 2))

    def begin(self, start: int, begun: int) -> None:
        """New episodes, with keys that no other actor has, nor this one when it began before."""
        state = jax.jit(self.loop.init)(streams.actor_key(self.root, start, begun), self.hparams)
        self.learner, self.memory, self.envs, self.key = state.learner, state.memory, state.envs, state.key

    def collect(
        self, learner: Any, memory: RingState, envs: Envs, key: Key
    ) -> tuple[RingState, Envs, Batch, Array, tuple[Array, ...], Array]:
        """A rollout further: the transitions that it completed `[T * B, ...]`, their priorities, the episodes' sums.

        At last what is wrong with the rollout, as in `Health`.
        """
        spec, act_key, judge_key = self.agent.spec, *jax.random.split(key)
        envs, rollout, episodes = self.loop.collect(learner, envs, act_key)
        memory = self.agent.remember(memory, rollout)
        first = memory.added - self.ring.n_step - self.length
        time, env = jnp.meshgrid(first + jnp.arange(self.length), jnp.arange(spec.num_envs), indexing="ij")
        batch = self.ring.windows(memory, env.reshape(-1), time.reshape(-1), learner.hparams.discount)
        return (
            memory,
            envs,
            batch,
            self.agent.bellman_error(learner.params, learner, batch, judge_key).priority,
            episodes,
            self.loop.cause(learner, rollout, self.loop.no_metrics()),
        )

    def run(self, board: Any, shard: Any) -> None:
        """For as long as the process lives."""
        import ray

        self.begin(*ray.get(board.arrived.remote()))
        rollouts, version, sent, wrong = 0, -1, [], 0
        while True:
            if newer := ray.get(board.newer.remote(version)):
                version, params = newer
                self.learner = self.agent.with_weights(self.learner, jax.tree.map(jnp.asarray, params))
            key = streams.ITERATIONS.key(self.key, rollouts)
            self.memory, self.envs, batch, priority, episodes, cause = self.program(
                self.learner, self.memory, self.envs, key
            )
            rollouts, wrong = rollouts + 1, wrong or int(cause)
            if rollouts * self.length < self.length + self.ring.n_step:
                continue  # the first windows are not complete
            count, returns, lengths = (float(total) for total in episodes)
            notes = Notes(version, self.agent.spec.steps_per_iteration, (count, returns, lengths), wrong)
            sent.append(shard.add.remote(jax.tree.map(np.asarray, batch), np.asarray(priority), notes))
            while len(sent) > UNANSWERED:
                ray.get(sent.pop(0))


class Shard:
    """A part of the replay, in a process of its own."""

    def __init__(self, capacity: int, exponent: float, seed: list[int]):
        self.replay = FlatReplay(capacity, exponent, seed)
        self.totals = Totals(0, (0.0, 0.0, 0.0), -1, 0)

    def add(self, batch: Any, priority: np.ndarray, notes: Notes) -> None:
        self.replay.add(batch, priority)
        total = self.totals
        count, returns, lengths = np.add(total.episodes, notes.episodes).tolist()
        version = max(total.version, notes.version)
        steps = total.steps + notes.steps
        self.totals = Totals(steps, (count, returns, lengths), version, total.cause or notes.cause)

    def draw(self, least: int, count: int, batch_size: int, importance_exponent: float) -> tuple[Draw | None, Totals]:
        """Batches, once there are so many transitions, and what has been seen so far."""
        if len(self.replay) < least:
            return None, self.totals
        return self.replay.draw(count, batch_size, importance_exponent), self.totals

    def reprioritize(self, handle: np.ndarray, priority: np.ndarray) -> None:
        self.replay.reprioritize(handle, priority)


class Board:
    """The newest weights, by version, for whoever has older ones."""

    def __init__(self, start: int) -> None:
        """The run goes on after so many gradient steps."""
        self.start, self.version, self.params, self.arrivals = start, -1, None, 0

    def arrived(self) -> tuple[int, int]:
        """An actor begins, for the first time or again: where the run went on, and how many began before."""
        self.arrivals += 1
        return self.start, self.arrivals - 1

    def publish(self, version: int, params: Any) -> int:
        """Puts weights up; says how often actors have begun."""
        self.version, self.params = version, params
        return self.arrivals

    def newer(self, version: int) -> tuple[int, Any] | None:
        """Version and weights; None if they are known."""
        return (self.version, self.params) if self.version > version else None


def remote(kind: Callable, **options: Any) -> Any:
    """A class as one of Ray's actors: when one is lost, another begins, and does again what it was doing."""
    import ray

    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, **options)(kind)
