"""When a run is evaluated, and that a signal may come before it is done."""

from __future__ import annotations

from typing import Any

from rollax.programs import cluster
from rollax.programs.evaluate import Best
from rollax.programs.program import Running
from rollax.runs import tables
from rollax.runs.session import Session, answering, finite_scores
from rollax.runs.signals import Ear, Heard


def evaluation_owed(session: Session, iteration: int) -> bool:
    """Whether the run stands where it is evaluated, and that has not been done."""
    schedule, unit = session.plan.schedule, session.plan.steps_per_iteration
    due = iteration % schedule.evaluation == 0 and schedule.warm_up < iteration
    due = due or 0 < schedule.total <= iteration
    (done,) = cluster.agree(session.evaluations.last_step >= iteration * unit)  # the first process alone has the rows
    return due and not done and len(session.failed) < len(session.plan.members)


def evaluate(session: Session, running: Running, state: Any, best: Best, ear: Ear) -> tuple[Best, int]:
    """Evaluates and logs it; returns the best weights, and the signal for which it was given up."""
    try:
        with ear.at_once(), answering(session, ear):
            result, best = running.evaluate(state, best, ear.together)
    except Heard as signal:
        return best, signal.number
    step = int(state.iteration) * session.plan.steps_per_iteration
    rows = tables.evaluation_rows(session.plan, result, step, session.failed)
    session.add_evaluations(finite_scores(session, rows))
    return best, 0
