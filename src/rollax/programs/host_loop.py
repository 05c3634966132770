"""Environments outside JAX as an agent meets them: what they show, rollouts, and the pure pieces of an iteration."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from rollax.agents.base import Agent, Learner, LearningInParts, Lessons, Memory, Progress, Stepwise
from rollax.agents.replaying import Replaying
from rollax.envs.host import HostStep, HostTask, Stepper
from rollax.memory.rows import expand
from rollax.programs.far_replay import FarReplay
from rollax.programs.loop import Loop, TrainState
from rollax.types import Array, Carry, Decision, Key, Metrics, Observation, Transition


class TimeStep(NamedTuple):
    """What all environments of all members show: arrays `[members, B, ...]`."""

    shown: Any
    ended: Any  # whether an episode has just ended, so that this is the next one's
    fresh: Any  # the same as the learner is told, to whom an episode may end sooner


class HostRollout(NamedTuple):
    """A rollout as it was collected: observations and decisions on the device, one by one, the rest from the host."""

    obs: tuple[Observation, ...]  # T of [members, B, ...]
    decisions: tuple[Decision, ...]
    carry: tuple[Carry, ...]  # before each step
    fresh: Any  # [members, T, B], as are rewards and flags
    reward: Any
    terminated: Any
    truncated: Any
    after: TimeStep  # what followed the last step
    cut: Any  # what truncated episodes showed last: [members, B, ...], or of each step [members, T, B, ...]


@dataclass(frozen=True)
class InOnePart(LearningInParts):
    """The learning of an agent that is not `Stepwise`, as a single step."""

    agent: Agent

    @property
    def updates(self) -> int:
        return 1

    def begin(self, learner: Learner, memory: Memory, rollout: Transition, key: Key) -> tuple[Progress, Lessons]:
        return (learner, memory), Lessons(rollout, key[None])

    def step(self, progress: Progress, shared: Transition, own: Key) -> tuple[Progress, Metrics]:
        learner, memory, metrics = self.agent.learn(*progress, shared, own)
        return (learner, memory), metrics

    def conclude(self, progress: Progress, lessons: Lessons, metrics: Metrics) -> tuple[Learner, Memory, Metrics]:
        return *progress, metrics


@dataclass(frozen=True)
class HostLoop(Loop):
    """The pure pieces of an iteration, each of one member."""

    far: bool = False  # the memory is elsewhere

    @functools.cached_property
    def learning_in_parts(self) -> LearningInParts:
        """Who learns, part by part: from a memory, or from what was drawn of one that is elsewhere."""
        if self.far:
            return FarReplay(cast(Replaying, self.agent))
        return self.agent if isinstance(self.agent, Stepwise) else InOnePart(self.agent)

    @property
    def parts(self) -> int:
        """In how many equal parts an iteration's learning is sent to the device: at most one for each step."""
        updates = self.learning_in_parts.updates
        return max(count for count in range(1, self.rollout_length + 1) if updates % count == 0)

    @property
    def one_cut(self) -> bool:
        """Whether no environment can run out of time twice in a rollout."""
        return self.task.truncation_interval >= self.rollout_length

    def act(
        self, learner: Learner, carry: Carry, before: Observation, after: TimeStep, key: Key, *, explore: bool
    ) -> tuple[Observation, Decision]:
        obs = self.task.observe(before, after.shown, after.ended)
        return obs, self.agent.act(learner, carry, obs, after.fresh, key, explore=explore)

    def transitions(self, raw: HostRollout) -> Transition:
        """The rollout `[T, B, ...]` of a member."""
        obs, decision, carry = (
            jax.tree.map(lambda *steps: jnp.stack(steps), *steps) for steps in (raw.obs, raw.decisions, raw.carry)
        )
        last = self.task.observe(raw.obs[-1], raw.after.shown, raw.after.ended)
        next_obs = jax.tree.map(lambda seen, end: jnp.concatenate([seen[1:], end[None]]), obs, last)
        if self.one_cut:
            when = jnp.argmax(raw.truncated, axis=0), jnp.arange(self.num_envs)
            cut_from = jax.tree.map(lambda x: x[when], obs)
            cut = jax.tree.map(lambda x: x[None], self.task.observe(cut_from, raw.cut, jnp.zeros(self.num_envs, bool)))
        else:
            cut = self.task.observe(obs, raw.cut, jnp.zeros(raw.truncated.shape, bool))
        next_obs = jax.tree.map(lambda end, seen: jnp.where(expand(raw.truncated, seen), end, seen), cut, next_obs)
        return Transition(
            obs,
            decision.action,
            raw.reward,
            raw.terminated,
            raw.truncated,
            next_obs,
            decision.notes,
            raw.fresh,
            carry,
        )

    def remember(self, memory: Memory, raw: HostRollout) -> Memory:
        return self.agent.remember(memory, self.transitions(raw))

    def begin(self, learner: Learner, memory: Memory, raw: HostRollout, key: Key) -> tuple[Any, Memory, Any, Metrics]:
        """What learns, the memory, the lessons, and the sums of no metrics yet."""
        (learning, memory), lessons = self.learning_in_parts.begin(learner, memory, self.transitions(raw), key)
        first = jax.tree.map(lambda x: x[0], lessons.each)
        shapes = jax.eval_shape(lambda: self.learning_in_parts.step((learning, memory), lessons.shared, first)[1])
        return learning, memory, lessons, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def part(
        self, learning: Any, memory: Memory, lessons: Lessons, sums: Metrics, number: Array
    ) -> tuple[Any, Memory, Metrics]:
        """One part of the learning."""
        count = self.learning_in_parts.updates // self.parts
        own = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, number * count, count), lessons.each)
        (learning, memory), metrics = jax.lax.scan(
            lambda progress, own: self.learning_in_parts.step(progress, lessons.shared, own), (learning, memory), own
        )
        return learning, memory, jax.tree.map(lambda total, new: total + jnp.sum(new), sums, metrics)

    def learnt(
        self,
        state: TrainState,
        learning: Any,
        memory: Memory,
        lessons: Any,
        sums: Metrics,
        raw: HostRollout,
        episodes: Array,
    ) -> tuple[TrainState, Memory]:
        """The state after all parts, and the memory, or what one that is elsewhere must be told."""
        means = jax.tree.map(lambda total: total / self.learning_in_parts.updates, sums)
        learner, memory, metrics = self.learning_in_parts.conclude((learning, memory), lessons, means)
        return self.conclude(state, learner, self.transitions(raw), metrics, tuple(episodes), learn=True), memory

    def warmed(self, state: TrainState, raw: HostRollout, episodes: Array) -> TrainState:
        """The state after an iteration that has remembered a rollout and not learnt."""
        rollout, metrics = self.transitions(raw), self.no_metrics()
        return self.conclude(state, state.learner, rollout, metrics, tuple(episodes), learn=False)

    def waited(self, state: TrainState, episodes: Array) -> TrainState:
        """The state after an iteration that has only collected."""
        numbers = jnp.concatenate([episodes, jnp.zeros(state.window.shape[-1] - len(episodes))])
        return state._replace(iteration=state.iteration + 1, window=state.window + numbers)


