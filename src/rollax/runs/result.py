"""What a run leaves behind: its curves as arrays, and its policies."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, AgentDecider, Learner
from rollax.envs.given import hand_over
from rollax.envs.protocol import Envs, play_envs
from rollax.errors import CheckpointError, ConfigError, Interrupted, NewerFormatError, Preempted, warn
from rollax.experiment.experiment import Experiment, population, with_values
from rollax.experiment.tree import leaves
from rollax.programs.compiling import NONE, compiler_options
from rollax.programs.plan import Plan, make_plan
from rollax.programs.streams import play_keys
from rollax.runs.folder import RunFolder
from rollax.runs.sources import Source, run_source, source_of
from rollax.runs.tables import bare_summary, evaluation_rows
from rollax.runs.zoo import is_named
from rollax.types import Carry, Observation, Params

EVALUATION_EPSILON = ("choices", "evaluation_epsilon")  # where agents with a random share have it


@dataclass(frozen=True)
class Policy:
    """A trained agent that can be called: `action = policy(observation)`, greedily and without side effects.

    One that remembers within an episode is stepped: `carry = policy.start()`, and then for every observation
    `action, carry = policy.step(carry, observation, fresh)`, with `fresh` where an episode begins.
    """

    agent: Agent
    learner: Learner
    task: Any  # a Task, or a HostTask where environments are outside JAX

    def __call__(self, observation: Any, seed: int = 0) -> np.ndarray:
        """The action for one observation, or actions for a batch of them.

        An observation is what the environment shows, or an `Observation` with a mask of legal actions.
        """
        if jax.tree.leaves(self.start()):
            raise ConfigError(
                "this agent remembers: carry = policy.start(), then policy.step(carry, observation, fresh)"
            )
        return self.step((), observation, seed=seed)[0]

    def start(self, batch: int = 1) -> Carry:
        """What the agent remembers before its first observation, or before the first of so many environments."""
        return self.agent.greedy_carry(batch)

    def step(self, carry: Carry, observation: Any, fresh: Any = False, seed: int = 0) -> tuple[np.ndarray, Carry]:
        """The action for one observation, or actions for a batch, and what the agent remembers from there on.

        `fresh` tells which observations are the first of an episode; it may be one flag for all.
        """
        action, carry = self.decide(carry, self.task.see(jax.tree.map(jnp.asarray, observation)), fresh, seed)
        return self.task.for_environment(action), carry

    def decide(self, carry: Carry, obs: Observation, fresh: Any, seed: int) -> tuple[np.ndarray, Carry]:
        """The same in the library's data types, to which the task has brought the observation already."""
        together = (self.task.players,) if self.task.players else ()
        shapes = [(*together, *leaf.shape) for leaf in jax.tree.leaves(self.task.observation.features)]
        extra = {leaf.ndim - len(shape) for leaf, shape in zip(jax.tree.leaves(obs.features), shapes, strict=True)}
        if extra not in ({0}, {1}):
            wanted = " and ".join(map(str, shapes))
            raise ValueError(f"an observation has the shape {wanted}, with or without a batch in front")
        single = extra == {0}
        if single:
            obs = jax.tree.map(lambda leaf: leaf[None], obs)
        rows = (jax.tree.leaves(obs.features)[0].shape[0], *together)
        decision = self._act(self.learner, carry, obs, jnp.broadcast_to(fresh, rows), jax.random.key(seed))
        actions = np.asarray(decision.action)
        return (actions[0] if single else actions), decision.carry

    def in_turn(self, carry: Carry, state: Any, fresh: bool = False, seed: int = 0) -> tuple[np.ndarray, Carry]:
        """The actions of all players in a state of an environment where each sees what those before it have done."""
        actions, carry = self._turn(self.learner, carry, state, fresh, jax.random.key(seed))
        return np.asarray(actions), carry

    @cached_property
    def _turn(self) -> Any:
        def actions(learner: Learner, carry: Carry, state: Any, fresh: Any, key: Any) -> Any:
            decider = AgentDecider(self.agent, learner, explore=False)
            single = jax.tree.map(lambda leaf: leaf[None], state)
            length = jnp.where(fresh, 0, 1)[None]  # all that is asked of it is whether the episode begins
            envs = Envs(single, self.task.observation, carry, jnp.zeros(1), length)
            envs, transition, _ = play_envs(self.task, envs, decider, jax.random.split(key))
            return transition.action[0], envs.carry

        return jax.jit(actions)

    @cached_property
    def _act(self) -> Any:
        return jax.jit(functools.partial(self.agent.act, explore=False))


