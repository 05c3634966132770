"""Ways of running that look for mistakes.  None of them changes a number; what they find is said in one line."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from rollax.envs.protocol import Step, Task
from rollax.errors import EnvError, NumericError, RollaxError, frames_of, is_ours, short, users_frame
from rollax.experiment.experiment import Experiment
from rollax.programs.background import beside
from rollax.programs.jit import JitProgram, JitRunning
from rollax.programs.loop import WINDOW_COLUMNS, Loop, TrainState
from rollax.programs.program import nbytes
from rollax.programs.shelf import Shelf
from rollax.types import Array, Key, Observation

SITE = "environment"  # how a check of it is known
ENVIRONMENT_CHECKS = checkify.float_checks | checkify.index_checks
CHUNK_CHECKS = checkify.float_checks | checkify.user_checks


@dataclass(frozen=True)
class Debug:
    """What is looked for in a run; each beside the others."""

    check: bool = False  # NaN and division by zero in all of a chunk, indices in the environment: slow
    jit: bool = True  # chunks as compiled programs; else one operation after the other, from Python
    key_reuse: bool = False  # a random key that is used twice
    nans: bool = False  # NaN in the state after a chunk; the line is looked for only then
    leaks: bool = False  # a traced value that outlives its trace
    print_every: int = 0  # iterations between lines from inside the compiled program; 0 for none
    tell: Callable[[str], None] = print  # who is told those lines

    @property
    def rebuilds(self) -> bool:
        """Whether the programs are others than usual."""
        return self.check or not self.jit or self.nans or self.print_every > 0 or self.key_reuse

    def plain(self) -> dict[str, Any]:
        """What is looked for, as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "tell"}

    def problems(self, experiment: Experiment) -> list[str]:
        """Which of these modes do not go together, or with the experiment."""
        found = []
        if self.print_every < 0:
            found.append(f"debug_print={self.print_every} must be at least 1, or 0 for none")
        if not self.jit and (self.check or self.nans):
            found.append("no_jit does not go with check or debug_nans, which run compiled; leave one out")
        if self.rebuilds and experiment.loop.devices > 1:
            found.append(f"devices={experiment.loop.devices}: the debug modes run on one; leave it out")
        return found

    @contextmanager
    def modes(self) -> Generator[None]:
        """A context in which JAX looks as well, for all threads, and what it finds is an error of one line."""
        wanted = {"jax_debug_nans": self.nans, "jax_check_tracer_leaks": self.leaks}
        before = {name: getattr(jax.config, name) for name, on in wanted.items() if on}
        for name in before:
            jax.config.update(name, True)
        try:
            yield
        except RollaxError:
            raise
        except Exception as error:
            explained = self.explained(error)
            if explained is error:
                raise
            raise explained from error
        finally:
            for name, value in before.items():
                jax.config.update(name, value)

    def explained(self, error: Exception) -> Exception:
        """What a mode has found, in one line; any other error as it is."""
        text = str(error)
        if self.leaks and text.startswith("Leaked"):
            kept = re.search(r"is referred to by <(\w+) \d+>(\.\w+)", text)
            where = re.search(r"tracing the function (\S+) at (\S+) for", text)
            what = f"a traced value is kept in {kept[1]}{kept[2]}" if kept else "a traced value outlives its trace"
            place = f", by the time {where[1]} at {short(where[2])} is traced" if where else ""
            return EnvError(f"--check-leaks: {what}{place}; return it instead of keeping it")
        if self.nans and is_nan_error(error):
            return NumericError(
                "--debug-nans: a program returned a NaN, but no operation that made one was found when it ran again"
            )
        return error


NO_DEBUG = Debug()


