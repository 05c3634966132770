"""Runs an experiment: in a new folder, or from a checkpoint on, to its end."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from rollax.envs.check import check_before_training
from rollax.errors import ConfigError, NumericError, ResourceError, users_line
from rollax.experiment.experiment import Experiment
from rollax.experiment.tree import to_json
from rollax.programs import cluster
from rollax.programs.agreement import check_agreement
from rollax.programs.background import is_command
from rollax.programs.budget import check_compiled, check_memory
from rollax.programs.debugging import NO_DEBUG, Debug
from rollax.programs.evaluate import Best
from rollax.programs.machine import memory_size, use_compile_cache
from rollax.programs.plan import Plan, check_functions, make_plan
from rollax.programs.program import Running, nbytes
from rollax.programs.shelf import shelf_of
from rollax.runs import checkpoint, tables
from rollax.runs.advancing import Reached, advance, note_saved
from rollax.runs.console import Console
from rollax.runs.files import EVALUATION_COLUMNS
from rollax.runs.folder import RunFolder, unused_folder
from rollax.runs.lock import Lock
from rollax.runs.loggers import Loggers, OnRows
from rollax.runs.loggers import problems as loggers_missing
from rollax.runs.result import Policy, Result, policy_of
from rollax.runs.resuming import check_arrays, check_origin, check_version, chosen_checkpoint, saved_shapes
from rollax.runs.saving import Saver
from rollax.runs.session import (
    Draw,
    Session,
    Times,
    announce,
    answering,
    draw_curve,
    show_members,
    tell_end,
    write_summary,
)
from rollax.runs.signals import Heard, exit_code, signals
from rollax.runs.sources import starting_weights
from rollax.runs.trust import remember
from rollax.tracing import fetch


def train(
    experiment: Experiment,
    run_dir: str | Path | None = None,
    *,
    quiet: bool = False,
    compile_cache: bool = True,
    on_rows: OnRows | None = None,
    debug: Debug = NO_DEBUG,
    draw: Draw | None = None,
) -> Result:
    """Runs an experiment in a new folder.  Whatever is wrong with it is raised before anything is compiled.

    `on_rows(kind, rows)` is told of new rows of metrics.csv ("train") and evaluations.csv ("eval") as they come, and
    ends the run if it returns `STOP`.  `draw` draws the curve at the end.
    """
    if compile_cache:
        use_compile_cache()
    check_agreement(to_json(experiment), debug=debug.plain())
    plan = make_plan(experiment, debug=debug)
    check_extras(plan)
    check_memory(plan)
    check_before_training(plan.program.task, experiment.env)
    if experiment.init_from:
        starting_weights(experiment.init_from, len(plan.members), plan.shapes()[0].learner.params)
    path = run_dir or unused_folder(f"{experiment.agent}_{experiment.env}")
    folder = RunFolder(cluster.from_first(str(path)), writes=cluster.is_first())
    folder.make()
    with debug.modes(), Lock(folder):
        folder.create(to_json(plan.experiment))
        return drive(plan, folder, Console(quiet or not folder.writes), None, {}, on_rows, draw)


def check_extras(plan: Plan) -> None:
    """Raises ConfigError with all that a run needs and that is not there: what is installed, functions of schedules."""
    if missing := plan.program.missing + loggers_missing(plan.experiment.record.log_to):
        raise ConfigError(missing)
    check_functions(plan.experiment)


def resume(
    run_dir: str | Path,
    steps: int | None = None,
    *,
    devices: int | None = None,
    max_memory: str | None = None,
    restart: bool = False,
    quiet: bool = False,
    compile_cache: bool = True,
    on_rows: OnRows | None = None,
    draw: Draw | None = None,
    trust: bool = False,
) -> Result:
    """What `rollax.resume` does, with a function that draws the curve at the end."""
    folder = RunFolder(run_dir, writes=cluster.is_first())
    console = Console(quiet or not folder.writes)
    folder.read_config()
    with Lock(folder):
        experiment = folder.read_experiment(trust=trust)
        folder.repair()
        ended = folder.outcome()
        if ended and not restart and (steps is None or steps <= experiment.steps):
            console.say(f"The run in {folder.path} has {ended['status']} at step {ended['total_steps']:,}.")
            show_members(console, ended)
            folder.look_at_tables()
            return Result(folder.path, 0 if ended["status"] == "finished" else NumericError.exit_code, trust=True)
        if compile_cache:
            use_compile_cache()
        path, meta = chosen_checkpoint(folder, restart=restart)
        if path is not None:
            check_version(path, meta, folder)
        reached = meta.get("step", 0)
        if steps is not None and steps < reached:
            raise ConfigError(f"steps={steps} is less than the {reached} steps that the run has made already")
        if devices is not None:
            experiment = replace(experiment, loop=replace(experiment.loop, devices=devices))
        if max_memory is not None:
            experiment = replace(experiment, loop=replace(experiment.loop, max_memory=max_memory))
        experiment = replace(experiment, steps=steps or experiment.steps)
        check_agreement(to_json(experiment))
        plan = make_plan(experiment, reached)
        check_extras(plan)
        check_memory(plan)
        if path is not None:
            check_origin(path, meta, to_json(plan.experiment))
            check_arrays(path, plan, folder)
        if restart:
            folder.begin_again()
        return drive(plan, folder, console, path, meta, on_rows, draw)


def drive(
    plan: Plan,
    folder: RunFolder,
    console: Console,
    path: Path | None,
    meta: dict[str, Any],
    on_rows: OnRows | None = None,
    draw: Draw | None = None,
) -> Result:
    """From a checkpoint, or from the start, to the end or to the first signal.  The caller holds the folder."""
    step, last = meta.get("step", 0), plan.last_step
    with resources(folder), console.open(), signals() as ear:
        config = to_json(plan.experiment)
        remember(config)
        folder.write_config(config)
        record = plan.experiment.record
        folder.recorded = meta.get("tables", {})
        grids = (record.log_steps, record.eval_steps) if plan.program.on_grid else (1, 1)
        session = Session(
            plan=plan,
            folder=folder,
            console=console,
            metrics=folder.table(folder.metrics, tables.metric_columns(plan), step, grids[0], last),
            evaluations=folder.table(folder.evaluations, EVALUATION_COLUMNS, step, grids[1], last),
            loggers=Loggers(record.log_to, folder, config, step, on_rows, tables.member_settings(plan)),
            times=Times(**meta.get("times", {})),
            saver=Saver(folder, record.checkpoint_seconds, record.keep_checkpoints, nbytes(plan.shapes())),
            saved_step=step,
        )
        announce(session, path.name if path else "")
        write_summary(session, "running", step, None)
        try:
            with ear.at_once():
                running = compile_run(session)
            with closing(running):
                with ear.at_once(), answering(session, ear):
                    state, best = begin(session, running, path)
                if draw is not None and folder.writes and is_command():
                    threading.Thread(target=draw.prepare, daemon=True).start()
                reached = advance(session, running, state, best, ear)
        except Heard as signal:  # before anything was done that a checkpoint does not hold
            reached = Reached(session.saved_step // plan.steps_per_iteration, None, signal.number)
        except BaseException as error:
            session.shelf.forget()
            if not isinstance(error, KeyboardInterrupt):  # a second Ctrl-C waits for nothing
                with suppress(OSError):
                    session.saver.wait()
                    note_saved(session)
            write_summary(session, "interrupted", session.saved_step, None)
            session.loggers.close("interrupted")
            raise
        return finish(session, reached, draw)


def compile_run(session: Session) -> Running:
    plan = session.plan
    hparams = jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), plan.hparams)
    session.shelf = shelf_of(plan.experiment, plan.program.agent, hparams, plan.grid, plan.program.block)
    running = plan.program.on_shelf(session.shelf).compile(plan.keys, plan.hparams)
    check_compiled(plan, running.memory_bytes)
    session.times.compile_seconds += running.compile_seconds
    session.memory_bytes = running.memory_bytes
    session.console.say(
        f"Compiled in {running.compile_seconds:.1f} s; the run takes {memory_size(running.memory_bytes)}."
    )
    if plan.program.opening:
        session.console.wait(plan.program.opening)
    elif session.console.terminal:
        session.console.wait("First steps")
    return running


def begin(session: Session, running: Running, path: Path | None) -> tuple[Any, Best]:
    """The state to go on from: a checkpoint's, or that of a new run."""
    plan = session.plan
    if path is not None:
        with plan.program.restoring():
            restored = checkpoint.restore(path, saved_shapes(plan))
        return plan.program.placed(restored["train"], restored["best"])
    state, best = running.begin(plan.keys, plan.hparams)
    if plan.experiment.init_from:
        params = starting_weights(plan.experiment.init_from, len(plan.members), state.learner.params)
        state = state._replace(learner=plan.program.with_weights(state.learner, params))
    return state, best


