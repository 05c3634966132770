"""Environments outside JAX: the same learning as inside, in parts, overlapped, resumed; and what fails is named."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_tools import Frames, host_program, host_task
from training_tools import LOG, make_program, seed_keys, small, stack_hparams, start

from rollax.envs.adapters import to_task
from rollax.errors import EnvError

SHAPES = {"double": (4, 1, 6), "rainbow": (4, 2, 6), "pqn": (4, 8, 0), "ppo": (4, 8, 0)}


def run_outside(name, world, *, overlap, stops, interval=1, members=2, options=None, **changes):
    options = options or {}
    num_envs, length, warm_up = SHAPES[name]
    program = host_program(
        host_task(world, interval), small(name, **changes), num_envs, length, overlap=overlap, **options
    )
    keys, hparams = seed_keys(*range(members)), stack_hparams(members, name)
    running = program.compile(keys, hparams)
    state, _ = running.begin(keys, hparams)
    if warm_up:
        state, _ = running.repeat(state, jnp.int32(warm_up), LOG, learn=False)
    for stop in stops:
        state, rows = running.repeat(state, jnp.int32(warm_up + stop), LOG, learn=True)
    running.close()
    return state, rows


@pytest.mark.parametrize(
    ("name", "truncates", "interval"),
    [
        ("double", True, 1),
        pytest.param("pqn", True, 5, marks=pytest.mark.thorough),
        pytest.param("ppo", False, 8, marks=pytest.mark.thorough),
    ],
)
def test_an_environment_outside_learns_the_same_as_inside(name, truncates, interval):
    """Weights, and the log's sums of returns, lengths and losses."""
    num_envs, length, warm_up = SHAPES[name]
    world = Frames(truncates=truncates)
    outside, rows = run_outside(name, world, overlap=False, stops=[5], interval=interval)
    inside_task = to_task(world, None, "Frames")
    program = make_program(inside_task, small(name), num_envs, length)
    keys, hparams = seed_keys(0, 1), stack_hparams(2, name)
    inside = start(program, keys, hparams, warm_up)
    inside, inside_rows = jax.jit(lambda state: program.repeat(state, jnp.int32(warm_up + 5), LOG, learn=True))(inside)
    for ours, theirs in zip(*map(jax.tree.leaves, (outside.learner.params, inside.learner.params)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    # The means of a few policies' differences, such as the KL, magnify how the two programs round.
    np.testing.assert_allclose(rows[:, 0], inside_rows[:, 0], rtol=3e-3, atol=1e-4)
    assert rows[0, 0, 0] > 0, "episodes have ended"


@pytest.mark.parametrize("name", [pytest.param("rainbow", marks=pytest.mark.thorough), "double", "pqn"])
def test_stops_do_not_change_a_bit(name):
    """With overlap, where a rollout is always waiting: in one call, or in three."""
    whole, _ = run_outside(name, Frames(), overlap=True, stops=[9])
    pieces, _ = run_outside(name, Frames(), overlap=True, stops=[1, 4, 9])
    for one, other in zip(*map(jax.tree.leaves, (whole.learner, pieces.learner)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(np.asarray(whole.learner.gradient_steps)[0]) > 0


@pytest.mark.parametrize(("name", "steps"), [("double", 3), pytest.param("rainbow", 1, marks=pytest.mark.thorough)])
def test_a_memory_elsewhere_is_the_same(name, steps):
    """Drawn before the iteration's steps and told after them: the same, where no priority comes in between."""
    there = {"memory_device": jax.devices("cpu")[0]}
    near, rows = run_outside(name, Frames(), overlap=True, stops=[6], gradient_steps=steps)
    far, far_rows = run_outside(name, Frames(), overlap=True, stops=[6], gradient_steps=steps, options=there)
    for one, other in zip(*map(jax.tree.leaves, (near.learner.params, far.learner.params)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    for one, other in zip(*map(jax.tree.leaves, (near.memory, far.memory)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)
    np.testing.assert_allclose(rows, far_rows, rtol=1e-3)


def test_who_acts_is_one_rollout_behind():
    """With overlap as many rollouts are learnt from, less the one that waits."""
    behind, _ = run_outside("pqn", Frames(), overlap=True, stops=[9])
    level, _ = run_outside("pqn", Frames(), overlap=False, stops=[8])
    np.testing.assert_array_equal(behind.learner.gradient_steps, level.learner.gradient_steps)


@pytest.mark.parametrize("overlap", [True, False])
def test_a_state_shows_what_its_memory_led_to(overlap):
    """After a resume that is the last observation before the interruption: one step after the newest row."""
    state, _ = run_outside("double", Frames(episode_length=50), overlap=overlap, stops=[3], interval=50, members=1)
    added = int(state.memory.added)
    newest_row = np.asarray(state.memory.observations.features)[0, 0, added - 1, 0, 0]
    assert np.asarray(state.envs.obs.features)[0, 0, 0, 0, -1] == newest_row + 1


def test_an_episode_that_is_cut_too_soon_is_noticed():
    """A promise of 9 steps between time limits, kept for 5: the ring would mix up their last frames."""
    with pytest.raises(EnvError, match="cut an episode after 5 steps, but promises 9; say so with --least-time 5"):
        run_outside("pqn", Frames(), overlap=True, stops=[3], interval=9)


@pytest.mark.parametrize(
    ("how", "seconds", "told"), [("raise", 600.0, "on fire"), ("hang", 2.0, "has not answered for 2 s")]
)
def test_an_environment_that_breaks_ends_the_run_in_time(how, seconds, told):
    task = host_task(Frames(), seconds=seconds, breaks=30, how=how)
    program = host_program(task, small("pqn"), 4, 8)
    keys, hparams = seed_keys(0), stack_hparams(1, "pqn")
    running = program.compile(keys, hparams)
    state, _ = running.begin(keys, hparams)
    with pytest.raises(EnvError, match=f"Frames.*{told}"):
        running.advance_to(state, 50)
    still = {thread.name for thread in threading.enumerate()}
    assert how == "raise" or "stepper of Frames" in still, "the run has not waited for what hangs"


LOSSES = {
    "once": {21: (2,)},
    "at first": {1: (0,)},
    "twice": {20: (1,), 22: (0, 3)},
    "often": {9: (1,), 23: (1,), 40: (1,)},
}


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("losses", LOSSES)
def test_a_lost_episode_leaves_no_step_that_never_was(losses, overlap):
    """Every window of the ring leads to the step after it in its own episode, whichever environments were lost."""
    loses, num_envs, length, stack = LOSSES[losses], 4, 4, 3
    task = host_task(Frames(episode_length=7), interval=7, loses=loses)
    config = small("double", gradient_steps=1)
    program: Any = host_program(task, config, num_envs, length, overlap=overlap)
    keys, hparams = seed_keys(0), stack_hparams(1, "double")
    running = program.compile(keys, hparams)
    state, _ = running.begin(keys, hparams)
    state, rows = running.repeat(state, jnp.int32(12), LOG, learn=False)
    running.close()
    ring, memory = program.agent.buffer.ring, jax.tree.map(lambda x: x if x.ndim == 0 else x[0], state.memory)
    oldest, starts = (int(x) for x in ring.window_starts(memory))
    env, time = (x.reshape(-1) for x in np.meshgrid(np.arange(num_envs), np.arange(oldest, oldest + starts)))
    batch = jax.jit(lambda memory: ring.windows(memory, jnp.asarray(env), jnp.asarray(time), 0.9))(memory)
    now, then = (np.asarray(obs.features)[..., -1].astype(int) for obs in (batch.obs, batch.next_obs))
    assert stack == batch.obs.features.shape[-1]
    np.testing.assert_array_equal(then[:, 0, 0], now[:, 0, 0] + 1)  # the step
    np.testing.assert_array_equal(then[:, 0, 1], now[:, 0, 1])  # the episode
    assert len({tuple(frame.reshape(-1)) for frame in now}) > 10
    lost = sum(map(len, loses.values()))
    assert running.discarded == (lost if losses != "twice" else lost + num_envs)
    assert (rows[:, 0, 2] == 7 * rows[:, 0, 0]).all(), "no lost episode is counted"


def test_a_lost_episode_is_played_again_in_an_evaluation():
    program = host_program(host_task(Frames(), loses={3: (1,)}), small("pqn"), 4, 8)
    keys, hparams = seed_keys(0), stack_hparams(1, "pqn")
    learner = jax.jit(program.init)(keys, hparams)[0].learner
    result = program.play(learner, keys)
    np.testing.assert_array_equal(result.lengths, 5)
    assert result.truncated.all()


def test_evaluations_count_each_environment_once():
    program = host_program(host_task(Frames(truncates=True)), small("pqn"), 4, 8)
    keys, hparams = seed_keys(0, 1), stack_hparams(2, "pqn")
    learner = jax.jit(program.init)(keys, hparams)[0].learner
    result = program.play(learner, keys)
    assert result.returns.shape == (2, 4)
    np.testing.assert_array_equal(result.lengths, 5)
    assert result.truncated.all()