@dataclass(frozen=True)
class CheckedTask(Task):
    """An environment whose arithmetic and indices are checked, before it is one of a batch.

    JAX cannot check the indices of a batched scatter.  What is found in one environment therefore passes as a check of
    the user's through the transformations around it, with all that tells it apart; `sites` keeps the rest.
    """

    sites: tuple[list, ...] = ([],)

    def reset(self, key: Key) -> tuple[Observation, Any]:
        return self.checked(super().reset, key)

    def step(self, key: Key, state: Any, action: Array) -> Step:
        return self.checked(super().step, key, state, action)

    def checked(self, function: Callable, *arguments: Any) -> Any:
        error, result = checkify.checkify(function, errors=ENVIRONMENT_CHECKS)(*arguments)
        leaves, outline = jax.tree.flatten(error)
        flags = [leaf for leaf in leaves if leaf.dtype == bool]
        (sites,) = self.sites
        sites.append(outline)
        text = f"{SITE} {len(sites) - 1}" + " {}" * len(leaves)
        checkify.check(~jnp.any(jnp.stack(flags)), text, *leaves) if flags else None
        return result

    def cause_of(self, error: Any) -> Any:
        """The exception that a check of the user's stands for."""
        if not str(getattr(error, "fmt_string", "")).startswith(SITE):
            return error
        outline = self.sites[0][int(error.fmt_string.split()[1])]
        return jax.tree.unflatten(outline, error.args).get_exception()


@dataclass(frozen=True)
class DebugProgram(JitProgram):
    """A population's programs that look for mistakes."""

    one_device: ClassVar[str] = "the debug modes run on one device"

    debug: Debug = NO_DEBUG

    def on_shelf(self, shelf: Shelf) -> DebugProgram:
        return self  # what it finds, it finds while it is traced

    def over_members(self, step: Callable[[TrainState], TrainState], state: TrainState) -> Any:
        iterate = super().over_members(step, state)
        if not self.debug.print_every:
            return iterate

        def printing(state: TrainState) -> TrainState:
            after = iterate(state)
            numbers = after.window - state.window

            def tell() -> None:
                jax.debug.callback(self.tell, after.iteration, numbers, ordered=False)

            jax.lax.cond(after.iteration % self.debug.print_every == 0, tell, lambda: None)
            return after

        return printing

    def tell(self, iteration: Any, numbers: Any) -> None:
        """One line of an iteration: its step, and means over the members."""
        names = (*WINDOW_COLUMNS, *self.loop.agent.metric_names)
        sums = dict(zip(names, numbers.sum(axis=0).tolist(), strict=True))
        learnt, episodes = sums["learnt"], sums["episodes"]
        mean = {"return": sums["return_sum"] / episodes} if episodes else {}
        mean |= {name: sums[name] / learnt for name in self.loop.agent.metric_names} if learnt else {}
        step = int(iteration) * self.loop.num_envs * self.loop.rollout_length
        self.debug.tell(f"step {step:,}: " + ", ".join(f"{name} {value:.6g}" for name, value in mean.items()))

    def compile(self, keys: Key, hparams: Any) -> JitRunning:
        debug, started = self.debug, time.perf_counter()
        if debug.key_reuse:
            check_keys(self.loop, keys, hparams)
        if debug.jit and not debug.check and not debug.nans:
            return super().compile(keys, hparams)
        programs = self.uncompiled(keys, hparams)
        temporary = [0]

        def ready(name: str) -> Any:
            compiled = beside(programs[name].compile, programs[name].lower())
            temporary.append(getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0))
            return compiled

        chunks = {}
        for name, learn in (("warm_up", False), ("advance", True)):
            if debug.check:
                chunks[learn] = self.checked_chunk(learn, "--check")
            elif not debug.jit:
                chunks[learn] = self.chunk_from_python(learn)
            else:
                chunks[learn] = self.watched_chunk(ready(name), learn)
        best, playing = programs["evaluate"].arguments[3:5]
        shapes = (programs["advance"].arguments[0], best)
        init, evaluate = ready("init"), ready("evaluate")
        seconds = time.perf_counter() - started
        memory = nbytes(shapes) + max(temporary)
        return JitRunning(
            program=self,
            init=init,
            chunks=chunks,
            judge=lambda: evaluate,
            blank=lambda: self.blank(playing),
            compile_seconds=seconds,
            memory_bytes=memory,
        )

    def chunk_from_python(self, learn: bool) -> Callable:
        def chunk(state: TrainState, stop: Any, log_iterations: Any) -> tuple[TrainState, Array]:
            with jax.disable_jit():
                return self.repeat(state, jnp.int32(stop), jnp.int32(log_iterations), learn=learn)

        return chunk

    def watched_chunk(self, compiled: Callable, learn: bool) -> Callable:
        """A compiled chunk that is run again where it leaves a NaN behind, to find out where that came from."""

        def chunk(*arguments: Any) -> tuple[TrainState, Array]:
            try:
                return compiled(*arguments)  # with `jax_debug_nans` nothing is donated, so the state is still there
            except Exception as error:
                if is_nan_error(error):
                    with jax.debug_nans(False):
                        self.checked_chunk(learn, "--debug-nans")(*arguments)
                raise

        return chunk

    def checked_chunk(self, learn: bool, flag: str) -> Callable:
        """A chunk that raises what it meets first: NumericError, or EnvError for an index."""
        task = self.loop.task
        checked = CheckedTask(**{field.name: getattr(task, field.name) for field in fields(task)}, sites=([],))
        program = replace(self, loop=replace(self.loop, task=checked))
        checks = checkify.user_checks if self.agent.hides_nans else CHUNK_CHECKS

        def repeat(state: TrainState, stop: Array, log_iterations: Array) -> tuple[TrainState, Array]:
            return program.repeat(state, stop, log_iterations, learn=learn)

        run = jax.jit(checkify.checkify(repeat, errors=checks))

        def chunk(state: TrainState, stop: Any, log_iterations: Any) -> tuple[TrainState, Array]:
            error, result = run(state, jnp.int32(stop), jnp.int32(log_iterations))
            if error.get() is None:
                return result
            cause = checked.cause_of(error.get_exception())
            what = str(cause).strip().rstrip(".")
            kind = EnvError if what.startswith("out-of-bounds") else NumericError
            frames = traceback.extract_tb(cause.traceback_info.as_python_traceback())
            raise kind(f"{flag}: {what}{at(frames)}, by iteration {int(result[0].iteration):,}")

        return chunk


