"""A population's training run as four compiled programs, each compiled exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.agents.base import Agent, Learner
from rollax.experiment.experiment import Experiment
from rollax.programs.background import crew
from rollax.programs.compiling import NONE, brief, compiler_options, usual
from rollax.programs.draws import rounds_in_a_row
from rollax.programs.evaluate import Best, Evaluation, Evaluator, Playing, blank, in_parts, nothing
from rollax.programs.foresight import temporary_bytes
from rollax.programs.loop import Loop, TrainState
from rollax.programs.mesh import BY_MEMBER, EVERYWHERE, Spread
from rollax.programs.program import (
    LOG_ROWS,
    Chunk,
    Program,
    Running,
    Schedule,
    advance_in_chunks,
    nbytes,
    population_axes,
    replay_problems,
    without_garbage_collection,
)
from rollax.programs.shelf import NO_SHELF, Shelf
from rollax.programs.streams import evaluation_keys
from rollax.types import Array, Key

LITTLE = 2**14  # bytes: more than what agents remember that have no replay


class Uncompiled(NamedTuple):
    """A program that can be traced, lowered and compiled, step by step."""

    function: Any  # under `jit`
    arguments: tuple  # their shapes
    level: dict[str, Any]  # how much a CPU's compiler should try
    hot: bool = False  # whether a run spends its time in it

    def trace(self) -> Any:
        return self.function.trace(*self.arguments)

    def lower(self) -> Any:
        with rounds_in_a_row() if self.hot else nullcontext():
            return self.function.lower(*self.arguments)

    def compile(self, lowered: Any) -> Any:
        return lowered.compile(compiler_options(self.level))


@dataclass
class JitRunning(Running):
    """The four programs, compiled."""

    program: JitProgram
    init: Callable[[Key, Any], tuple[TrainState, Best]]
    chunks: dict[bool, Callable[..., tuple[TrainState, Array]]]  # by whether they learn: no warm-up where there is none
    judge: Callable[[], Callable[..., tuple[Playing, Best]]]  # once it is compiled
    blank: Callable[[], Playing]  # arrays for an evaluation
    compile_seconds: float
    memory_bytes: int

    def begin(self, keys: Key, hparams: Any) -> tuple[TrainState, Best]:
        return self.init(keys, hparams)

    def advance_to(self, state: TrainState, stop: int) -> Chunk:
        def chunk(state: TrainState, stop: Any, log_iterations: Any, *, learn: bool) -> tuple[TrainState, Array]:
            return self.chunks[learn](state, stop, log_iterations)

        loop = self.program.loop
        return advance_in_chunks(chunk, state, stop, self.program.schedule, loop.num_envs * loop.rollout_length)

    def evaluate(self, state: TrainState, best: Best, between: Callable[[], None] = nothing) -> tuple[Evaluation, Best]:
        judge = self.judge()

        def part(playing: Playing, first: Any, stop: Any) -> tuple[Playing, Best]:
            return judge(state.learner, state.key, state.iteration, best, playing, first, stop)

        return in_parts(part, self.blank(), self.program.evaluator.max_episode_steps, between)


@dataclass(frozen=True)
class JitProgram(Program):
    """`jit(vmap(repeat(iteration)))` with donated state.

    The iteration to stop at and the length of a log window are arguments, so one executable
    serves every chunk length, log grid and budget: none of them can change a bit of the result.
    `block` iterations form an inner loop of fixed length, for devices where asking the host after
    each iteration whether to go on would cost as much as the iteration; every stop must then be
    a multiple of it away.  With a `spread`, all of this runs inside `shard_map`: what is said here of members and
    environments is then said of those of one device.
    """

    spread: Spread | None = None
    shelf: Shelf = NO_SHELF  # where its compiled programs are kept

    @classmethod
    def problems(cls, experiment: Experiment) -> list[str]:
        return replay_problems(experiment)

    @classmethod
    def make(cls, experiment: Experiment, agent: Agent, task: Any, block: int, schedule: Schedule) -> JitProgram:
        loop, record = experiment.loop, experiment.record
        evaluator = Evaluator(agent, task, record.eval_episodes, record.max_episode_steps)
        return cls(Loop(agent, task, loop.num_envs, loop.rollout_length), evaluator, block, schedule)

    def shapes(self, keys: Key, hparams: Any) -> tuple[TrainState, Best]:
        return self.spread.shapes if self.spread else super().shapes(keys, hparams)

    def repeat(self, state: TrainState, stop: Array, log_iterations: Array, *, learn: bool) -> tuple[TrainState, Array]:
        """Runs until `iteration == stop`; returns the state and the windows that ended, `[members, LOG_ROWS, ...]`.

        Row `i` is the window that contains iteration `(start // log_iterations + i) * log_iterations`.
        """
        first_row = state.iteration // log_iterations
        members, columns = state.window.shape
        iterate = self.over_members(lambda one: self.loop.iteration(one, learn=learn), state)

        def body(carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
            state, rows = carry
            row = state.iteration // log_iterations - first_row  # a block lies in one window
            state, _ = jax.lax.scan(lambda state, _: (iterate(state), None), state, length=self.block)
            rows = jax.lax.dynamic_update_slice_in_dim(rows, state.window[:, None], row, axis=1)
            ended = state.iteration % log_iterations == 0
            return state._replace(window=jnp.where(ended, 0.0, state.window)), rows

        rows = jnp.zeros((members, LOG_ROWS, columns), jnp.float32)
        return jax.lax.while_loop(lambda carry: carry[0].iteration < stop, body, (state, rows))

    def over_members(self, step: Callable[[TrainState], TrainState], state: TrainState) -> Any:
        """The step of one member for all of those of a state like this one.

        A single one takes it without an axis of length one.  With players who decide one by one the axis would make
        every condition a choice between two results that are both computed; with layer normalisation, sums over
        several axes, which take XLA twice as long on a CPU.  It stays where there is a replay: without it a large one
        is not written in place.
        """
        axes, members = population_axes(state), len(state.window)
        if members > 1 or not (self.loop.task.players or nbytes(state.memory) <= LITTLE):
            return jax.vmap(step, in_axes=(axes,), out_axes=axes)

        def per_member(function: Callable[[Array], Array], state: TrainState) -> TrainState:
            return jax.tree.map(
                lambda axis, leaf: leaf if axis is None else function(leaf),
                axes,
                state,
                is_leaf=lambda axis: axis is None,
            )

        return lambda state: per_member(lambda leaf: leaf[None], step(per_member(lambda leaf: leaf[0], state)))

    def evaluate(
        self, learner: Learner, keys: Key, iteration: Array, best: Best, playing: Playing, first: Array, stop: Array
    ) -> tuple[Playing, Best]:
        """Plays from one step to another with randomness that training never draws, as `Evaluator.part`."""
        return self.evaluator.part(learner, evaluation_keys(keys, iteration), best, playing, first, stop)

    def blank(self, playing: Playing) -> Playing:
        """Arrays to begin an evaluation with, where it has them."""
        return self.spread.place(blank(playing), BY_MEMBER) if self.spread else blank(playing)

    def play(self, learner: Learner, keys: Key) -> Evaluation:
        # A function of its own: some environments have arrays among their parameters, which have no hash.
        compiled = jax.jit(
            lambda learner, keys: self.evaluator(learner, keys),
            compiler_options=compiler_options(usual(costly=self.task.costly)),
        )
        return compiled(learner, keys)

    def restoring(self) -> Any:
        """In the machine's own memory, if it is to be split from there."""
        return jax.default_device(jax.local_devices(backend="cpu")[0]) if self.spread else super().restoring()

    def on_shelf(self, shelf: Shelf) -> JitProgram:
        return replace(self, shelf=shelf)

    def placed(self, state: TrainState, best: Best) -> tuple[TrainState, Best]:
        if self.spread is None:
            return state, best
        return self.spread.place((state, best), self.spread.specs)

    def with_weights(self, learner: Learner, params: Any) -> Learner:
        if self.spread is None:
            return super().with_weights(learner, params)
        specs = self.spread.specs[0].learner
        adopt = self.spread_out(jax.vmap(self.loop.agent.with_weights), (specs, BY_MEMBER), specs)
        return adopt(learner, self.spread.place(params, BY_MEMBER))

    def spread_out(self, function: Callable, in_specs: tuple, out_specs: Any, **options: Any) -> Any:
        """The function compiled for the mesh, if there is one."""
        if self.spread is None:
            return jax.jit(function, **options)
        # Without `check_vma`, which would add up the gradients of all shards by itself.
        mapped = jax.shard_map(function, mesh=self.spread.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        shardings = {
            "in_shardings": self.spread.sharding(in_specs),
            "out_shardings": self.spread.sharding(out_specs),
        }
        return jax.jit(mapped, **shardings, **options)

    def uncompiled(self, keys: Key, hparams: Any) -> dict[str, Uncompiled]:
        """The four programs by name, nothing traced yet."""
        state, best = self.shapes(keys, hparams)
        number = jax.ShapeDtypeStruct((), jnp.int32)
        state_specs, best_specs, learner_specs = EVERYWHERE, EVERYWHERE, EVERYWHERE
        if self.spread:
            state_specs, best_specs = self.spread.specs
            learner_specs = state_specs.learner
        chunk_specs = ((state_specs, EVERYWHERE, EVERYWHERE), (state_specs, BY_MEMBER))

        def warm_up(state: TrainState, stop: Array, log_iterations: Array) -> tuple[TrainState, Array]:
            return self.repeat(state, stop, log_iterations, learn=False)

        def advance(state: TrainState, stop: Array, log_iterations: Array) -> tuple[TrainState, Array]:
            return self.repeat(state, stop, log_iterations, learn=True)

        chunk, costly = (state, number, number), self.loop.task.costly
        level = usual(costly=costly)
        playing = jax.eval_shape(lambda keys: self.evaluator.begin(evaluation_keys(keys, jnp.int32(0))), state.key)
        judged = (learner_specs, BY_MEMBER, EVERYWHERE, best_specs, BY_MEMBER, EVERYWHERE, EVERYWHERE)
        return {
            "init": Uncompiled(
                self.spread_out(self.init, (BY_MEMBER, BY_MEMBER), (state_specs, best_specs)), (keys, hparams), NONE
            ),
            "warm_up": Uncompiled(
                self.spread_out(warm_up, *chunk_specs, donate_argnums=0), chunk, brief(costly=costly)
            ),
            "advance": Uncompiled(self.spread_out(advance, *chunk_specs, donate_argnums=0), chunk, level, hot=True),
            "evaluate": Uncompiled(
                self.spread_out(self.evaluate, judged, (BY_MEMBER, best_specs), donate_argnums=4),
                (state.learner, state.key, number, best, playing, number, number),
                level,
            ),
        }

    def state_bytes(self, shapes: tuple[TrainState, Best]) -> int:
        if self.spread is None or jax.default_backend() == "cpu":
            return nbytes(shapes)
        return self.spread.share_bytes(shapes)

    def temporary_bytes(self, keys: Key, hparams: Any) -> dict[str, int]:
        programs = self.uncompiled(keys, hparams)
        beside = {name: temporary_bytes(programs[name].trace().jaxpr.jaxpr) for name in ("advance", "evaluate")}
        *_, playing, _, _ = programs["evaluate"].arguments
        return beside | {"evaluate": beside["evaluate"] + nbytes(playing)}

    def compile(self, keys: Key, hparams: Any) -> JitRunning:
        """All programs that a run needs, compiled side by side; `evaluate`, the last, while the others run already."""
        started = time.perf_counter()
        programs = self.uncompiled(keys, hparams)
        (state, number, _), (best, playing) = programs["advance"].arguments, programs["evaluate"].arguments[3:5]
        chunks = {True: "advance"} | ({False: "warm_up"} if self.schedule.warm_up else {})
        results = dict.fromkeys(chunks.values(), (state, number)) | {"init": (state, best)}
        devices = list(self.spread.mesh.devices.flat) if self.spread else jax.devices()[:1]
        with crew() as submit:
            loading = {
                name: submit(self.shelf.load, name, devices, programs[name].arguments, result)
                for name, result in (results | {"evaluate": (playing, best)}).items()
            }

            def compiled(name: str, lowered: Any) -> Any:
                return self.shelf.compiled(name, lambda: programs[name].compile(lowered))

            with without_garbage_collection():
                making = {
                    name: loading[name] if loading[name].result() else submit(compiled, name, programs[name].lower())
                    for name in results
                }
                needed: dict[str, Any] = {name: program.result() for name, program in making.items()}
            evaluate = submit(
                lambda: loading["evaluate"].result() or compiled("evaluate", programs["evaluate"].lower())
            )
        sizes = [found.temp_size_in_bytes for program in needed.values() if (found := program.memory_analysis())]
        begin = needed["init"]
        return JitRunning(
            program=self,
            init=lambda *arguments: begin(*(self.spread.place(arguments, BY_MEMBER) if self.spread else arguments)),
            chunks={learn: needed[name] for learn, name in chunks.items()},
            judge=evaluate.result,
            blank=lambda: self.blank(playing),
            compile_seconds=time.perf_counter() - started,
            memory_bytes=nbytes((state, best)) + max(sizes),
        )
