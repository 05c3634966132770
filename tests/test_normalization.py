"""Running statistics against NumPy, and what they do to observations and rewards."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rollax.networks.normalization import NormalizedObservations, NormalizedRewards, no_moments, with_batch
from rollax.types import Discrete, EnvSpec, Observation, Transition

SHAPES = {"a": jax.ShapeDtypeStruct((3,), jnp.float32), "b": jax.ShapeDtypeStruct((), jnp.uint8)}
SPEC = EnvSpec(Observation(SHAPES), Discrete(2), 4, 5)


def test_moments_are_those_of_all_rows_together():
    rng = np.random.default_rng(0)
    batches = [{"a": rng.normal(50, 3, (n, 3)), "b": rng.integers(0, 255, n)} for n in (1, 7, 64, 500)]
    moments = no_moments(SHAPES)
    for batch in batches:
        moments = with_batch(moments, jax.tree.map(jnp.asarray, batch), SPEC)
    for name in SHAPES:
        rows = np.concatenate([batch[name] for batch in batches])
        np.testing.assert_allclose(moments.mean[name], rows.mean(0), rtol=1e-4)
        np.testing.assert_allclose(moments.variance[name], rows.var(0), rtol=1e-3)
    assert float(moments.count) == 572


def test_observations_get_mean_zero_and_deviation_one_within_the_limit():
    view = NormalizedObservations(observation_limit=3.0).build(SPEC)
    known = view.init()
    rows = {"a": 5 + 2 * jax.random.normal(jax.random.key(0), (4_000, 3)), "b": jnp.full(4_000, 7, jnp.uint8)}
    # Before anything is known features are shown as they are.
    np.testing.assert_allclose(view.show(known, rows)["a"], jnp.clip(rows["a"], -3, 3))
    shown = view.show(view.update(known, rows), rows)
    np.testing.assert_allclose(jnp.mean(shown["a"], axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(jnp.std(shown["a"], axis=0), 1.0, atol=0.02)
    assert float(jnp.max(jnp.abs(shown["a"]))) <= 3.0
    np.testing.assert_allclose(shown["b"], 0.0, atol=0.01)  # a constant says nothing


def test_rewards_are_divided_by_the_deviation_of_discounted_sums():
    """By hand over two rollouts: sums go on from one to the next, and start anew after an episode's end."""
    view, rng = NormalizedRewards(reward_limit=1.5).build(SPEC), np.random.default_rng(1)
    known, running, totals = view.init(), np.zeros(4), []
    for _ in range(2):
        reward = rng.normal(3, 10, (5, 4))
        terminated, truncated = rng.random((2, 5, 4)) < 0.2
        empty = Observation(jnp.zeros((5, 4)))
        rollout = Transition(
            empty, jnp.zeros((5, 4)), jnp.asarray(reward, jnp.float32), jnp.asarray(terminated),
            jnp.asarray(truncated), empty,
        )  # fmt: skip
        scaled, known = view.scale(known, rollout, 0.9)
        for step in range(5):
            totals.append(0.9 * running + reward[step])
            running = np.where(terminated[step] | truncated[step], 0.0, totals[-1])
        expected = np.clip(reward / np.std(totals), -1.5, 1.5)
        np.testing.assert_allclose(scaled, expected, rtol=1e-3)
    np.testing.assert_allclose(known.running, running, rtol=1e-4)
    assert np.max(np.abs(expected)) == 1.5
