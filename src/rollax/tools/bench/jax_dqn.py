"""The library's side of a comparison: its own programs, called chunk by chunk as `rollax train` calls them."""

from __future__ import annotations

import jax

from rollax.experiment.experiment import Experiment
from rollax.programs.plan import make_plan
from rollax.tools.bench.settings import Course, Settings
from rollax.tracing import fetch


def train(settings: Settings, experiment: Experiment) -> Course:
    """Trains all members of the experiment.  The clock starts when everything is compiled, `evaluate` included."""
    plan = make_plan(experiment)
    running = plan.program.compile(plan.keys, plan.hparams)
    state, best = running.begin(plan.keys, plan.hparams)

    def scores() -> list[float]:
        evaluation, _ = running.evaluate(state, best)
        return fetch(evaluation.returns).mean(axis=1).tolist()

    scores()
    course = Course(settings)
    for stop in range(plan.schedule.evaluation, plan.schedule.total + 1, plan.schedule.evaluation):
        state = jax.block_until_ready(running.advance_to(state, stop).state)
        course.reached(stop * plan.steps_per_iteration, scores)
    return course