def finish(session: Session, reached: Reached, draw: Draw | None) -> Result:
    step = reached.iteration * session.plan.steps_per_iteration
    status, code = outcome_of(session, reached)
    params = None if reached.state is None else fetch(reached.state.learner.params)
    summary = write_summary(session, status, step, params)
    if status != "interrupted" and draw is not None and params is not None and jax.process_count() == 1:
        session.loggers.show(lambda: draw.film(greedy_policy(session.plan, params), session.plan.experiment.env), step)
    session.loggers.close(status)
    if session.folder.writes:
        tell_end(session, status, summary)
        if status != "interrupted" and draw is not None:
            draw_curve(session, draw)
    if jax.process_count() > 1:
        print(f"process {jax.process_index()}: params_sha256 {checkpoint.params_sha256(params)}", flush=True)
    return Result(session.folder.path, code, trust=True)  # what it names has run here


def greedy_policy(plan: Plan, params: Any) -> Policy:
    """What the first member has learnt, as a policy."""
    return policy_of(plan, jax.tree.map(lambda leaf: leaf[0], params), 0)


def outcome_of(session: Session, reached: Reached) -> tuple[str, int]:
    """How a run has ended, and its exit code."""
    if reached.heard and not reached.complete:
        return "interrupted", exit_code(reached.heard)
    if session.failed:
        return "failed", NumericError.exit_code
    return "stopped" if reached.stopped and not reached.complete else "finished", 0


@contextmanager
def resources(folder: RunFolder) -> Generator[None]:
    """What the machine lacks is said in one line."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise ResourceError(f"the device ran out of memory: {str(error).splitlines()[0]}") from error
    except OSError as error:
        if users_line(error):
            raise
        raise ResourceError(f"{folder.path} cannot be written: {error.strerror or error}") from error
