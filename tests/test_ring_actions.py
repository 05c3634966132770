"""The ring keeps either kind of action: numbers that share a word, vectors in an array of their own."""

from __future__ import annotations

from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Request
from rollax.memory.uniform import UniformReplay
from rollax.types import Box, Discrete, EnvSpec, Observation, Transition

ENVS, DISCOUNT = 2, 0.9
SIZE = 3
VECTORS = Box((-1.0,) * SIZE, (1.0,) * SIZE, (SIZE,))


def spec_of(rollout, action=VECTORS, **changes):
    features = jax.ShapeDtypeStruct((2,), jnp.float32)
    return EnvSpec(Observation(features), action, ENVS, rollout)._replace(**changes)


def action_at(env, episode, step):
    """A vector that names where it was taken, with digits that no smaller type would keep."""
    env, episode, step = (np.asarray(number, np.float64) for number in (env, episode, step))
    return np.stack([env + episode / 1000.0, step / 7.0, -(env + step + episode / 3.0)], axis=-1).astype(np.float32)


def rollouts(spec, length, truncates):
    """Endless rollouts of episodes of that length; observations are `(episode, step)`, rewards the step."""
    start = 0
    while True:
        time = np.broadcast_to(start + np.arange(spec.rollout_length)[:, None], (spec.rollout_length, ENVS))
        episode, step, env = time // length, time % length, np.broadcast_to(np.arange(ENVS), time.shape)
        ended = step == length - 1
        shown = Observation(jnp.asarray(np.stack([episode, step], axis=-1), jnp.float32))
        following = Observation(jnp.asarray(np.stack([episode, step + 1], axis=-1), jnp.float32))
        action = jnp.asarray(action_at(env, episode, step))
        reward, never = jnp.asarray(step, jnp.float32), jnp.zeros(ended.shape, bool)
        flags = (never, jnp.asarray(ended)) if truncates else (jnp.asarray(ended), never)
        yield Transition(shown, action, reward, *flags, following)
        start += spec.rollout_length


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize(
    ("rollout", "length", "n", "capacity", "interval", "truncates"),
    [(1, 5, 3, 22, 5, True), (1, 5, 1, 20, 1, True), (4, 5, 3, 40, 5, True), (2, 4, 2, 24, 1, False)],
)
def test_vectors_come_back_with_their_window(kind, rollout, length, n, capacity, interval, truncates):
    """At every fill level and across several wraps, to the bit, with n-step sums and true successors."""
    spec = spec_of(rollout, truncation_interval=interval)
    buffer = kind(capacity, n).build(spec)
    add = jax.jit(buffer.add)
    sample = jax.jit(lambda state, key: buffer.sample(state, key, Request(96, DISCOUNT, 1.0)).batch)
    state = buffer.init()
    for number, taken in enumerate(islice(rollouts(spec, length, truncates), 3 * capacity // (ENVS * rollout) + 4)):
        state = add(state, taken)
        if (number + 1) * rollout <= n:
            continue
        batch = jax.tree.map(np.asarray, sample(state, jax.random.key(number)))
        assert batch.action.shape == (96, SIZE)
        assert batch.action.dtype == np.float32
        episode, start = batch.obs.features.T
        env = np.floor(batch.action[:, 0]).astype(int)
        assert set(env) == {0, 1}
        np.testing.assert_array_equal(batch.action, action_at(env, episode, start))
        counted = np.minimum(n, length - start)
        reward = sum(np.where(k < counted, DISCOUNT**k * (start + k), 0) for k in range(n))
        np.testing.assert_allclose(batch.reward, reward, rtol=1e-5)
        used = batch.discount > 0
        np.testing.assert_array_equal(used, truncates | (start + counted < length))
        np.testing.assert_array_equal(batch.next_obs.features[used, 0], episode[used])
        np.testing.assert_array_equal(batch.next_obs.features[used, 1], (start + counted)[used])


@pytest.mark.parametrize(("rollout", "n", "stops"), [(1, 1, (7, 19)), (1, 3, (7, 8, 30)), (2, 2, (5, 5, 12))])
def test_vectors_and_interruptions(rollout, n, stops):
    """No window begins in a filler, so no action is one that was there before; none reaches over a stop."""
    spec = spec_of(rollout, truncation_interval=10_000, restarts=True)
    buffer = UniformReplay(ENVS * rollout * 10, n).build(spec)
    add, interrupt = jax.jit(buffer.add), jax.jit(buffer.interrupt)
    sample = jax.jit(lambda state, key: buffer.sample(state, key, Request(96, DISCOUNT)).batch)
    state, step, episode = buffer.init(), 0, 0
    for number in range(40):
        for _ in range(stops.count(number)):
            reached = Observation(jnp.broadcast_to(jnp.array([episode, step], jnp.float32), (ENVS, 2)))
            state, step, episode = interrupt(state, reached), 0, episode + 1
        at = np.broadcast_to(step + np.arange(rollout)[:, None], (rollout, ENVS))
        of, env = np.full(at.shape, episode), np.broadcast_to(np.arange(ENVS), at.shape)
        shown, following = (Observation(jnp.asarray(np.stack([of, t], -1), jnp.float32)) for t in (at, at + 1))
        never = jnp.zeros(at.shape, bool)
        action = jnp.asarray(action_at(env, of, at))
        state = add(state, Transition(shown, action, jnp.ones(at.shape), never, never, following))
        step += rollout
        if (number + 1) * rollout <= n:
            continue
        batch = jax.tree.map(np.asarray, sample(state, jax.random.key(number)))
        first, start = batch.obs.features.T
        np.testing.assert_array_equal(batch.action, action_at(np.floor(batch.action[:, 0]).astype(int), first, start))
        np.testing.assert_array_equal(batch.next_obs.features[:, 0], first)
        steps = batch.next_obs.features[:, 1] - start
        assert np.all((steps >= 1) & (steps <= n))
        np.testing.assert_allclose(batch.discount, DISCOUNT**steps, rtol=1e-5)


def test_numbered_actions_have_no_array_of_their_own():
    state = UniformReplay(20).build(spec_of(1, Discrete(5))).init()
    assert state.vectors is None
    vectors = UniformReplay(20).build(spec_of(1)).init().vectors
    assert vectors is not None
    assert (vectors.shape, vectors.dtype) == ((ENVS, 10, SIZE), jnp.float32)


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize("interval", [1, 4])
def test_a_termination_outweighs_a_time_limit(kind, interval):
    """Where both flags are set the task has ended: nothing is bootstrapped there, with one step or with more."""
    for n in (1, 3):
        buffer = kind(40, n).build(spec_of(1, Discrete(2), truncation_interval=interval))
        state = buffer.init()
        for number in range(16):
            shown = Observation(jnp.full((1, ENVS, 2), number, jnp.float32))
            both = jnp.full((1, ENVS), number % 4 == 3)
            state = buffer.add(
                state, Transition(shown, jnp.zeros((1, ENVS), jnp.int32), jnp.ones((1, ENVS)), both, both, shown)
            )
        batch = buffer.sample(state, jax.random.key(0), Request(400, DISCOUNT, 1.0)).batch
        left = 4 - np.asarray(batch.obs.features[:, 0]) % 4  # steps to the end of the episode
        expected = np.where(left <= n, 0.0, DISCOUNT**n)
        assert (expected == 0).any()
        np.testing.assert_allclose(batch.discount, expected, rtol=1e-5)
