"""Does an environment keep to the protocol?  One line for each thing that was looked at."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rollax.blame import fails
from rollax.envs import registry
from rollax.envs.host import HostTask
from rollax.envs.protocol import Task, reset_envs, step_envs
from rollax.errors import ConfigError, EnvError
from rollax.types import Decision

NUM_ENVS = 16
MOST_ACTIONS = 4  # that the first step is taken with, one after the other
FIND = "`rollax train --check` names the line"


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
            length = envs.episode_length + 1
            envs, transition, episodes = step_envs(task, envs, Decision(action), env_key)
            return envs, (transition, episodes, length, envs.obs)

        first = envs.obs.features
        _, (rollout, episodes, lengths, after) = jax.lax.scan(step, envs, jax.random.split(step_key, steps))
        return first, rollout, jax.tree.map(jnp.sum, episodes), lengths, after

    try:
        first, rollout, episodes, lengths, after = jax.jit(play)(jax.random.key(0))
        # Not compiled and called anew, so that an environment that remembers something is found out.
        again, other = (jax.vmap(task.reset)(keys)[0].features for keys in _reset_keys(0, 1))
        moves = jax.jit(lambda: every_action(task))()
    except (Exception, SystemExit) as error:  # whatever it is, it is the environment's
        raise EnvError(f"{name}: under jit and vmap it {fails(error)}") from error
    problems += flag_problems(task)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(rollout.next_obs.features)):
        problems.append(f"an observation is not finite; {FIND}")
    if not np.all(np.isfinite(rollout.reward)):
        problems.append(f"a reward is not finite; {FIND}")
    if rollout.obs.legal is not None and not np.all(np.any(rollout.obs.legal, axis=-1)):
        problems.append("no action is legal in a running episode; its mask must allow one until the episode ends")
    if not _equal(first, again):
        problems.append("reset with the same key gives different observations; keep nothing outside the state")
    alike = _equal(first, other)
    if alike:
        found.append(
            "note: reset gives the same observation whatever its key: every episode begins alike; "
            "if that is not meant, draw the start from the key"
        )
    if all(_equal(moves[0], move) for move in moves[1:]) and task.num_actions > 1:
        found.append("note: the first step does the same whatever its action; if that is not meant, look at `step`")
    count = int(episodes.count)
    cut = np.asarray(rollout.truncated & ~rollout.terminated)
    truncations = int(cut.sum())
    cut = np.any(cut, axis=-1) if task.players else cut
    shortest = int(np.asarray(lengths)[cut].min()) if cut.any() else task.truncation_interval
    if shortest < task.truncation_interval:
        problems.append(
            f"an episode was cut after {shortest} steps, but truncation_interval={task.truncation_interval} promises "
            f"at least so many; set truncation_interval = {shortest}"
        )
    if cut.any() and not alike and _equal(*(at_cut(tree, cut) for tree in (rollout.next_obs.features, after.features))):
        problems.append(
            'info["final_observation"] is that of the next episode where one is cut; '
            "it must be the true last observation, from before the reset"
        )
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


def every_action(task: Task) -> list:
    """What the first step of a batch shows and pays, for each action."""
    envs = reset_envs(task, jax.random.key(0), NUM_ENVS)
    who = (NUM_ENVS, task.players) if task.players else (NUM_ENVS,)
    found = []
    for action in range(min(task.num_actions, MOST_ACTIONS)):
        after, transition, _ = step_envs(task, envs, Decision(jnp.full(who, action, jnp.int32)), jax.random.key(1))
        state = [
            leaf for leaf in jax.tree.leaves(after.state) if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        ]
        found.append((transition.next_obs.features, transition.reward, transition.terminated, state))
    return found


def flag_problems(task: Task) -> list[str]:
    """Which of what `step` returns is of a wrong kind, though it could be taken for the right one."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    _, state = jax.eval_shape(task.env.reset, key, task.params)
    action = jax.ShapeDtypeStruct((task.players,) if task.players else (), jnp.int32)
    _, _, reward, terminated, truncated, _ = jax.eval_shape(task.env.step, key, state, action, task.params)
    problems = []
    if not (jnp.issubdtype(reward.dtype, jnp.number) and not jnp.issubdtype(reward.dtype, jnp.complexfloating)):
        problems.append(f"the reward is {reward.dtype}, not a number; take reward.astype(jnp.float32)")
    for name, flag in {"terminated": terminated, "truncated": truncated}.items():
        if flag.dtype != bool:
            problems.append(f"{name} is {flag.dtype}, not bool; compare, as in `{name} > 0`")
    return problems


def at_cut(tree, cut) -> list:
    """The rows of a rollout where an episode was cut."""
    return [np.asarray(leaf)[cut] for leaf in jax.tree.leaves(tree)]


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