@dataclass(frozen=True)
class Result:
    """A run folder, read back; `trust` imports whatever modules it names."""

    run_dir: Path
    exit_code: int = 0
    trust: bool = False

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What summary.json holds: how the run went, member by member.

        Where it is damaged, that is said, and only what the other files tell is there.
        """
        members = population(self.description)
        try:
            summary = self.folder.read_summary()
            if len(summary["members"]) != len(members):
                raise CheckpointError(f"{self.folder.summary} is of another run")
        except NewerFormatError:
            raise
        except CheckpointError as error:
            self.tell(f"{error}; what it said is left out")
            tables = [self.folder.read_table(path)[0] for path in (self.folder.evaluations, self.folder.metrics)]
            return bare_summary(members, *tables)
        return summary

    @cached_property
    def folder(self) -> RunFolder:
        """Its files."""
        return RunFolder(self.run_dir)

    def tell(self, line: str) -> None:
        """Says what is wrong with the folder, where what is left of it can be shown."""
        warn(line)

    @cached_property
    def experiment(self) -> Experiment:
        """What was run, from config.json.  Raises ConfigError where it names modules that are not trusted."""
        return self.folder.read_experiment(trust=self.trust)

    @cached_property
    def description(self) -> Experiment:
        """The same for looking only: nothing is imported, and plain data stands in for what is of the user's own."""
        return self.folder.read_description()

    @cached_property
    def curves(self) -> dict[str, np.ndarray]:
        """The columns of metrics.csv as arrays `[members, rows]`; what is empty there is NaN here."""
        rows, problem = self.folder.read_table(self.folder.metrics)
        if problem and not rows:
            raise CheckpointError(problem)
        if problem:
            self.tell(f"{problem}; the others are left out")
        return in_columns(rows, len(population(self.description)))

    @cached_property
    def evaluations(self) -> dict[str, np.ndarray]:
        """The columns of evaluations.csv, likewise."""
        rows, problem = self.folder.read_table(self.folder.evaluations)
        if problem:
            self.tell(f"{problem}; the others are left out")
        return in_columns(rows, len(population(self.description)))

    def policy(self, member: int = 0, *, best: bool = False) -> Policy:
        """The policy of one member: of its last weights, or of those of its best evaluation."""
        return policy_from(run_source(self.folder, self.experiment), member, best=best)


def not_stopped(result: Result) -> Result:
    """The result of a run that has ended by itself.  Raises Interrupted or Preempted for one that a signal ended."""
    for kind in (Interrupted, Preempted):
        if result.exit_code == kind.exit_code:
            raise kind(result.run_dir)
    return result


def load(run_dir: str | Path, member: int = 0, *, best: bool = False, trust: bool = False, env: Any = None) -> Policy:
    """The policy of a run, or of the zoo: `rollax.load("runs/mine")(observation)`, `rollax.load("zoo:ppo-CartPole")`.

    Modules that the run names are imported if they are installed, if a run of yours has imported them, or with `trust`.
    A run whose environment was an object needs it again: `env`.
    """
    if env is not None and not is_named(run_dir):
        hand_over(str(RunFolder(run_dir).read_config().get("env")), env)
    return policy_from(source_of(run_dir, trust=trust), member, best=best)


def evaluate_run(
    run_dir: str | Path,
    episodes: int,
    *,
    epsilon: float | None = None,
    seed: int = 0,
    best: bool = False,
    trust: bool = False,
) -> list[dict[str, Any]]:
    """Plays episodes with every member of a run, or with one of the zoo: rows as in evaluations.csv.

    Where a score depends on more than the environment's name, each has the `protocol` beside it.
    """
    source = source_of(run_dir, trust=trust)
    return evaluate_source(source, episodes, epsilon=epsilon, seed=seed, best=best)


def evaluate_source(
    source: Source, episodes: int, *, epsilon: float | None = None, seed: int = 0, best: bool = False
) -> list[dict[str, Any]]:
    """The same with every member of what was trained."""
    experiment = source.experiment
    values: dict[str, Any] = {"record.eval_episodes": episodes}  # whole paths: a part may have such a field too
    if epsilon is not None and any(leaf.path == EVALUATION_EPSILON for leaf in leaves(experiment)):
        values[".".join(EVALUATION_EPSILON)] = epsilon
    elif epsilon:
        raise ConfigError(f"epsilon={epsilon} does not go with {experiment.agent}, which has no random share")
    plan = make_plan(with_values(experiment, values))
    params = source.weights(plan.shapes()[0].learner.params, best=best)
    agent = plan.program.agent

    def learner(key: Any, hparams: Any, own: Params) -> Learner:
        return agent.with_weights(agent.init(key, hparams)[0], own)

    episode_keys = play_keys(seed, jnp.arange(len(plan.members)))
    # Compiled, so that the memory that comes with a new learner is never allocated.
    learners = jax.jit(jax.vmap(learner))(plan.keys, plan.hparams, params)
    result = plan.program.play(learners, episode_keys)
    beside = {"protocol": plan.protocol} if plan.protocol else {}
    return [row | beside for row in evaluation_rows(plan, result, source.steps, {})]


def policy_from(source: Source, member: int, *, best: bool) -> Policy:
    """The policy of one member of what was trained."""
    plan = make_plan(source.experiment)
    if not 0 <= member < len(plan.members):
        raise ConfigError(f"member={member} must be in [0, {len(plan.members) - 1}]")
    params = source.weights(plan.shapes()[0].learner.params, best=best)
    return policy_of(plan, jax.tree.map(lambda leaf: leaf[member], params), member)


def policy_of(plan: Plan, params: Params, member: int) -> Policy:
    agent = plan.program.agent
    hparams = jax.tree.map(lambda leaf: leaf[member], plan.hparams)
    # Compiled, so that the memory that comes with a new learner is never allocated.
    once = compiler_options(NONE)
    learner = jax.jit(lambda key: agent.init(key, hparams)[0], compiler_options=once)(plan.keys[member])
    return Policy(agent, agent.with_weights(learner, params), plan.program.task)


def in_columns(rows: list[dict[str, str]], members: int) -> dict[str, np.ndarray]:
    """Rows with a column `member` as arrays `[members, rows]`, padded with NaN where a member stopped early."""
    if not rows:
        return {}
    own = [[row for row in rows if row["member"] == str(member)] for member in range(members)]
    length = max(map(len, own))

    def column(name: str) -> np.ndarray:
        table = np.full((members, length), np.nan)
        for member, its in enumerate(own):
            table[member, : len(its)] = [float(row[name]) if row[name] else np.nan for row in its]
        return table

    return {name: column(name) for name in rows[0]}
