"""The ring: every sampled window is a real, contiguous piece of one episode; writes are in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_tools import STACK, Frames
from probes import Counter, task
from training_tools import advance, make_program, seed_keys, small, stack_hparams, start

from rollax.envs.protocol import reset_envs, step_envs
from rollax.experiment.experiment import from_json, make_experiment
from rollax.experiment.tree import to_json
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Buffer, Replay, Request, Sample
from rollax.memory.ring import Batch
from rollax.memory.rows import Row, pack, unpack
from rollax.memory.uniform import UniformReplay
from rollax.types import Decision, Discrete, EnvSpec, Observation, Transition

DISCOUNT = 0.9


def asked(batch_size, exponent=1.0, limit=0):
    return Request(batch_size, DISCOUNT, exponent, limit)


def fill(buffer, made, spec, iterations):
    """Yields the buffer's state after each rollout of a probe."""
    state, envs = buffer.init(), reset_envs(made, jax.random.key(0), spec.num_envs)

    @jax.jit
    def iterate(state, envs, key):
        def step(envs, key):
            envs, transition, _ = step_envs(made, envs, Decision(jnp.zeros(spec.num_envs, jnp.int32)), key)
            return envs, transition

        envs, rollout = jax.lax.scan(step, envs, jax.random.split(key, spec.rollout_length))
        return buffer.add(state, rollout), envs

    for number in range(iterations):
        state, envs = iterate(state, envs, jax.random.key(number + 1))
        yield number, state


