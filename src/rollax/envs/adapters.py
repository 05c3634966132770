"""Environments of other shapes, brought to the protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.actions import for_environment, space_of
from rollax.envs.protocol import Task
from rollax.errors import EnvError, fails, shortened
from rollax.types import Array, Discrete, Key, Observation, Space, action_shape

# Which of so many values of `step` must be numbers.
RETURNED = {5: ("", "", "reward", "done"), 6: ("", "", "reward", "terminated", "truncated")}


@dataclass(frozen=True)
class FiveValues:
    """An environment of the older protocol: `obs, state, reward, done, info = step(key, state, action, params)`.

    `done` is a termination unless `info["truncated"]` says that time ran out.  Where the environment
    has `step_env` and `reset_env`, which do not reset by themselves, the last observation of an
    episode is taken from there; else it must be in `info["final_observation"]` if it can truncate.
    """

    env: Any

    def reset(self, key: Key, params: Any) -> tuple[Any, Any]:
        return self.env.reset(key, params)

    def step(self, key: Key, state: Any, action: Array, params: Any) -> tuple[Any, Any, Array, Array, Array, dict]:
        if hasattr(self.env, "step_env") and hasattr(self.env, "reset_env"):
            step_key, reset_key = jax.random.split(key)
            last_obs, last_state, reward, done, info = self.env.step_env(step_key, state, action, params)
            new_obs, new_state = self.env.reset_env(reset_key, params)
            obs, state = jax.tree.map(
                lambda new, last: jnp.where(done, new, last), (new_obs, new_state), (last_obs, last_state)
            )
        else:
            obs, state, reward, done, info = self.env.step(key, state, action, params)
            last_obs = info.get("final_observation", obs)
            if "truncated" in info and "final_observation" not in info:
                raise EnvError(
                    f"{type(self.env).__name__} truncates episodes, so its step must put the true last observation "
                    'into info["final_observation"]'
                )
        truncated = jnp.asarray(info.get("truncated", False), bool)
        terminated = jnp.asarray(done, bool) & ~truncated
        return obs, state, reward, terminated, truncated, {**info, "final_observation": last_obs}


def to_task(env: Any, params: Any, name: str) -> Task:
    """A `Task` from any environment of the six-value or the five-value protocol.

    Raises EnvError with all that breaks the protocol.
    """
    space = _action_space(env, params, name)
    one_hot, interval = _one_hot(env, params, name), _truncation_interval(env, params, name)
    key = jax.eval_shape(lambda: jax.random.key(0))
    raw, state = _expect(name, "reset", 2, lambda: env.reset, key, params)
    if not jax.tree.leaves(raw):
        raise EnvError(f"{name}: reset must return an observation of at least one array, not {_outline(raw)}")
    players = int(getattr(env, "players", 0))
    alone = (players,) if players else ()
    if players and not isinstance(space, Discrete):
        raise EnvError(f"{name}: several players have discrete actions only; give it one player, or numbered actions")
    spoken = action_shape(space, alone)
    action = jax.eval_shape(lambda x: for_environment(space, x), spoken)
    stepped = _expect(name, "step", (5, 6), lambda: env.step, key, state, action, params)
    named_flags = {"terminated": stepped[3], "truncated": stepped[4]} if len(stepped) == 6 else {"done": stepped[3]}
    if len(stepped) == 5:
        env = FiveValues(env)
        stepped = _expect(name, "step", 6, lambda: env.step, key, state, action, params)
    obs, next_state, reward, terminated, truncated, info = stepped
    if not isinstance(info, dict) or "final_observation" not in info:
        raise EnvError(f'{name}: step must put the true last observation into info["final_observation"]')
    problems = []
    pairs = {
        "the observation of reset and step": (raw, obs),
        'the observation and info["final_observation"]': (raw, info["final_observation"]),
        "the state of reset and step": (state, next_state),
    }
    for what, (one, two) in pairs.items():
        if _outline(one) != _outline(two):
            problems.append(
                f"{what} differ in shape or dtype: {_outline(one)} and {_outline(two)}; make the second like the first"
            )
    for what, value in {"reward": reward, "terminated": terminated, "truncated": truncated}.items():
        if getattr(value, "shape", None) not in ({alone} if what == "reward" else {(), alone}):
            wanted = "one number for each player" if players and what == "reward" else "one number"
            fix = f"; take {what}.squeeze()" if _size(value) == 1 else ""
            problems.append(f"step must return {wanted} as {what}, not {_outline(value)}{fix}")
    problems += kind_problems(reward, named_flags)
    costly = bool(getattr(env, "costly", False))
    in_turn = bool(getattr(env, "in_turn", False))
    stack = int(getattr(env, "stack", 1))
    task = Task(env, params, Observation(None), space, one_hot, interval, _binary(env), costly, players, in_turn, stack)
    observation = _shapes(name, "the observation", task.see, raw)
    if players:
        if any(leaf.shape[:1] != alone for leaf in jax.tree.leaves(observation)):
            problems.append(f"the observation must lead with its {players} players, not {_outline(observation)}")
        observation = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), observation)
    shapes = [leaf.shape for leaf in jax.tree.leaves(observation.features)]
    if stack > 1 and (len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][-1] != stack):
        problems.append(f"with stack={stack} an observation is one picture [H, W, {stack}], not {shapes}")
    legal = observation.legal
    if legal is not None and not isinstance(space, Discrete):
        problems.append("a mask of legal actions goes with one discrete action only; leave it out")
    elif legal is not None and isinstance(space, Discrete) and (legal.shape != (space.n,) or legal.dtype != bool):
        wanted = f"bool[{space.n}], one flag for each action"
        problems.append(f"the mask of legal actions is {_outline(legal)}, not {wanted}")
    if problems:
        raise EnvError("\n".join(f"{name}: {problem}" for problem in problems))
    return replace(task, observation=observation)


def _action_space(env: Any, params: Any, name: str) -> Space:
    if not hasattr(env, "action_space"):
        count = getattr(env, "num_actions", None)
        if not isinstance(count, int) or count < 1:
            said = "" if count is None else f", a number of at least 1, and not {count!r}"
            raise EnvError(f"{name}: an environment needs `num_actions` or `action_space(params).n`{said}")
        return Discrete(count)
    space = env.action_space
    space = _call(name, "action_space", space, params) if callable(space) else space
    found = space_of(name, space)
    if found is None:
        raise EnvError(
            f"{name}: its action_space is {shortened(str(space))}; rollax knows spaces with `n`, with `nvec`, "
            "with `low` and `high`, and with `spaces`"
        )
    return found


def _one_hot(env: Any, params: Any, name: str) -> int:
    if not hasattr(env, "observation_space"):
        return 0
    return int(getattr(_call(name, "observation_space", env.observation_space, params), "n", 0))


def _binary(env: Any) -> bool:
    """MinAtar's boards are flags that gymnax shows as numbers, at four times the memory."""
    return type(env).__module__.startswith("gymnax.environments.minatar.")


