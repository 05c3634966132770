"""Any Gymnasium environment, by its id: `gymnasium:CartPole-v1`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from rollax.envs.actions import for_environment, space_of
from rollax.envs.examined import Examined, Facts, Leaf, gymnasium_for, leaves_of, made, put, settle
from rollax.envs.host import OPENING_SECONDS, HostConfig, HostEnvs, HostStep, HostTask, timed
from rollax.envs.names import ATARI, GYMNASIUM
from rollax.envs.pool import STARTING_SECONDS, Pool, Restarts, facts_in_a_process
from rollax.errors import ConfigError
from rollax.settings import COUNT_OR_NONE, setting
from rollax.types import Observation, Space

Actions = Callable[[np.ndarray], list]  # of a batch, as each environment takes its own


@dataclass(frozen=True)
class GymnasiumWorld(HostConfig):
    """How environments of Gymnasium are stepped."""

    vectorization: Literal["sync", "async"] = setting(
        "sync", "Whether environments are stepped one after the other or each in a process of its own."
    )
    least_time: int = setting(
        0,
        "Fewest steps of an episode that a time limit cuts; 0 takes the registered limit.",
        limit=COUNT_OR_NONE,
        rare=True,
    )
    env_restarts: int = setting(
        3,
        "Number of times that environments in processes of their own are restarted, in all, when one dies or hangs.",
        limit=COUNT_OR_NONE,
        rare=True,
        resumable=True,
        incidental=True,
    )
    check_space: bool = setting(
        True, "End the run where an observation is outside the bounds of its observation_space.", rare=True
    )

    def task(self, name: str) -> HostTask:
        gymnasium = gymnasium_for(name)
        if name.startswith(f"{GYMNASIUM}{ATARI}"):
            raise ConfigError(f"env={name!r}: Atari's games have names of their own: {name.removeprefix(GYMNASIUM)}")
        facts = self.facts(name)
        space, seen = facts.action_space, facts.observation_space
        spoken = space_of(name, space)
        if spoken is None:
            raise ConfigError(f"env={name!r} has actions {space}; rollax knows choices, numbers, and several of them")
        leaves = list(leaves_of(name, seen))
        states = int(seen.n) if isinstance(seen, gymnasium.spaces.Discrete) else 0
        if states:
            features: Any = jax.ShapeDtypeStruct((states,), np.float32)
        else:
            features = tree_of(seen)([jax.ShapeDtypeStruct(leaf.shape, leaf.kept) for leaf in leaves])
        actions = actions_for(spoken, space)
        apart, restarts = self.vectorization == "async", Restarts(self.env_restarts)
        # What a batch may take beside the step itself: each restart is a new process, and an environment made anew.
        anew = STARTING_SECONDS + 2 * self.env_seconds + OPENING_SECONDS
        return HostTask(
            name=name,
            open=lambda count: self.batch(name, count, facts, leaves, actions, restarts),
            observation=Observation(features),
            action=spoken,
            truncation_interval=self.least_time or max(1, facts.time_limit or 1),
            one_hot=states,
            seconds=self.env_seconds,
            patience=(1 + self.env_restarts) * anew if apart else 0.0,
            camera=(lambda: GymnasiumCamera(name, actions_for(spoken, space)))
            if "rgb_array" in facts.render_modes
            else None,
            pictures_per_second=facts.render_fps,
        )

    def facts(self, name: str) -> Facts:
        """What the environment says of itself: one is made, where others will be, and closed."""
        if self.vectorization == "async":
            return facts_in_a_process(name, self.env_seconds)
        limit = self.env_seconds + OPENING_SECONDS
        single: Examined = timed(name, "make", limit, lambda: Examined(name))
        facts = timed(name, "observation_space", limit, single.facts)
        timed(name, "close", limit, single.close)
        return facts

    def batch(
        self, name: str, count: int, facts: Facts, leaves: list[Leaf], actions: Actions, restarts: Restarts
    ) -> HostEnvs:
        tree = tree_of(facts.observation_space)
        if self.vectorization == "async":
            arguments = (leaves, tree, actions, self.env_seconds, restarts, self.check_space)
            return Pool(name, count, *arguments)
        return InTurn([Examined(name) for _ in range(count)], leaves, tree, actions, self.check_space)


class InTurn:
    """Environments in this process, stepped one after the other."""

    def __init__(self, envs: list[Examined], leaves: list[Leaf], tree: Callable, actions: Actions, bounded: bool):
        self.envs, self.leaves, self.tree = envs, leaves, tree
        self.actions, self.bounded = actions, bounded

    def reset(self, seeds: np.ndarray) -> Any:
        shown = self.rows()
        for number, env in enumerate(self.envs):
            put(shown, number, env.reset(int(seeds[number])))
        settle(self.leaves, shown, "reset", self.bounded)
        return self.tree(shown)

    def step(self, action: np.ndarray) -> HostStep:
        shown, last, count = self.rows(), None, len(self.envs)
        reward = np.zeros(count, np.float32)
        terminated, truncated, ended = (np.zeros(count, bool) for _ in range(3))
        actions = self.actions(action)
        for number, env in enumerate(self.envs):
            outcome = env.step(actions[number])
            put(shown, number, outcome.shown)
            reward[number] = outcome.reward
            if outcome.last is not None:
                last = self.rows() if last is None else last
                put(last, number, outcome.last)
                terminated[number], truncated[number], ended[number] = outcome.terminated, outcome.truncated, True
        settle(self.leaves, shown, "step", self.bounded)
        if last is not None:
            ends = [rows[ended] for rows in last]
            settle(self.leaves, ends, "step", self.bounded)
            for rows, own in zip(last, ends, strict=True):
                rows[ended] = own
        return HostStep(
            self.tree(shown), reward, terminated, truncated, ended, None if last is None else self.tree(last)
        )

    def rows(self) -> list[np.ndarray]:
        return [np.zeros((len(self.envs), *leaf.shape), leaf.kept) for leaf in self.leaves]

    def close(self) -> None:
        for env in self.envs:
            env.close()


class GymnasiumCamera:
    """One environment of Gymnasium that shows how it is drawn."""

    def __init__(self, name: str, actions: Actions):
        self.name, self.actions = name, actions
        self.env = made(name, lambda: gymnasium_for(name).make(name.removeprefix(GYMNASIUM), render_mode="rgb_array"))

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        self.env.reset(seed=int(seeds[0]))
        return self.picture()

    def step(self, action: np.ndarray) -> HostStep:
        _, reward, terminated, truncated, _ = self.env.step(self.actions(action)[0])
        flags = (np.array([flag]) for flag in (terminated, truncated, terminated or truncated))
        return HostStep(self.picture(), np.array([reward], np.float32), *flags)

    def picture(self) -> np.ndarray:
        return made(self.name, self.env.render)[None]

    def close(self) -> None:
        self.env.close()


def actions_for(spoken: Space, space: Any) -> Actions:
    """From actions `[N, ...]` of an agent to those of so many environments, with Gymnasium's spaces."""

    def outline(space: Any) -> Any:
        """The first choice of each part: Gymnasium may count from any number."""
        inner = getattr(space, "spaces", None)
        if inner is None:
            return np.asarray(getattr(space, "start", 0), space.dtype)
        if hasattr(inner, "keys"):
            return {key: outline(inner[key]) for key in inner}
        return tuple(map(outline, inner))

    starts = outline(space)

    def actions(action: np.ndarray) -> list:
        whole = jax.tree.map(
            lambda first, part: (part + first).astype(first.dtype), starts, for_environment(spoken, action)
        )
        if isinstance(whole, np.ndarray):
            return list(whole)
        return [jax.tree.map(lambda part, number=number: part[number], whole) for number in range(len(action))]

    return actions


def tree_of(space: Any) -> Callable[[list], Any]:
    """From the arrays of an observation, in their order, to the observation."""

    def outline(space: Any) -> Any:
        inner = getattr(space, "spaces", None)
        if inner is None:
            return 0
        keys = inner.keys() if hasattr(inner, "keys") else range(len(inner))
        parts = {key: outline(inner[key]) for key in keys}
        return parts if hasattr(inner, "keys") else tuple(parts.values())

    structure = jax.tree.structure(outline(space))
    return lambda leaves: jax.tree.unflatten(structure, leaves)
