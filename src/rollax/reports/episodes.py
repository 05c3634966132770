"""Episodes as scenes: who acts, what happened, and how it ended, whoever looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.pictures import names_and_keys
from rollax.envs.protocol import Task
from rollax.programs.compiling import LIGHT, compiler_options
from rollax.runs.result import Policy
from rollax.types import Discrete, Observation, action_shape


class Move(NamedTuple):
    """What somebody did."""

    name: str  # of the action
    reward: float
    told: list[str]  # what happened, where the environment tells it


class Scene(NamedTuple):
    """A moment at which somebody has to act, or the last one of an episode."""

    state: Any
    obs: Observation
    total: float  # the rewards so far
    steps: int
    move: Move | None = None  # that led here


class Ending(NamedTuple):
    total: float
    steps: int
    terminated: bool
    info: dict[str, Any]
    last: Scene | None = None  # as it ended, where the environment can stay there


def episode(task: Task, choose: Callable[[Scene], Any], seed: int, most: int) -> Iterator[Scene | Ending]:
    """The scenes of one episode and, last, its ending; `choose` may give up with None.

    The step is compiled once, before the first scene.
    """
    key = jax.random.key(seed)
    obs, state = jax.jit(lambda key: strongly_typed(task.reset(key)))(jax.random.fold_in(key, 0))
    kind = action_shape(task.action).dtype
    step = stepping(task, key, state)
    tell = getattr(task.env, "told", None)
    scene, info = Scene(state, obs, 0.0, 0), {}
    while scene.steps < most:
        yield scene
        action = choose(scene)
        if action is None:
            break
        number, action = scene.steps + 1, jnp.asarray(action, kind)
        obs, state, reward, terminated, truncated, info = step(jax.random.fold_in(key, number), scene.state, action)
        reward = float(jnp.sum(reward))
        told = tell(scene.state, int(action), info) if tell else []
        scene = Scene(state, obs, scene.total + reward, number, Move(action_name(task, action), reward, told))
        if bool(terminated) or bool(truncated):
            last = scene if can_stay(task) else None
            yield Ending(scene.total, number, bool(terminated), _plain(info), last)
            return
    yield Ending(scene.total, scene.steps, False, _plain(info))


def can_stay(task: Task) -> bool:
    """Whether an environment can show how an episode ended, where a step would begin the next one."""
    return hasattr(task.env, "step_and_stay")


def stepping(task: Task, key: Any, state: Any) -> Callable[[Any, Any, Any], tuple]:
    """A step of the environment, compiled: from a key, a state and an action to what `step` returns."""
    advance = task.env.step_and_stay if can_stay(task) else task.env.step

    def step(key: Any, state: Any, action: Any) -> tuple:
        raw, *rest = advance(key, state, task.for_environment(action), task.params)
        obs = task.see(raw)
        if task.shows_last:
            obs = task.with_last(obs, action, rest[1])
        return strongly_typed((obs, *rest))

    action = action_shape(task.action, (task.players,) if task.players else ())
    return jax.jit(step).lower(key, state, action).compile(compiler_options(LIGHT))


def strongly_typed(values: Any) -> Any:
    """The same numbers, none of them weakly typed: as an argument such a one would be another type."""

    def strong(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if is_key else jax.lax.convert_element_type(leaf, leaf.dtype)

    return jax.tree.map(strong, values)


def action_name(task: Task, action: Any) -> str:
    """An action as one says it: its name, or its numbers; of several players one after the other."""
    if not isinstance(task.action, Discrete):
        leaves = jax.tree.leaves(task.for_environment(action))
        return ", ".join(f"{number:.3g}" for leaf in leaves for number in np.ravel(np.asarray(leaf)).tolist())
    names = names_and_keys(task)[0]
    return ", ".join(names[index] for index in np.ravel(np.asarray(action)).tolist())


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """The single numbers of an info."""
    return {name: np.asarray(value).item() for name, value in info.items() if getattr(value, "shape", None) == ()}


def player_of(policy: Policy, seed: int) -> Callable[[Scene], np.ndarray]:
    """Who chooses the actions of an episode: the policy, with what it remembers from one scene to the next."""
    carry = policy.start()

    def choose(scene: Scene) -> np.ndarray:
        nonlocal carry
        fresh, draw = scene.steps == 0, seed + scene.steps
        if policy.task.in_turn:
            action, carry = policy.in_turn(carry, scene.state, fresh, draw)
        else:
            action, carry = policy.decide(carry, scene.obs, fresh, draw)
        return action

    return choose


def caption(scene: Scene) -> str:
    """The step, the return, and the action that led here."""
    return f"step {scene.steps}   return {scene.total:.2f}{f'   {scene.move.name}' if scene.move else ''}"