def kind_problems(reward: Any, flags: dict[str, Any]) -> list[str]:
    """Which of what `step` returns is of a wrong kind, though it could be taken for the right one."""
    problems = []
    kind = getattr(reward, "dtype", np.dtype(np.float32))
    if not jnp.issubdtype(kind, jnp.number) or jnp.issubdtype(kind, jnp.complexfloating):
        problems.append(f"the reward is {kind}, not a number; take reward.astype(jnp.float32)")
    for what, flag in flags.items():
        if np.dtype(getattr(flag, "dtype", bool)).kind != "b":
            problems.append(f"{what} is {flag.dtype}, not bool; compare, as in `{what} > 0`")
    return problems


def _truncation_interval(env: Any, params: Any, name: str) -> int:
    """What the environment promises, or the time limit of one of gymnax's own, which is exact."""
    promised = getattr(env, "truncation_interval", None)
    if promised is not None:
        if not isinstance(promised, (int, np.integer)) or promised < 1:
            raise EnvError(f"{name}: truncation_interval must be a whole number of at least 1, and not {promised!r}")
        return int(promised)
    limit = getattr(params, "max_steps_in_episode", None)
    theirs = type(env).__module__.startswith("gymnax.environments.") and hasattr(type(env), "is_truncated")
    inherited = theirs and type(env).is_truncated.__module__ == "gymnax.environments.environment"
    return max(1, int(limit)) if inherited and limit is not None else 1


def _expect(name: str, method: str, counts: int | tuple[int, ...], find: Any, *arguments: Any) -> Any:
    """The shapes that a method of the environment returns, which must be so many."""
    allowed = counts if isinstance(counts, tuple) else (counts,)

    def examined(*args: Any) -> tuple:
        result = find()(*args)
        if not isinstance(result, tuple) or len(result) not in allowed:
            count = str(len(result)) if isinstance(result, tuple) else f"{result!r:.60}"
            raise EnvError(f"{name}: {method} must return {' or '.join(map(str, allowed))} values; it returns {count}")
        for what, value in zip(RETURNED.get(len(result), ()), result, strict=False):
            if what and (value is None or isinstance(value, (str, bytes))):
                raise EnvError(f"{name}: {method} must return one number as {what}, not {value!r:.60}")
        return result

    return _shapes(name, method, examined, *arguments)


def _shapes(name: str, method: str, function: Any, *arguments: Any) -> Any:
    return _call(name, method, lambda: jax.eval_shape(function, *arguments))


def _call(name: str, method: str, function: Any, *arguments: Any) -> Any:
    """Calls what somebody else wrote: whatever it raises is an error of the environment."""
    try:
        return function(*arguments)
    except EnvError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(f"{name}: {method} {fails(error)}") from error


def _size(value: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(value))


def _outline(tree: Any) -> str:
    return str(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree))
