"""The ring: every sampled window is a real, contiguous piece of one episode; writes are in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Counter, task

from rollax.envs.base import reset_envs, step_envs
from rollax.replay import Batch, UniformReplay, pack, unpack
from rollax.types import EnvSpec, Observation, Transition

DISCOUNT = 0.9


def fill(replay, made, spec, iterations):
    """Yields the replay's state after each rollout of a probe."""
    state, envs = replay.init(spec), reset_envs(made, jax.random.key(0), spec.num_envs)

    @jax.jit
    def iterate(state, envs, key):
        def step(envs, key):
            envs, transition, _ = step_envs(made, envs, jnp.zeros(spec.num_envs, jnp.int32), (), key)
            return envs, transition

        envs, rollout = jax.lax.scan(step, envs, jax.random.split(key, spec.rollout_length))
        return replay.add(state, rollout, spec), envs

    for number in range(iterations):
        state, envs = iterate(state, envs, jax.random.key(number + 1))
        yield number, state


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
def test_windows_are_real(rollout, envs, length, n, capacity, interval, truncates):
    """At every fill level and across several wraps, with observations that name their episode and step."""
    made = task(Counter(episode_length=length, truncates=truncates), interval)
    spec = made.spec(envs, rollout)
    replay = UniformReplay(capacity, n)
    assert replay.problems(spec) == []
    sample = jax.jit(lambda state, key: replay.sample(state, key, 128, DISCOUNT, spec))
    for number, state in fill(replay, made, spec, 4 * capacity // (envs * rollout) + 8):
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
    replay = UniformReplay(40, 2)
    *_, (_, state) = fill(replay, made, spec, 33)
    batch = replay.sample(state, jax.random.key(0), 40_000, DISCOUNT, spec)
    _, counts = np.unique(np.asarray(batch.obs.features), axis=0, return_counts=True)
    windows = 2 * (20 - 2)
    assert len(counts) == windows
    expected = 40_000 / windows
    chi_square = np.sum((counts - expected) ** 2 / expected)
    assert chi_square < 35 + 4 * np.sqrt(2 * 35)


def test_each_observation_is_stored_once():
    """A time limit of 500 costs two spare places for each environment; without one, the ring doubles."""
    features = jax.ShapeDtypeStruct((4,), jnp.float32)
    limited = EnvSpec(Observation(features), 2, 10, 1, truncation_interval=500)
    unlimited = limited._replace(truncation_interval=1)
    once = UniformReplay(10_000).init(limited).observations.features
    twice = UniformReplay(10_000).init(unlimited).observations.features
    assert once.shape == (10, 1_000 + 3, 4)
    assert twice.shape == (10, 2_000, 4)


def example_rollout(spec, number):
    shape = (spec.rollout_length, spec.num_envs)
    obs = Observation(jnp.full((*shape, 4), number, jnp.float32))
    flags = jnp.zeros(shape, bool)
    return Transition(obs, jnp.zeros(shape, jnp.int32), jnp.ones(shape), flags, flags, obs)


@pytest.mark.parametrize("members", [None, 4])
def test_no_hidden_copy_of_the_ring(members):
    """A scan that adds and samples needs little beside the ring itself, alone and under vmap."""
    spec = EnvSpec(Observation(jax.ShapeDtypeStruct((4,), jnp.float32)), 2, 8, 1, truncation_interval=500)
    replay = UniformReplay(80_000)

    def run(state, numbers):
        def step(state, number):
            state = replay.add(state, example_rollout(spec, number), spec)
            batch = replay.sample(state, jax.random.key(number), 32, 0.99, spec)
            return state, jnp.sum(batch.obs.features) + jnp.sum(batch.next_obs.features) + jnp.sum(batch.reward)

        return jax.lax.scan(step, state, numbers)

    state = jax.eval_shape(lambda: replay.init(spec))
    if members:
        shared = state._replace(added=None)
        axes = jax.tree.map(lambda _: 0, shared)
        run = jax.vmap(run, in_axes=(axes, None), out_axes=(axes, 0))
        state = jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), shared)._replace(
            added=state.added
        )
    compiled = jax.jit(run, donate_argnums=0).lower(state, jax.ShapeDtypeStruct((50,), jnp.int32)).compile()
    memory = compiled.memory_analysis()
    ring = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    assert memory.alias_size_in_bytes >= 0.99 * ring
    assert memory.temp_size_in_bytes < 0.05 * ring


def test_packed_steps_come_back():
    action = jnp.array([0, 5, 2**29 - 1])
    reward = jnp.array([-1.5, 1e-38, jnp.inf])
    ending = jnp.array([0, 1, 2])
    for got, put in zip(unpack(pack(action, reward, ending)), (action, reward, ending), strict=True):
        np.testing.assert_array_equal(got, put)


def test_problems_show_the_fix():
    spec = EnvSpec(Observation(jax.ShapeDtypeStruct((4,), jnp.float32)), 2, 16, 2)
    assert UniformReplay(10_000).problems(spec) == [
        "capacity=10000 is not a multiple of num_envs * rollout_length = 32; try capacity=9984"
    ]
    assert "the least is capacity=64" in UniformReplay(32, n_step=3).problems(spec)[0]
    assert UniformReplay(9_984).problems(spec) == []
