"""The library's side of a comparison: its own programs, called chunk by chunk as `rollax train` calls them."""

from __future__ import annotations

import jax
import numpy as np

from rollax.experiment.experiment import Experiment
from rollax.programs.mesh import fetch
from rollax.programs.plan import make_plan
from rollax.tools.bench.settings import Course, Settings


def train(settings: Settings, experiment: Experiment) -> Course:
    """Trains all members of the experiment.  The clock starts when everything is compiled, `evaluate` included."""
    plan = make_plan(experiment)
    programs = plan.program.compile(plan.keys, plan.hparams)
    state, best = programs.init(plan.keys, plan.hparams)
    log = np.int32(plan.log)

    def scores() -> list[float]:
        evaluation, _ = programs.evaluate(state.learner, state.key, state.iteration, best)
        return fetch(evaluation.returns).mean(axis=1).tolist()

    scores()
    course = Course(settings)
    state, rows = programs.warm_up(state, np.int32(plan.warm_up), log)
    for stop in range(plan.evaluation, plan.total + 1, plan.evaluation):
        state, rows = programs.advance(state, np.int32(stop), log)
        jax.block_until_ready(rows)
        course.reached(stop * plan.steps_per_iteration, scores)
    return course
