"""Does an environment keep to the protocol?  One line for each thing that was looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax import settings as named
from rollax.envs import registry
from rollax.envs.actions import few_actions, in_words, random_action
from rollax.envs.adapters import FiveValues
from rollax.envs.given import name_for
from rollax.envs.host import HostTask
from rollax.envs.protocol import Envs, Task, of_all_players, play_envs, reset_envs, step_envs
from rollax.envs.random_play import RandomPlay
from rollax.errors import ConfigError, EnvError, fails
from rollax.types import Decision, Key, Observation

NUM_ENVS = 16
NUM_PROCESSES = 4  # of environments that have a process each
MOST_STEPS = 2_000  # that are taken to see whether a promise is kept
FEW_STEPS = 100
MOST_ACTIONS = 4  # that the first step is taken with, one after the other
FIND = "`rollax train --check` names the line"


def check_env(env: Any, steps: int = 200) -> list[str]:
    """Plays so many random steps in an environment: a name, an environment itself, or what makes one.

    Returns lines that say what holds.  Raises EnvError with all that does not.
    """
    return check_environment(name_for(env), steps)


def check_environment(name: str, steps: int, world: Any = None) -> list[str]:
    """Takes random legal steps in a batch.  Returns what holds; raises EnvError with all that does not.

    `world` says how it is stepped, if not as usual.
    """
    if steps < 1:
        raise ConfigError(f"steps={steps} must be at least 1")
    task = registry.make(name, world)
    features = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", task.observation.features)
    found = [
        f"{name}: {in_words(task.action)}, observation {features}",
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
            action = random_action(task.action, act_key, who, envs.obs.legal)
            length = envs.episode_length + 1
            envs, transition, episodes = step_envs(task, envs, Decision(action), env_key)
            return envs, (transition, episodes, length, envs.obs)

        first = envs.obs.features
        _, (rollout, episodes, lengths, after) = jax.lax.scan(step, envs, jax.random.split(step_key, steps))
        return first, rollout, jax.tree.map(jnp.sum, episodes), lengths, after

    try:
        first, rollout, episodes, lengths, after = jax.jit(play)(jax.random.key(0))
        start, again, other = (starts(task, seed) for seed in (0, 0, 1))
        moves = jax.jit(lambda: every_action(task))()
        later = task.truncation_interval > steps
        soonest = int(glance(task, min(task.truncation_interval, MOST_STEPS)).soonest_cut) if later else 0
    except (Exception, SystemExit) as error:  # whatever it is, it is the environment's
        raise EnvError(f"{name}: under jit and vmap it {fails(error)}") from error
    seen = {"reset": first, "step": after.features, 'info["final_observation"]': rollout.next_obs.features}
    for where, features in seen.items():
        if not _finite(features):
            problems.append(f"an observation of {where} is not finite; {FIND}")
            break
        if outside := outside_space(task, features):
            wrong = f"an observation of {where} {outside}"
            theirs = type(task.env).__module__.startswith("gymnax.")  # nobody here can correct it, and nothing needs it
            (found if theirs else problems).append(f"note: {wrong}" if theirs else f"{wrong}; correct one of the two")
            break
    if not _finite(rollout.reward):
        problems.append(f"a reward is not finite; {FIND}")
    if rollout.obs.legal is not None and not np.all(np.any(rollout.obs.legal, axis=-1)):
        problems.append("no action is legal in a running episode; its mask must allow one until the episode ends")
    if not _equal(start, again):
        problems.append("reset with the same key gives different observations; keep nothing outside the state")
    alike = _equal(start, other)
    if alike:
        found.append(
            "note: reset gives the same observation whatever its key: every episode begins alike; "
            "if that is not meant, draw the start from the key"
        )
    if all(_equal(moves[0], move) for move in moves[1:]) and len(moves) > 1:
        found.append("note: the first step does the same whatever its action; if that is not meant, look at `step`")
    count = int(episodes.count)
    cut = np.asarray(rollout.truncated & ~rollout.terminated)
    truncations = int(cut.sum())
    cut = np.any(cut, axis=-1) if task.players else cut
    shortest = int(np.asarray(lengths)[cut].min()) if cut.any() else soonest or task.truncation_interval
    if shortest < task.truncation_interval:
        problems.append(broken_promise(shortest, task.truncation_interval))
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


def starts(task: Task, seed: int) -> Any:
    """What a batch shows at first.

    Each call traces and compiles the same program anew: an environment that remembers something is found out, and one
    that does not gives the same bits.
    """
    keys = jax.random.split(jax.random.key(seed), NUM_ENVS)
    return jax.jit(lambda keys: jax.vmap(task.reset)(keys)[0].features)(keys)


def check_before_training(task: Task | HostTask, name: str) -> None:
    """Raises EnvError where random play shows that a user's environment in JAX is not what it says of itself.

    It may say when a time limit comes at the earliest, which a replay relies on, and what it shows.  Whoever says
    neither has nothing to wait for; all else is seen from the shapes, or in the run.
    """
    if isinstance(task, HostTask) or not named.is_own(name):
        return
    promised, says = task.truncation_interval, says_what_it_shows(task)
    if promised == 1 and not says:
        return
    try:
        seen = glance(task, max(min(promised, MOST_STEPS), FEW_STEPS))
    except (Exception, SystemExit) as error:
        raise EnvError(f"{name}: under jit and vmap it {fails(error)}") from error
    if seen.soonest_cut < promised:
        raise EnvError(f"{name}: {broken_promise(seen.soonest_cut, promised)}")
    for features in (seen.lowest, seen.highest):
        if says and (outside := outside_space(task, features)):
            raise EnvError(f"{name}: an observation {outside}; correct one of the two")


class Glance(NamedTuple):
    """What a batch of environments did in random play."""

    soonest_cut: Any  # fewest steps after which a time limit ended an episode; what is promised where none did
    lowest: Any  # each number of an observation, over time; of flags that stand for a number, how many are set
    highest: Any


def glance(task: Task, steps: int) -> Glance:
    """Looks at so many random steps without keeping them."""

    def numbers(obs: Observation) -> Any:
        return jnp.sum(obs.features, axis=-1, keepdims=True) if task.one_hot else obs.features

    def step(carry: tuple[Envs, Glance], key: Key) -> tuple[tuple[Envs, Glance], None]:
        envs, seen = carry
        length = envs.episode_length + 1
        envs, transition, _ = play_envs(task, envs, RandomPlay(task), jax.random.split(key))
        cut = of_all_players(jnp.any, transition.truncated & ~transition.terminated)
        soonest = jnp.min(jnp.where(cut, length, task.truncation_interval))
        lowest, highest = seen.lowest, seen.highest
        for features in (numbers(transition.next_obs), numbers(envs.obs)):
            lowest, highest = jax.tree.map(jnp.minimum, lowest, features), jax.tree.map(jnp.maximum, highest, features)
        return (envs, Glance(jnp.minimum(seen.soonest_cut, soonest), lowest, highest)), None

    def run(key: Key) -> Glance:
        reset_key, step_key = jax.random.split(key)
        envs = reset_envs(task, reset_key, NUM_ENVS)
        first = Glance(jnp.int32(task.truncation_interval), numbers(envs.obs), numbers(envs.obs))
        return jax.lax.scan(step, (envs, first), jax.random.split(step_key, steps))[0][1]

    return Glance(*jax.jit(run)(jax.random.key(0)))


def broken_promise(length: int, promised: int) -> str:
    return (
        f"an episode was cut after {length} steps, but truncation_interval={promised} promises "
        f"at least so many; set truncation_interval = {length}"
    )


def says_what_it_shows(task: Task) -> bool:
    return hasattr(task.env.env if isinstance(task.env, FiveValues) else task.env, "observation_space")


def outside_space(task: Task, features: Any) -> str:
    """How observations `[..., *shape]` lie outside of what the environment says that they are; empty if they do not."""
    env = task.env.env if isinstance(task.env, FiveValues) else task.env
    if not says_what_it_shows(task):
        return ""
    if task.one_hot:
        counted = np.asarray(features).sum(axis=-1)
        return "" if np.all(counted == 1) else f"is not in observation_space: a number that is not below {task.one_hot}"
    return outside_of(env.observation_space(task.params), features)


def outside_of(space: Any, features: Any) -> str:
    """The same for a space, or several in one, with bounds."""
    inner = getattr(space, "spaces", None)
    if inner is not None:
        keys = inner.keys() if hasattr(inner, "keys") else range(len(inner))
        return next((found for key in keys if (found := outside_of(inner[key], features[key]))), "")
    if not (hasattr(space, "low") and hasattr(space, "high")):
        return ""
    values, shape = np.asarray(features), tuple(getattr(space, "shape", ()) or ())
    if shape and values.shape[values.ndim - len(shape) :] != shape:
        return f"has another shape than observation_space, which says {list(shape)}"
    low, high = (np.asarray(end, values.dtype if values.dtype.kind == "f" else None) for end in (space.low, space.high))
    worst = values[(values < low) | (values > high)]
    return f"is not in observation_space: {worst.reshape(-1)[0]:g} lies outside its bounds" if worst.size else ""


def every_action(task: Task) -> list:
    """What the first step of a batch shows and pays, for each action."""
    envs = reset_envs(task, jax.random.key(0), NUM_ENVS)
    who = (NUM_ENVS, task.players) if task.players else (NUM_ENVS,)
    found = []
    for action in few_actions(task.action, MOST_ACTIONS):
        all_alike = jnp.broadcast_to(action, (*who, *action.shape))
        after, transition, _ = step_envs(task, envs, Decision(all_alike), jax.random.key(1))
        state = [
            leaf for leaf in jax.tree.leaves(after.state) if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        ]
        found.append((transition.next_obs.features, transition.reward, transition.terminated, state))
    return found


def at_cut(tree, cut) -> list:
    """The rows of a rollout where an episode was cut."""
    return [np.asarray(leaf)[cut] for leaf in jax.tree.leaves(tree)]


def check_outside(task: HostTask, steps: int) -> list[str]:
    """What holds of an environment outside JAX.  What each of its calls returns is examined where it is stepped."""
    count = NUM_PROCESSES if task.patience else NUM_ENVS
    stepper, random = task.stepper(count), np.random.default_rng(0)
    steps = max(steps, task.truncation_interval) if task.truncation_interval <= MOST_STEPS else steps
    seeds, problems, found = np.arange(count, dtype=np.int32), [], []
    try:
        first, again, other = (stepper.reset(numbers) for numbers in (seeds, seeds, seeds + count))
        if not _finite(first):
            problems.append("an observation of reset is not finite")
        if not _equal(first, again):
            problems.append("reset with the same seed gives different observations")
        if _equal(first, other):
            found.append("note: reset gives the same observation whatever its seed")
        ended, truncated, lengths = 0, 0, np.zeros(count, int)
        for _ in range(steps):
            key = jax.random.key(int(random.integers(2**31)))
            stepper.submit(np.asarray(random_action(task.action, key, (count,))))
            step = stepper.result()
            cut = step.truncated & ~step.terminated
            ended, truncated, lengths = ended + int(step.ended.sum()), truncated + int(cut.sum()), lengths + 1
            if np.any(lengths[cut] < task.truncation_interval):
                problems.append(f"an episode was cut before the {task.truncation_interval} steps it promises")
            lengths[step.ended] = 0
            if any(a.shape != b.shape or a.dtype != b.dtype for a, b in _pairs(first, step.shown)):
                problems.append("the observations of reset and step differ in shape or dtype")
            if not _finite(step.shown):
                problems.append("an observation is not finite")
            if step.last is not None and not _finite(at_cut(step.last, step.ended)):
                problems.append("the last observation of an episode is not finite")
            if not _finite(step.reward):
                problems.append("a reward is not finite")
            if problems:
                break
    finally:
        stepper.close()
    if problems:
        raise EnvError("\n".join(f"{task.name}: {problem}" for problem in problems))
    return [
        *found,
        f"{steps * count} random steps in {count} environments outside JAX: {ended} episodes ended, "
        f"{ended - truncated} by termination, {truncated} by time limit",
    ]


def _finite(tree: Any) -> bool:
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))


def _equal(left, right) -> bool:
    return all(np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f") for a, b in _pairs(left, right))


def _pairs(left, right) -> list[tuple]:
    return list(zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))
