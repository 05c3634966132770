"""Does an environment keep to the protocol?  One line for each thing that was looked at."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs import registry
from rollax.envs.base import Task, reset_envs, step_envs
from rollax.envs.host import HostTask
from rollax.errors import ConfigError, EnvError

NUM_ENVS = 16


def check_environment(name: str, steps: int) -> list[str]:
    """Takes random legal steps in a batch.  Returns what holds; raises EnvError with all that does not."""
    if steps < 1:
        raise ConfigError(f"steps={steps} must be at least 1")
    task = registry.make(name)
    features = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", task.observation.features)
    found = [
        f"{name}: {task.num_actions} actions, observation {features}",
        *([f"{task.players} players"] if task.players else []),
        "legal actions: " + ("all" if task.observation.legal is None else "a mask in each observation"),
    ]
    if isinstance(task, HostTask):
        return [*found, *check_outside(task, steps), "ok"]
    return [*found, "shapes and dtypes of reset and step agree", *check_inside(task, name, steps), "ok"]


def check_inside(task: Task, name: str, steps: int) -> list[str]:
    """What holds of an environment in JAX."""
    problems, found = [], []
    who = (NUM_ENVS, task.players) if task.players else (NUM_ENVS,)

    def play(key):
        reset_key, step_key = jax.random.split(key)
        envs = reset_envs(task, reset_key, NUM_ENVS)

        def step(envs, key):
            act_key, env_key = jax.random.split(key)
            legal = jnp.ones((*who, task.num_actions), bool) if envs.obs.legal is None else envs.obs.legal
            action = jax.random.categorical(act_key, jnp.where(legal, 0.0, -jnp.inf)).astype(jnp.int32)
            envs, transition, episodes = step_envs(task, envs, action, (), env_key)
            return envs, (transition, episodes)

        first = envs.obs.features
        envs, (rollout, episodes) = jax.lax.scan(step, envs, jax.random.split(step_key, steps))
        return first, rollout, jax.tree.map(jnp.sum, episodes)

    try:
        first, rollout, episodes = jax.jit(play)(jax.random.key(0))
        # Not compiled and called anew, so that an environment that remembers something is found out.
        again, other = (jax.vmap(task.reset)(keys)[0].features for keys in _reset_keys(0, 1))
    except Exception as error:  # whatever it is, it is the environment's
        raise EnvError(f"{name}: it does not run under jit and vmap: {str(error).splitlines()[0]}") from error
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(rollout.next_obs.features)):
        problems.append("an observation is not finite")
    if not np.all(np.isfinite(rollout.reward)):
        problems.append("a reward is not finite")
    if rollout.obs.legal is not None and not np.all(np.any(rollout.obs.legal, axis=-1)):
        problems.append("no action is legal in a running episode")
    if not _equal(first, again):
        problems.append("reset with the same key gives different observations")
    if _equal(first, other):
        found.append("note: reset gives the same observation whatever its key")
    count = int(episodes.count)
    truncations = int((rollout.truncated & ~rollout.terminated).sum())
    found.append(
        f"{steps * NUM_ENVS} random steps in {NUM_ENVS} environments: {count} episodes ended, "
        f"{count - truncations} by termination, {truncations} by time limit"
    )
    if count:
        found.append(
            f"mean return {float(episodes.return_sum) / count:.2f}, length {float(episodes.length_sum) / count:.1f}"
        )
    if problems:
        raise EnvError("\n".join(f"{name}: {problem}" for problem in problems))
    return found


def check_outside(task: HostTask, steps: int) -> list[str]:
    """What holds of an environment outside JAX."""
    stepper, random = task.stepper(NUM_ENVS), np.random.default_rng(0)
    seeds, problems, found = np.arange(NUM_ENVS, dtype=np.int32), [], []
    try:
        first, again, other = (stepper.reset(numbers) for numbers in (seeds, seeds, seeds + NUM_ENVS))
        if not _equal(first, again):
            problems.append("reset with the same seed gives different observations")
        if _equal(first, other):
            found.append("note: reset gives the same observation whatever its seed")
        ended, truncated, lengths = 0, 0, np.zeros(NUM_ENVS, int)
        for _ in range(steps):
            stepper.submit(random.integers(0, task.num_actions, NUM_ENVS, dtype=np.int32))
            step = stepper.result()
            cut = step.truncated & ~step.terminated
            ended, truncated, lengths = ended + int(step.ended.sum()), truncated + int(cut.sum()), lengths + 1
            if np.any(lengths[cut] < task.truncation_interval):
                problems.append(f"an episode was cut before the {task.truncation_interval} steps it promises")
            lengths[step.ended] = 0
            if any(a.shape != b.shape or a.dtype != b.dtype for a, b in _pairs(first, step.shown)):
                problems.append("the observations of reset and step differ in shape or dtype")
            if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((step.shown, step.reward))):
                problems.append("an observation or a reward is not finite")
            if problems:
                break
    finally:
        stepper.close()
    if problems:
        raise EnvError("\n".join(f"{task.name}: {problem}" for problem in problems))
    return [
        *found,
        f"{steps * NUM_ENVS} random steps in {NUM_ENVS} environments outside JAX: {ended} episodes ended, "
        f"{ended - truncated} by termination, {truncated} by time limit",
    ]


def _reset_keys(*seeds: int) -> list[jax.Array]:
    """The keys that `play` resets its environments with."""
    return [jax.random.split(jax.random.split(jax.random.key(seed))[0], NUM_ENVS) for seed in seeds]


def _equal(left, right) -> bool:
    return all(np.array_equal(a, b) for a, b in _pairs(left, right))


def _pairs(left, right) -> list[tuple]:
    return list(zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))
