"""PQN's own pieces: its targets, its minibatches, its gradient."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Counter, Masked, task
from training_tools import make_program, seed_keys, small, stack_hparams, start

from rollax.agents.pqn import Lesson
from rollax.rules.policies import mask_illegal

COUNTER = task(Counter(), 5)
LATE = task(Counter(truncates=True), 5)
MASKED = task(Masked(truncates=True), 3)


@cache
def collected(made, rollout_length=6, num_envs=4, **changes):
    """An agent, its learner, and a rollout that it made."""
    program = make_program(made, small("pqn", **changes), num_envs, rollout_length)
    state = start(program, seed_keys(0), stack_hparams(1, "pqn", epsilon_start=0.5), warm_up=1)
    state = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, state)
    _, rollout, _ = program.loop.collect(state.learner, state.envs, jax.random.key(3))
    return program.loop.agent, state.learner, rollout


@pytest.mark.parametrize(("made", "rollout_length"), [(LATE, 3), (LATE, 6), (MASKED, 3), (COUNTER, 6)])
def test_next_values_are_those_of_the_true_successors(made, rollout_length):
    """Also where a time limit ended the episode, and whether or not the values that `act` noted are used."""
    agent, learner, rollout = collected(made, rollout_length)
    got = agent.next_values(learner.params, rollout, jax.random.key(0))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.next_obs)
    values = jnp.max(mask_illegal(agent.returns(learner.params, flat).mean(), flat.legal), axis=-1).reshape(got.shape)
    used = ~np.asarray(rollout.terminated)
    np.testing.assert_allclose(np.asarray(got)[used], np.asarray(values)[used], rtol=1e-4, atol=1e-4)


def test_truncations_are_met_in_that_test():
    *_, rollout = collected(LATE, 3)
    assert np.asarray(rollout.truncated).any()


def test_the_loss_of_a_lesson_by_hand():
    agent, learner, rollout = collected(COUNTER)
    lesson = Lesson(*(jax.tree.map(lambda x: x[0], part) for part in (rollout.obs, rollout.action, rollout.reward)))
    _, metrics = agent.step((learner, ()), (lesson, None), (jnp.arange(4), jax.random.key(0)))
    loss = metrics["loss"]
    values = np.asarray(agent.returns(learner.params, lesson.obs).mean())
    taken = values[np.arange(4), np.asarray(lesson.action)]
    np.testing.assert_allclose(loss, 0.5 * np.mean((taken - np.asarray(lesson.target)) ** 2), rtol=1e-5)


@pytest.mark.parametrize("made", [LATE, MASKED])
def test_the_loss_is_that_against_the_lambda_returns_of_true_successors(made):
    """Off by one step anywhere between the rollout and the loss, the two would differ."""
    agent, learner, rollout = collected(made, minibatches=1, epochs=1)
    still = learner._replace(hparams=learner.hparams.replace(learning_rate=jnp.float32(0)))
    _, _, metrics = agent.learn(still, (), rollout, jax.random.key(1))

    def values(obs):
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), obs)
        return agent.returns(learner.params, flat).mean(), flat.legal

    following, legal = values(rollout.next_obs)
    best = np.asarray(jnp.max(mask_illegal(following, legal), axis=-1)).reshape(6, 4)
    now = np.asarray(values(rollout.obs)[0]).reshape(6, 4, -1)
    terminated, truncated = np.asarray(rollout.terminated), np.asarray(rollout.truncated)
    hp = learner.hparams
    losses = []
    for env in range(4):
        later = None
        for step in reversed(range(6)):
            cut = later is None or truncated[step, env]
            ahead = best[step, env] if cut else (1 - hp.trace_lambda) * best[step, env] + hp.trace_lambda * later
            later = rollout.reward[step, env] + (0.0 if terminated[step, env] else hp.discount * ahead)
            losses.append(0.5 * (now[step, env, int(rollout.action[step, env])] - later) ** 2)
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-4)


def test_every_step_is_learnt_from_once_in_each_epoch():
    """Minibatches that cover the rollout: their mean loss, with a learning rate of 0, is the whole rollout's."""
    agent, learner, rollout = collected(COUNTER, minibatches=3)
    still = learner._replace(hparams=learner.hparams.replace(learning_rate=jnp.float32(0)))
    _, _, metrics = agent.learn(still, (), rollout, jax.random.key(1))
    whole = replace(agent, config=replace(agent.config, minibatches=1, epochs=1))
    _, _, expected = whole.learn(still, (), rollout, jax.random.key(2))
    np.testing.assert_allclose(metrics["loss"], expected["loss"], rtol=1e-4)


def test_gradient_steps_are_counted_and_schedules_follow_environment_steps():
    agent, learner, rollout = collected(COUNTER, minibatches=3, epochs=4)
    after, _, _ = agent.learn(learner, (), rollout, jax.random.key(1))
    assert int(after.gradient_steps) == 12
    assert float(agent.env_steps(after)) == 24


def test_minibatches_that_do_not_divide_are_refused_with_the_fix():
    spec = COUNTER.spec(4, 6)
    assert small("pqn", minibatches=5).problems(spec) == [
        "minibatches=5 does not divide num_envs * rollout_length = 24; try minibatches=4"
    ]
    assert small("pqn", minibatches=6).problems(spec) == []