def check_keys(loop: Loop, keys: Key, hparams: Any) -> None:
    """Raises RollaxError where a run of one member would use a random key twice.

    JAX's own check, on what is traced of one member: it takes the transposed keys of a population for used ones.
    """
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (keys, hparams))

    def chunk(state: TrainState, learn: bool) -> TrainState:
        return jax.lax.while_loop(
            lambda state: state.iteration < 2, lambda state: loop.iteration(state, learn=learn), state
        )

    with jax.debug_key_reuse(True):
        try:
            state = jax.jit(loop.init).trace(*one).out_info
            for learn in (False, True):
                jax.jit(chunk, static_argnums=1).trace(state, learn)
        except jax.errors.KeyReuseError as error:
            frames = frames_of(error)
            kind = EnvError if users_frame(frames) else RollaxError
            text = str(error).splitlines()[0].rstrip(".:")
            raise kind(f"--debug-key-reuse: {text}{at(frames)}; split the key, and use each part once") from error


def is_nan_error(error: Exception) -> bool:
    """JAX's own, of a jitted function, or of one that was compiled ahead."""
    return isinstance(error, FloatingPointError) or type(error).__name__ == "InternalFloatingPointError"


def at(frames: Iterable[traceback.FrameSummary]) -> str:
    """As in ` at my_env.py:42 (step)`: the innermost line of the user's, else of the library's, else nothing."""
    frames = list(frames)
    inside = [frame for frame in frames if is_ours(frame.filename)]
    inside = [frame for frame in inside if Path(frame.filename) != Path(__file__)]
    frame = users_frame(frames) or (inside[-1] if inside else None)
    return f" at {short(frame.filename)}:{frame.lineno} ({frame.name})" if frame else ""
