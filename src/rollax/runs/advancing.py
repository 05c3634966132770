"""Chunks, logs, evaluations, checkpoints.  The only file with a training `while`."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import jax

from rollax import __version__
from rollax.experiment.tree import to_json
from rollax.programs import cluster
from rollax.programs.agreement import check_weights
from rollax.programs.evaluate import Best
from rollax.programs.plan import Plan
from rollax.programs.program import Running
from rollax.runs import checkpoint, tables
from rollax.runs.evaluating import evaluate, evaluation_owed
from rollax.runs.session import Session, answering, note_failures, show_progress, tell_concerns, write_summary
from rollax.runs.signals import GRACE_SECONDS, Ear, Heard
from rollax.tracing import fetch


class Reached(NamedTuple):
    """How far a run has come, which is saved."""

    iteration: int
    state: Any  # None where what was done since the last checkpoint has been given up
    heard: int = 0  # the signal that ended it
    complete: bool = False  # it was evaluated at its end, too
    stopped: bool = False  # a function of the user's has asked for its end


def advance(session: Session, running: Running, state: Any, best: Best, ear: Ear) -> Reached:
    """Runs chunk after chunk, to the end, to the first signal, or until a function of the user's asks for the end.

    What depends on a clock, a signal or such a function is agreed on, so that several processes go the same way.
    """
    plan, schedule = session.plan, session.plan.schedule
    iteration = int(state.iteration)
    saved = iteration if iteration else -1
    session.saver.start()
    pace: dict[bool, float] = {}  # seconds of an iteration, while warming up and while learning
    note_failures(session, state)
    (heard,) = cluster.agree(ear.first)
    stopped = False
    owed = evaluation_owed(session, iteration)  # a signal came before it was done
    if owed and not heard:
        best, heard = evaluate(session, running, state, best, ear)
        owed, saved = bool(heard), -1
    while iteration < schedule.total and not heard and not stopped and len(session.failed) < len(plan.members):
        learning = iteration >= schedule.warm_up
        stop = next_stop(plan, iteration, pace.get(learning))
        began, began_wall = time.perf_counter(), session.wall()
        try:
            with giving_up(session, ear, max(pace.values(), default=None)):
                chunk = running.advance_to(state, stop)
        except Heard as signal:
            heard = signal.number
            break
        except Exception:
            if not (ear.first and plan.program.waits_for_others):
                raise
            heard = ear.first  # what breaks while others are left in the middle of something breaks for that
            break
        state = chunk.state
        spent, due, heard = cluster.agree(time.perf_counter() - began, session.saver.is_due(), ear.first)
        session.times.train_seconds += spent
        pace[learning] = spent / max(chunk.reached - iteration, 1)
        note_failures(session, state)
        rows = tables.metric_rows(plan, chunk, iteration, (began_wall, began_wall + spent), session.failed)
        session.add_metrics(rows)
        tell_concerns(session, rows)
        before, iteration = iteration, chunk.reached
        step = iteration * plan.steps_per_iteration
        crossed = iteration // schedule.evaluation > before // schedule.evaluation
        owed = iteration >= schedule.total or (crossed and iteration > schedule.warm_up)
        if owed and not heard:
            best, heard = evaluate(session, running, state, best, ear)
            owed = bool(heard)
        stopped = bool(cluster.agree(session.loggers.asked_to_stop)[0])
        show_progress(session, iteration, pace[learning])
        note_saved(session)
        if due:
            save(session, state, best, step, wait=False)
            saved = iteration
            (heard,) = cluster.agree(heard or ear.first)
        else:
            session.metrics.write_if_due()
            session.evaluations.write_if_due()
    if any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):  # given up in the middle of a chunk
        session.saver.wait()
        note_saved(session)
        return Reached(session.saved_step // plan.steps_per_iteration, None, int(heard))
    if saved != iteration:
        save(session, state, best, iteration * plan.steps_per_iteration, wait=True)
    session.saver.wait()
    note_saved(session)
    return Reached(iteration, state, int(heard), iteration >= schedule.total and not owed, stopped)


def giving_up(session: Session, ear: Ear, pace: float | None) -> Any:
    """A context for a chunk: whether, and how soon after a signal, it is given up.

    In JAX only if it does not return.  The first, in which others are started, at once: little is lost by it.
    """
    if not session.plan.program.waits_for_others:
        return answering(session, ear)
    return ear.at_once() if pace is None else ear.within(max(GRACE_SECONDS, 2 * pace))


def next_stop(plan: Plan, iteration: int, pace: float | None) -> int:
    """The iteration at which the next chunk ends: after about `chunk_seconds`, or where something must happen."""
    schedule, block = plan.schedule, plan.program.block
    length = plan.program.first_chunk if pace is None else int(plan.experiment.record.chunk_seconds / pace)
    boundaries = [
        iteration + max(1, length // block) * block,
        schedule.total,
        (iteration // schedule.evaluation + 1) * schedule.evaluation,
    ]
    if iteration < schedule.warm_up:
        boundaries.append(schedule.warm_up)
    return min(boundaries)


def save(session: Session, state: Any, best: Best, step: int, *, wait: bool) -> None:
    """A checkpoint, complete on return if it is to wait; what the tables hold up to its step is on disk before it.

    All processes must have the same.
    """
    plan = session.plan
    if jax.process_count() > 1:
        check_weights(checkpoint.params_sha256(fetch(state.learner.params)), step)
    session.metrics.write()
    session.evaluations.write()
    times = replace(session.times, wall_seconds=session.wall())
    meta = {"rollax": __version__, "step": step, "config": to_json(plan.experiment), "times": asdict(times)}
    meta["tables"] = session.recorded()
    session.saver.save(step, {"train": state, "best": best}, meta, wait=wait)
    note_saved(session)


def note_saved(session: Session) -> None:
    """Says in the summary how far the run is saved, where that has changed."""
    saved = session.saver.saved_step
    if saved is not None and saved != session.saved_step:
        session.saved_step = saved
        write_summary(session, "running", saved, None)