def start(stepper: Stepper, keys: Key, shape: tuple[int, int]) -> TimeStep:
    """Starts all environments with seeds of their own."""
    bits = jax.vmap(lambda key: jax.random.bits(key, (shape[1],)))(keys)
    seeds = (np.asarray(bits).reshape(-1) >> 1).astype(np.int32)  # not negative
    return TimeStep(by_member(stepper.reset(seeds), shape), np.ones(shape, bool), np.ones(shape, bool))


def time_step_after(step: HostStep, shape: tuple[int, int]) -> TimeStep:
    """Where a step has led."""
    ended, fresh = step.ended, step.terminated | step.truncated
    if step.lost is not None:
        ended, fresh = ended | step.lost, fresh | step.lost
    return TimeStep(by_member(step.shown, shape), ended.reshape(shape), fresh.reshape(shape))


def for_all(action: Array) -> np.ndarray:
    """Actions `[members, B, ...]` as the batch of all environments takes them."""
    return np.asarray(action).reshape(-1, *action.shape[2:])


def by_member(tree: Any, shape: tuple[int, int]) -> Any:
    """Arrays `[N, ...]` as `[members, B, ...]`."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), tree)


def shown_shapes(task: HostTask) -> Any:
    """What one environment shows, as shapes."""
    if task.one_hot:
        return jax.ShapeDtypeStruct((), np.int32)
    features = task.observation.features
    if task.stack > 1:
        return jax.ShapeDtypeStruct(features.shape[:-1], features.dtype)
    return features
