"""Environments in JAX that do one thing wrong in one call: `faulty_jax:step_done_two` and others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from probes import Probe


class Bounds:
    shape = (2,)
    low, high = jnp.array([0.0, 0.0]), jnp.array([1.0, 5.0])


class Five(Probe):
    """The older protocol."""

    done: Any = staticmethod(lambda done: done)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        return obs, state, reward, self.done(terminated | truncated), info


def wrong(call: str, change: Any, base: type = Probe, **more: Any) -> Any:
    """What makes a probe of five steps whose answers to one call are changed."""

    def changed(self: Any, *arguments: Any) -> Any:
        answer = getattr(base, call)(self, *arguments)
        return change(*answer) if isinstance(answer, tuple) else change(answer)

    cut = more.pop("truncates", False)
    return lambda: type("Wrong", (base,), {call: changed, **more})(episode_length=5, truncates=cut)


def five(done: Any) -> Any:
    return lambda: type("Wrong", (Five,), {"done": staticmethod(done)})()


def space(self: Any, params: Any) -> Any:
    return Bounds


def in_the_end(change: Any) -> Any:
    """A change of the last observation alone."""

    def change_last(obs: Any, state: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> Any:
        final = info["final_observation"]
        other = jnp.where(terminated | truncated, change(final), final)
        return obs, state, reward, terminated, truncated, {"final_observation": other}

    return change_last


# A name, what makes it, and what is said of it.
FAULTS: dict[str, tuple[Any, str]] = {
    "reset_returns_none": (wrong("reset", lambda obs, state: None), "reset must return 2 values"),
    "reset_returns_one": (wrong("reset", lambda obs, state: (obs,)), "reset must return 2 values; it returns 1"),
    "reset_none": (wrong("reset", lambda obs, state: (None, state)), "reset must return an observation"),
    "reset_text": (wrong("reset", lambda obs, state: ("x", state)), "reset fails with TypeError"),
    "reset_shape": (wrong("reset", lambda obs, state: (obs[:1], state)), "differ in shape or dtype"),
    "step_returns_none": (wrong("step", lambda *six: None), "step must return 5 or 6 values; it returns None"),
    "step_returns_four": (wrong("step", lambda *six: six[:4]), "step must return 5 or 6 values; it returns 4"),
    "step_none": (wrong("step", lambda obs, *rest: (None, *rest)), "differ in shape or dtype"),
    "step_shape": (wrong("step", lambda obs, *rest: (obs[:1], *rest)), "differ in shape or dtype"),
    "step_dtype": (wrong("step", lambda obs, *rest: (obs.astype(int), *rest)), "differ in shape or dtype"),
    "reward_text": (wrong("step", lambda o, s, r, *rest: (o, s, "1.5", *rest)), "one number as reward, not '1.5'"),
    "reward_none": (wrong("step", lambda o, s, r, *rest: (o, s, None, *rest)), "one number as reward, not None"),
    "reward_vector": (wrong("reward", lambda r: jnp.ones(2)), "one number as reward"),
    "reward_flag": (wrong("reward", lambda r: r > 0), "the reward is bool, not a number"),
    "done_two": (wrong("step", lambda o, s, r, t, *rest: (o, s, r, 2, *rest)), "terminated is int32, not bool"),
    "done_none": (
        wrong("step", lambda o, s, r, t, *rest: (o, s, r, None, *rest)),
        "as terminated, not None",
    ),
    "five_done_two": (
        five(lambda done: 2),
        "done is int32, not bool",
    ),
    "five_done_none": (
        five(lambda done: None),
        "as done, not None",
    ),
    "no_final": (wrong("step", lambda *six: (*six[:5], {})), "true last observation"),
    "final_shape": (wrong("step", lambda *six: (*six[:5], {"final_observation": six[0][:1]})), "differ in shape"),
    "promise_of_text": (
        wrong("reward", lambda r: r, truncation_interval="many"),
        "must be a whole number",
    ),
    "promise_broken": (wrong("reward", lambda r: r, truncation_interval=9, truncates=True), "cut after 5 steps"),
    "promise_far": (wrong("reward", lambda r: r, truncation_interval=900, truncates=True), "cut after 5 steps"),
    "outside": (wrong("observe", lambda obs: obs + 7, observation_space=space), "is not in observation_space"),
    "final_outside": (
        wrong("step", in_the_end(lambda obs: obs + 7), observation_space=space),
        "is not in observation_space",
    ),
}
# What a run finds by its numbers, with exit code 4.
NOT_FINITE: dict[str, tuple[Any, str]] = {
    "final_nan": (wrong("step", in_the_end(lambda obs: obs * jnp.nan)), "not finite"),
    "reset_nan": (wrong("reset", lambda obs, state: (obs * jnp.nan, state)), "not finite"),
    "reward_nan": (wrong("reward", lambda r: r * jnp.nan), "not finite"),
}
globals().update({name: make for name, (make, _) in (FAULTS | NOT_FINITE).items()})


class Exact(Probe):
    """Nothing is wrong with it, though compiled and not it differs in the last bit."""

    def observe(self, state: Any) -> Any:
        flag = state["flag"]
        return jnp.stack([jnp.sin(flag + 0.3) * 0.7 + jnp.exp(flag * 1.7) / 3.3, state["time"] / 7.0])


def exact() -> Any:
    return Exact(episode_length=5)


class Sticking(Probe):
    """After 500 steps it never answers again; it says so first, by a file that the variable STUCK names."""

    def reward(self, state: Any, action: Any) -> Any:
        late = state["time"] > 500
        jax.debug.callback(say_stuck, late)
        return jax.lax.while_loop(lambda number: late & (number >= 0), lambda number: (number + 1) % 7, 1.0)


def say_stuck(late: Any) -> None:
    if late:
        Path(os.environ["STUCK"]).touch()


def sticking() -> Any:
    return Sticking(episode_length=100_000)
