"""Evaluations draw from keys that training never draws from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_tools import Frames, host_program, host_task
from probes import Constant, task
from training_tools import make_program, seed_keys, small, stack_hparams

from rollax.experiment.experiment import make_experiment
from rollax.programs.evaluate import Evaluator
from rollax.programs.host_evaluate import HostEvaluator
from rollax.programs.plan import make_plan
from rollax.programs.streams import evaluation_keys

ITERATIONS = 50


def words(keys):
    return {tuple(row) for row in np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()}


def evaluated_with(program, state, best, keys, iteration):
    """The keys `[members]` that a program's evaluation after that iteration plays with."""
    met = []

    class Notes:
        def part(self, learner, keys, *_):
            met.append(keys)

    nothing: Any = None
    zero = jnp.int32(0)
    replace(program, evaluator=Notes()).evaluate(state.learner, keys, jnp.int32(iteration), best, nothing, zero, zero)
    (one,) = met
    return one


def test_an_evaluation_meets_no_key_of_the_training():
    """Not the members' own, not an iteration's, before or after it, to the last that can be counted."""
    program, keys = make_program(task(Constant()), small("dqn")), seed_keys(0, 1)
    state, best = program.init(keys, stack_hparams(2))

    def iteration_keys(iteration):
        """What an iteration's keys are split from, and what they are."""
        own = jax.vmap(lambda key: jax.random.fold_in(key, iteration))(keys)
        return words(own) | words(jax.vmap(jax.random.split)(own))

    # What is compared is what the loop draws from.
    one = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, state)
    for iteration in (0, 7):
        drawn = program.loop.keys(one._replace(key=keys[0], iteration=jnp.int32(iteration)))
        assert set().union(*map(words, drawn)) <= iteration_keys(iteration)
    training = words(keys).union(*(iteration_keys(number) for number in (*range(ITERATIONS), 2**31 - 1)))
    evaluations = [
        words(evaluated_with(program, state, best, keys, iteration)) for iteration in (*range(ITERATIONS), 2**31 - 1)
    ]
    assert not training & set().union(*evaluations)
    assert len(set().union(*evaluations)) == 2 * len(evaluations), "and none twice"


class Met(Exception):
    """An evaluation has begun, with these keys."""


def caught_at(place, action):
    """The keys that an evaluator's method is called with; nothing is played."""

    def play(self, learner, keys, *_):
        raise Met(keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place[0], place[1], play)
        with pytest.raises(Met) as caught:
            action()
    return words(caught.value.args[0])


def test_evaluations_outside_jax_have_keys_of_their_own_too():
    program = host_program(host_task(Frames()), small("dqn"), 2, 1, overlap=False)
    keys, hparams = seed_keys(0), stack_hparams(1)
    running = program.compile(keys, hparams)
    state, best = running.begin(keys, hparams)
    met = caught_at((HostEvaluator, "play"), lambda: running.evaluate(state, best))
    running.close()
    assert met == words(evaluation_keys(state.key, jnp.int32(0)))


def test_evaluations_with_actors_have_keys_of_their_own_too():
    plan = make_plan(
        make_experiment("apex", preset="none", num_envs=4, hidden=(8,), capacity=400, warm_up_steps=80, actors=2)
    )
    running = plan.program.compile(plan.keys, plan.hparams)
    state, best = running.begin(plan.keys, plan.hparams)
    zero, nothing = jnp.int32(0), cast(Any, None)
    arguments = (state.learner, state.key, jnp.int32(7), best, nothing, zero, zero)
    met = caught_at((Evaluator, "part"), lambda: cast(Any, running).judged(*arguments))
    assert met == words(evaluation_keys(state.key, jnp.int32(7)))
