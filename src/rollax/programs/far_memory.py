"""A replay in the machine's own memory, while the learner is on an accelerator.

What an iteration learns from is drawn before its first gradient step, and priorities are told after its last: between
the two, memory and learner need nothing of each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.agents.base import Learner, Memory, own_axes
from rollax.agents.dqn import DQN
from rollax.memory.replay import Sample
from rollax.programs.host_pieces import (
    HostLoop,
    Pieces,
    Raw,
    Source,
    common_sources,
    compile_all,
    memory_sources,
    shapes_of,
)
from rollax.programs.loop import TrainState
from rollax.programs.program import nbytes, population_axes
from rollax.types import Array, Key, Metrics


class Lessons(NamedTuple):
    """What an iteration learns from: leaves lead with its gradient steps."""

    samples: Sample
    keys: Key
    epsilon: Array


class Student(NamedTuple):
    """Who learns, and how wrong it was: `[steps, batch]`."""

    learner: Learner
    priorities: Array


class FarReplay:
    """The pieces of an iteration of one member that touch only one side, for an agent that learns from a replay."""

    def __init__(self, agent: DQN):
        self.agent = agent

    def light(self, learner: Learner) -> Learner:
        """What drawing needs of a learner."""
        return learner._replace(params=(), target_params=(), opt_state=())

    # -- where the memory is

    def draw(self, learner: Learner, memory: Memory, key: Key) -> Lessons:
        """All samples of an iteration, with a learner that is `light`."""
        keys = self.agent.step_keys(key)
        return Lessons(self.agent.draw_all(learner, memory, keys.draw), keys.loss, self.agent.epsilon(learner))

    # -- where the learner is

    def begin(self, learner: Learner) -> tuple[Student, Metrics]:
        priorities = jnp.zeros((self.agent.updates, self.agent.config.batch_size))
        return Student(learner, priorities), {"loss": jnp.float32(0)}

    def part(
        self, student: Student, lessons: Lessons, sums: Metrics, first: Array, count: int
    ) -> tuple[Student, Metrics]:
        """So many gradient steps from that one on."""

        def one(carry: tuple[Student, Metrics], index: Array) -> tuple[tuple[Student, Metrics], None]:
            student, sums = carry
            sample, key = jax.tree.map(lambda x: x[index], (lessons.samples, lessons.keys))
            learner, priority, metrics = self.agent.improve(student.learner, sample, key)
            student = Student(learner, student.priorities.at[index].set(priority))
            return (student, jax.tree.map(jnp.add, sums, metrics)), None

        return jax.lax.scan(one, (student, sums), first + jnp.arange(count))[0]


def far_pieces(loop: HostLoop, state: TrainState, device: Any) -> tuple[Pieces, int]:
    """The pieces of a run whose memory is on that device, and the bytes that they need beside the state."""
    if not isinstance(loop.agent, DQN):
        raise TypeError("only an agent with a replay can have it elsewhere")
    shapes, replay, near = shapes_of(loop, state), FarReplay(loop.agent), jax.devices()[0]
    memory, axes, slim_axes = shapes.memory, own_axes(shapes.memory), population_axes(shapes.slim)
    count = loop.agent.updates // loop.parts
    light = jax.eval_shape(replay.light, shapes.learner)
    draw = jax.vmap(replay.draw, in_axes=(0, axes, 0))
    lessons = jax.eval_shape(draw, light, memory, shapes.key)
    begin = jax.vmap(replay.begin)
    student, sums = jax.eval_shape(begin, shapes.learner)

    def part(student: Student, lessons: Lessons, sums: Metrics, number: Array) -> tuple[Student, Metrics]:
        return replay.part(student, lessons, sums, number * count, count)

    def learnt(state: TrainState, learner: Any, epsilon: Array, sums: Metrics, raw: Raw, episodes: Array) -> TrainState:
        means = jax.tree.map(lambda total: total / loop.agent.updates, sums)
        metrics = {**means, "epsilon": epsilon}
        return loop.conclude(state, learner, loop.transitions(raw), metrics, tuple(episodes), learn=True)

    settle = jax.vmap(loop.agent.settle_all, in_axes=(0, axes, 0, 0), out_axes=axes)
    handles = lessons.samples.handle
    programs, temporary = compile_all(
        {
            **common_sources(loop, shapes),
            **memory_sources(loop, shapes, device),
            "draw": Source(draw, (light, memory, shapes.key), (), device),
            "settle": Source(settle, (light.hparams, memory, handles, student.priorities), (1,), device),
            "begin": Source(begin, (shapes.learner,)),
            "part": Source(jax.vmap(part, in_axes=(0, 0, 0, None)), (student, lessons, sums, shapes.number)),
            "learnt": Source(
                jax.vmap(learnt, in_axes=(slim_axes, 0, 0, 0, 0, 0), out_axes=slim_axes),
                (shapes.slim, shapes.learner, lessons.epsilon, sums, shapes.raw, shapes.episodes),
            ),
        }
    )

    def away(tree: Any) -> Any:
        return jax.device_put(tree, device)

    def begin_iteration(learner: Any, memory: Any, raw: Raw, key: Key) -> tuple:
        drawn = programs["draw"](away(replay.light(learner)), memory, away(key))
        student, sums = programs["begin"](learner)
        return student, memory, jax.device_put(drawn, near), sums

    def one_part(student: Student, memory: Any, lessons: Lessons, sums: Metrics, number: Any) -> tuple:
        student, sums = programs["part"](student, lessons, sums, number)
        return student, memory, sums

    def end_iteration(
        slim: TrainState, student: Student, memory: Any, lessons: Lessons, sums: Metrics, raw: Raw, episodes: Any
    ) -> tuple:
        new = programs["learnt"](slim, student.learner, lessons.epsilon, sums, raw, episodes)
        told = away((student.learner.hparams, lessons.samples.handle, student.priorities))
        return new, programs["settle"](told[0], memory, *told[1:])

    pieces = Pieces(
        keys=programs["keys"],
        act=programs["act"],
        remember=lambda memory, raw: programs["remember"](memory, away(raw)),
        begin=begin_iteration,
        part=one_part,
        learnt=end_iteration,
        warmed=programs["warmed"],
        waited=programs["waited"],
        interrupt=lambda memory, obs: programs["interrupt"](memory, away(obs)),
    )
    return pieces, temporary + 2 * nbytes((shapes.raw.obs, lessons))