@pytest.mark.parametrize("kind", [UniformReplay, pytest.param(PrioritizedReplay, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("rollout", "envs", "length", "n", "capacity", "interval", "truncates"),
    [
        (1, 3, 5, 1, 30, 1, True),  # nothing is promised: a spare place for each row
        (1, 3, 5, 1, 30, 5, True),  # a time limit of 5: a spare place for each 5 rows
        (1, 3, 5, 3, 33, 5, True),  # the ring is no multiple of the time limit
        (2, 3, 5, 3, 36, 5, True),  # nor is a block of the rollout length
        (4, 2, 5, 3, 40, 5, True),
        (4, 2, 3, 3, 40, 3, True),  # several truncations in a rollout
        (1, 2, 1, 3, 30, 1, True),  # every step truncates
        (1, 3, 5, 2, 30, 5, False),
        (1, 2, 1, 2, 20, 1, False),  # every step terminates
        (1, 1, 4, 1, 2, 4, True),  # the smallest ring
    ],
)
def test_windows_are_real(kind, rollout, envs, length, n, capacity, interval, truncates):
    """At every fill level and across several wraps, with observations that name their episode and step."""
    made = task(Counter(episode_length=length, truncates=truncates), interval)
    spec = made.spec(envs, rollout)
    assert kind(capacity, n).problems(spec) == []
    buffer = kind(capacity, n).build(spec)
    sample = jax.jit(lambda state, key: buffer.sample(state, key, asked(128)).batch)
    for number, state in fill(buffer, made, spec, 4 * capacity // (envs * rollout) + 8):
        if (number + 1) * rollout <= n:
            continue
        batch: Batch = jax.tree.map(np.asarray, sample(state, jax.random.key(number)))
        episode, start = batch.obs.features.T
        counted = np.minimum(n, length - start)
        reward = sum(np.where(k < counted, DISCOUNT**k * (start + k), 0) for k in range(n))
        np.testing.assert_allclose(batch.reward, reward, rtol=1e-5)
        ends = start + counted >= length
        discount = np.where(ends & (not truncates), 0.0, DISCOUNT**counted)
        np.testing.assert_allclose(batch.discount, discount, rtol=1e-5)
        used = batch.discount > 0
        next_episode, next_start = batch.next_obs.features.T
        np.testing.assert_array_equal(next_episode[used], episode[used])
        np.testing.assert_array_equal(next_start[used], (start + counted)[used])


def test_sampling_is_uniform_over_complete_windows():
    made = task(Counter(episode_length=7), 7)
    spec = made.spec(2, 1)
    buffer = UniformReplay(40, 2).build(spec)
    *_, (_, state) = fill(buffer, made, spec, 33)
    batch = buffer.sample(state, jax.random.key(0), asked(40_000, 0.0)).batch
    _, counts = np.unique(np.asarray(batch.obs.features), axis=0, return_counts=True)
    windows = 2 * (20 - 2)
    assert len(counts) == windows
    expected = 40_000 / windows
    chi_square = np.sum((counts - expected) ** 2 / expected)
    assert chi_square < 35 + 4 * np.sqrt(2 * 35)


def test_each_observation_is_stored_once():
    """A time limit of 500 costs three spare places for each environment; without one, the ring doubles."""
    features = jax.ShapeDtypeStruct((4,), jnp.float32)
    limited = EnvSpec(Observation(features), Discrete(2), 10, 1, truncation_interval=500)
    unlimited = limited._replace(truncation_interval=1)
    once = UniformReplay(10_000).build(limited).init().observations.features
    twice = UniformReplay(10_000).build(unlimited).init().observations.features
    assert once.shape == (10, 1_000 + 3, 4)
    assert twice.shape == (10, 2_000, 4)


def example_rollout(spec, number):
    shape = (spec.rollout_length, spec.num_envs)
    obs = Observation(jnp.full((*shape, 4), number, jnp.float32))
    flags = jnp.zeros(shape, bool)
    return Transition(obs, jnp.zeros(shape, jnp.int32), jnp.ones(shape), flags, flags, obs)


@pytest.mark.parametrize("members", [None, 4])
@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
def test_no_hidden_copy_of_the_ring(kind, members):
    """A scan that adds and samples needs little beside the ring itself, alone and under vmap."""
    spec = EnvSpec(Observation(jax.ShapeDtypeStruct((4,), jnp.float32)), Discrete(2), 8, 1, truncation_interval=500)
    buffer = kind(80_000).build(spec)

    def run(state, numbers):
        def step(state, number):
            state = buffer.add(state, example_rollout(spec, number))
            sample = buffer.sample(state, jax.random.key(number), asked(32, 0.5))
            batch = sample.batch
            state = buffer.reprioritize(state, sample.handle, jnp.abs(batch.reward), 0.5)
            return state, jnp.sum(batch.obs.features) + jnp.sum(batch.next_obs.features) + jnp.sum(batch.reward)

        return jax.lax.scan(step, state, numbers)

    state = jax.eval_shape(buffer.init)
    if members:
        axes = jax.tree.map(lambda x: None if x.ndim == 0 and x.dtype == jnp.int32 else 0, state)
        run = jax.vmap(run, in_axes=(axes, None), out_axes=(axes, 0))
        state = jax.tree.map(
            lambda x: x if x.ndim == 0 and x.dtype == jnp.int32 else jax.ShapeDtypeStruct((members, *x.shape), x.dtype),
            state,
        )
    compiled = jax.jit(run, donate_argnums=0).lower(state, jax.ShapeDtypeStruct((50,), jnp.int32)).compile()
    memory: Any = compiled.memory_analysis()
    ring = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    assert memory.alias_size_in_bytes >= 0.99 * ring
    assert memory.temp_size_in_bytes < 0.05 * ring


def test_packed_steps_come_back():
    row = Row(
        action=jnp.array([0, 5, 2**24 - 1]),
        reward=jnp.array([-1.5, 1e-38, jnp.inf]),
        ending=jnp.array([0, 1, 3]),
        blank=jnp.array([31, 0, 3]),
        filler=jnp.array([False, True, False]),
    )
    for got, put in zip(unpack(pack(row)), row, strict=True):
        np.testing.assert_array_equal(got, put)


def test_problems_show_the_fix():
    spec = EnvSpec(Observation(jax.ShapeDtypeStruct((4,), jnp.float32)), Discrete(2), 16, 2)
    assert UniformReplay(10_000).problems(spec) == [
        "capacity=10000 is not a multiple of num_envs * rollout_length = 32; try capacity=9984"
    ]
    assert "the least is capacity=64" in UniformReplay(32, n_step=3).problems(spec)[0]
    assert UniformReplay(9_984).problems(spec) == []


# -- prioritised


def prioritized(iterations=33, n=2, capacity=40, envs=2, rollout=1):
    made = task(Counter(episode_length=7), 7)
    spec = made.spec(envs, rollout)
    buffer = PrioritizedReplay(capacity, n).build(spec)
    *_, (_, state) = fill(buffer, made, spec, iterations)
    return buffer, state


def leaves_of(state):
    rows = state.ring.steps.shape[1]
    return np.asarray(state.tree.levels[0]).reshape(state.ring.steps.shape[0], -1)[:, :rows]


@pytest.mark.parametrize(("rollout", "n", "capacity"), [(1, 1, 20), (1, 3, 20), (2, 3, 24), (4, 1, 24), (4, 3, 24)])
def test_new_rows_wait_for_their_window_and_then_have_the_largest_weight(rollout, n, capacity):
    made = task(Counter(episode_length=7), 7)
    spec = made.spec(2, rollout)
    buffer = PrioritizedReplay(capacity, n).build(spec)
    rows = capacity // 2
    for number, state in fill(buffer, made, spec, 3 * capacity // rollout):
        added = (number + 1) * rollout
        times = np.arange(max(added - rows, 0), added)
        expected = np.zeros((2, rows))
        expected[:, times[times < added - n] % rows] = 1.0
        np.testing.assert_array_equal(leaves_of(state), expected)


def test_a_new_row_gets_the_largest_weight_so_far():
    buffer, state = prioritized()
    sample = buffer.sample(state, jax.random.key(0), asked(4))
    state = buffer.reprioritize(state, sample.handle, jnp.array([0.1, 9.0, 0.2, 0.3]), 0.5)
    assert float(state.largest) == 3.0
    later = buffer.reprioritize(state, sample.handle, jnp.full(4, 0.1), 0.5)
    state = buffer.add(later, example_counter_rollout(buffer.ring.spec))
    newest = (int(state.ring.added) - 1 - buffer.ring.n_step) % 20
    np.testing.assert_array_equal(leaves_of(state)[:, newest], 3.0)


def example_counter_rollout(spec):
    shape = (spec.rollout_length, spec.num_envs)
    obs = Observation(jnp.zeros((*shape, 2)))
    flags = jnp.zeros(shape, bool)
    return Transition(obs, jnp.zeros(shape, jnp.int32), jnp.ones(shape), flags, flags, obs)


def test_sampling_follows_priorities_and_weights_undo_it():
    """Each window with chance proportional to priority ** exponent; a weighted mean is the plain mean again."""
    buffer, state = prioritized()
    rows = jnp.arange(18) + (int(state.ring.added) - 20)
    env, leaf = jnp.repeat(jnp.arange(2), 18), jnp.tile(rows % 20, 2)
    priority = jnp.linspace(0.1, 4.0, 36)
    state = buffer.reprioritize(state, (env, leaf), priority, 0.5)
    sample = buffer.sample(state, jax.random.key(0), asked(60_000, 1.0))
    chance = np.sqrt(priority) / np.sum(np.sqrt(priority))
    drawn_env, drawn_leaf = map(np.asarray, sample.handle)
    number = drawn_env * 18 + (drawn_leaf - int(rows[0])) % 20
    seen = np.bincount(number, minlength=36)
    chi_square = np.sum((seen - 60_000 * chance) ** 2 / (60_000 * chance))
    assert chi_square < 35 + 4 * np.sqrt(2 * 35)
    weight = (36 * chance) ** -1.0
    np.testing.assert_allclose(sample.weight, weight[number] / weight[number].max(), rtol=1e-4)
    unbiased = np.bincount(number, weights=np.asarray(sample.weight), minlength=36)
    np.testing.assert_allclose(unbiased / unbiased.sum(), 1 / 36, rtol=0.2)
    half = buffer.sample(state, jax.random.key(0), asked(100, 0.5))
    whole = buffer.sample(state, jax.random.key(0), asked(100, 1.0))
    ratio = half.weight**2 / whole.weight
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_uniform_priorities_weigh_the_same():
    buffer, state = prioritized()
    np.testing.assert_allclose(buffer.sample(state, jax.random.key(0), asked(50, 0.7)).weight, 1.0, rtol=1e-5)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("priority", [0.0, np.nan, np.inf, -np.inf, 1e-38, 1e38])
def test_any_priority_is_survived(priority, exponent):
    """After it, draws are still complete windows with finite weights, and other rows can still be drawn."""
    buffer, state = prioritized()
    for number in range(5):
        sample = buffer.sample(state, jax.random.key(number), asked(16, 1.0))
        mixed = jnp.where(jnp.arange(16) % 2 == 0, priority, 0.5)
        state = buffer.reprioritize(state, sample.handle, mixed, exponent)
    assert np.isfinite(leaves_of(state)).all()
    assert np.isfinite(state.largest)
    sample = buffer.sample(state, jax.random.key(9), asked(512, 1.0))
    assert np.isfinite(sample.weight).all()
    assert np.all(np.asarray(sample.weight) > 0)
    _, leaf = sample.handle
    waiting = {(int(state.ring.added) - 1 - age) % 20 for age in range(2)}
    assert not waiting & set(np.asarray(leaf).tolist())
    if not np.isfinite(priority):
        assert float(state.largest) <= 1.0  # an error that is not a number does not raise what new rows get


def test_a_priority_of_all_rows_at_the_limits_sums_up():
    buffer, state = prioritized(iterations=60, capacity=80)
    env, leaf = jnp.repeat(jnp.arange(2), 40), jnp.tile(jnp.arange(40), 2)
    for priority in (1e38, 1e-38):
        full = buffer.reprioritize(state, (env, leaf), jnp.full(80, priority), 1.0)
        sample = buffer.sample(full, jax.random.key(0), asked(64, 1.0))
        np.testing.assert_allclose(sample.weight, 1.0, rtol=1e-4)


# -- stacks of frames, each stored once


def real_stack(features):
    """Checks that stacks `[batch, H, W, stack]` are successive frames of one episode; returns it and the last step."""
    step, low, high = (features[:, row, col].astype(int) - 1 for row, col in ((0, 0), (0, 1), (1, 0)))
    episode, last = (low + 200 * high)[:, -1], step[:, -1]
    for age in range(1, STACK):
        there, own = last >= age, features[..., STACK - 1 - age]
        np.testing.assert_array_equal(own[~there], 0)
        np.testing.assert_array_equal(step[there, STACK - 1 - age], last[there] - age)
        np.testing.assert_array_equal((low + 200 * high)[there, STACK - 1 - age], episode[there])
    return episode, last


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize(
    ("rollout", "envs", "length", "n", "capacity", "interval", "truncates"),
    [
        (1, 2, 5, 1, 30, 1, True),
        (1, 2, 5, 3, 34, 5, True),
        (4, 2, 5, 3, 48, 5, True),
        (2, 1, 7, 2, 18, 7, False),
        (1, 2, 1, 2, 20, 1, True),  # every stack has one frame
    ],
)
def test_stacks_are_rebuilt_from_single_frames(kind, rollout, envs, length, n, capacity, interval, truncates):
    """At every fill level, across wraps and ends of episodes, with frames that name their episode and step."""
    made = task(Frames(episode_length=length, truncates=truncates), interval)
    spec = made.spec(envs, rollout)
    assert kind(capacity, n).problems(spec) == []
    buffer = kind(capacity, n).build(spec)
    assert buffer.ring.empty().observations.features.shape[2:] == (2, 2)
    sample = jax.jit(lambda state, key: buffer.sample(state, key, asked(128)).batch)
    for number, state in fill(buffer, made, spec, 3 * capacity // (envs * rollout) + 8):
        if (number + 1) * rollout <= n:
            continue
        batch: Batch = jax.tree.map(np.asarray, sample(state, jax.random.key(number)))
        episode, start = real_stack(batch.obs.features)
        counted = np.minimum(n, length - start)
        used = batch.discount > 0
        assert used.all() or not truncates
        next_episode, next_start = real_stack(batch.next_obs.features[used])
        np.testing.assert_array_equal(next_episode, episode[used])
        np.testing.assert_array_equal(next_start, (start + counted)[used])


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize(
    ("rollout", "n", "stops"), [(1, 1, (7, 19)), (1, 3, (7, 8, 30)), (4, 3, (3, 9)), (2, 2, (5, 5, 5, 12))]
)
def test_no_window_reaches_over_an_interruption(kind, rollout, n, stops):
    """Episodes are left in the middle: what follows is new, and the observation that was reached is kept."""
    made = task(Frames(episode_length=50), 50)
    spec = made.spec(2, rollout)._replace(restarts=True)
    buffer = kind(2 * rollout * 10, n).build(spec)
    sample = jax.jit(lambda state, key: buffer.sample(state, key, asked(128)).batch)
    interrupt = jax.jit(buffer.interrupt)

    @jax.jit
    def iterate(state, envs):
        def step(envs, _):
            envs, transition, _ = step_envs(made, envs, Decision(jnp.zeros(2, jnp.int32)), jax.random.key(0))
            return envs, transition

        envs, rollouts = jax.lax.scan(step, envs, length=rollout)
        return buffer.add(state, rollouts), envs

    state, envs, episode, reached = buffer.init(), reset_envs(made, jax.random.key(0), 2), 0, set()
    for number in range(40):
        for _ in range(stops.count(number)):  # more than one: nothing happened in between
            state, episode = interrupt(state, envs.obs), episode + 1
            obs, new = jax.vmap(made.env.start)(jnp.full(2, episode))
            envs = envs._replace(obs=Observation(obs), state=new)
        state, envs = iterate(state, envs)
        if (number + 1) * rollout <= n:
            continue
        batch: Batch = jax.tree.map(np.asarray, sample(state, jax.random.key(number)))
        first, start = real_stack(batch.obs.features)
        second, after = real_stack(batch.next_obs.features)
        np.testing.assert_array_equal(first, second)
        steps = after - start
        assert np.all((steps >= 1) & (steps <= n))
        np.testing.assert_allclose(batch.discount, DISCOUNT**steps, rtol=1e-5)
        np.testing.assert_allclose(
            batch.reward, sum((k < steps) * (start + k) % 2 * DISCOUNT**k for k in range(n)), 1e-5
        )
        reached |= set(after[steps < n] if n > 1 else after)
    last = stops[-1] - stops[-2] if len(stops) > 1 else stops[0]
    assert last * rollout in reached, "the last observation before the interruption"


def test_a_limit_draws_from_the_newest_transitions_only():
    """Of a ring that has gone round: the numbers on the transitions tell their age."""
    spec = EnvSpec(Observation(jax.ShapeDtypeStruct((), jnp.float32)), Discrete(2), 2, 1)
    buffer = UniformReplay(capacity=40).build(spec)
    state = buffer.init()
    for number in range(50):
        shown = Observation(jnp.full((1, 2), number, jnp.float32))
        rollout = Transition(
            shown, jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2)), jnp.zeros((1, 2), bool), jnp.zeros((1, 2), bool),
            Observation(shown.features + 1),
        )  # fmt: skip
        state = buffer.add(state, rollout)

    def drawn(limit):
        sample = buffer.sample(state, jax.random.key(0), asked(500, limit=jnp.int32(limit)))
        return set(np.asarray(sample.batch.obs.features))

    assert drawn(0) == set(range(30, 49))
    assert drawn(10) == {44, 45, 46, 47, 48}  # ten transitions are five steps of two environments
    assert drawn(1_000) == drawn(0)
    assert drawn(1) == {48}


# -- of one's own


@dataclass(frozen=True)
class NewestReplay(Replay):
    """The last transitions of all environments, in order: as little as a replay can be."""

    capacity: int = 64

    def build(self, spec):
        return NewestBuffer(self.capacity // spec.num_envs, spec)


@dataclass(frozen=True)
class NewestBuffer(Buffer):
    rows: int
    spec: EnvSpec

    def init(self):
        features = jnp.zeros((self.rows, self.spec.num_envs, *self.spec.observation.features.shape))
        blank = jnp.zeros((self.rows, self.spec.num_envs))
        return Batch(Observation(features), blank.astype(jnp.int32), blank, blank, Observation(features))

    def add(self, state, rollout):
        going_on = 1.0 - rollout.terminated
        new = Batch(rollout.obs, rollout.action, rollout.reward, going_on, rollout.next_obs)
        return jax.tree.map(lambda old, rows: jnp.concatenate([old, rows])[-self.rows :], state, new)

    def interrupt(self, state, obs):
        return state

    def sample(self, state, key, request):
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[-request.batch_size :], state)
        return Sample(flat._replace(discount=flat.discount * request.discount), 1.0, ())


def test_a_replay_of_ones_own_learns():
    """Three methods and `build`; by itself in an experiment, and by its name in the file of one."""
    made = make_experiment("dqn", replay=NewestReplay(capacity=32), preset="none")
    assert from_json(to_json(made)) == made
    program = make_program(task(Counter(), 5), small("dqn", replay=NewestReplay(), batch_size=16))
    before = start(program, seed_keys(0), stack_hparams(1, learning_rate=0.01), warm_up=4)
    after = advance(program, before, 8)
    assert int(after.learner.gradient_steps[0]) == 4
    moved = [
        not np.array_equal(*pair)
        for pair in zip(*(jax.tree.leaves(state.learner.params) for state in (before, after)), strict=True)
    ]
    assert all(moved)
