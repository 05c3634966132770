"""Environments of other shapes, brought to the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from rollax.envs.base import Task
from rollax.errors import ConfigError, EnvError
from rollax.types import Array, Key, Observation


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
    """A `Task` from any environment of the six-value or the five-value protocol with discrete actions."""
    num_actions = _num_actions(env, params, name)
    key = jax.eval_shape(lambda: jax.random.key(0))
    raw, state = _shapes(name, "reset", env.reset, key, params)
    action = jax.ShapeDtypeStruct((), jnp.int32)
    stepped = _shapes(name, "step", env.step, key, state, action, params)
    if len(stepped) == 5:
        env = FiveValues(env)
        stepped = _shapes(name, "step", env.step, key, state, action, params)
    if len(stepped) != 6 or "final_observation" not in stepped[5]:
        raise EnvError(
            f"{name}: step must return (obs, state, reward, terminated, truncated, info) with "
            f'info["final_observation"], or the older five values; it returns {len(stepped)} values'
        )
    if jax.tree.map(lambda x: (x.shape, x.dtype), (raw, state)) != jax.tree.map(
        lambda x: (x.shape, x.dtype), tuple(stepped[:2])
    ):
        raise EnvError(
            f"{name}: reset and step disagree on the shape or dtype of the observation or state: "
            f"{_brief((raw, state))} and {_brief(tuple(stepped[:2]))}"
        )
    task = Task(env, params, Observation(None), num_actions, _one_hot(env, params), _truncation_interval(env, params))
    observation = jax.eval_shape(task.observe, raw)
    if observation.legal is not None and observation.legal.shape != (num_actions,):
        raise EnvError(f"{name}: the mask of legal actions has shape {observation.legal.shape}, not ({num_actions},)")
    return Task(env, params, observation, num_actions, task.one_hot, task.truncation_interval)


def _num_actions(env: Any, params: Any, name: str) -> int:
    space = env.action_space(params) if hasattr(env, "action_space") else None
    if space is not None and not hasattr(space, "n"):
        raise ConfigError(
            f"env={name!r} has no discrete actions ({space!r}); rollax trains agents with discrete actions"
        )
    count = int(space.n) if space is not None else int(getattr(env, "num_actions", 0))
    if count < 1:
        raise EnvError(f"{name}: an environment needs `num_actions` or `action_space(params).n`")
    return count


def _one_hot(env: Any, params: Any) -> int:
    space = env.observation_space(params) if hasattr(env, "observation_space") else None
    return int(getattr(space, "n", 0))


def _truncation_interval(env: Any, params: Any) -> int:
    """Gymnax's time limit is exact: an episode that it cuts has `max_steps_in_episode` steps."""
    if hasattr(env, "truncation_interval"):
        return max(1, int(env.truncation_interval))
    owner = getattr(type(env), "is_truncated", None)
    inherited = owner is not None and owner.__module__ == "gymnax.environments.environment"
    limit = getattr(params, "max_steps_in_episode", None)
    return max(1, int(limit)) if inherited and limit is not None else 1


def _shapes(name: str, method: str, function: Any, *arguments: Any) -> Any:
    try:
        return jax.eval_shape(function, *arguments)
    except EnvError:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()
        raise EnvError(f"{name}: {method} fails with {type(error).__name__}: {first[0] if first else ''}") from error


def _brief(tree: Any) -> str:
    return str(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree))
