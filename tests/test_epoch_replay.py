"""The replay of whole episodes: the specification's tables, its draws, and its targets by brute force."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.memory.epochs import EpochReplay
from rollax.memory.replay import Request
from rollax.types import Discrete, EnvSpec, Observation, Transition

STACK = 3
REFERENCE: Any = {"gap_fill": "stale", "gap_size": 0, "nstep_mode": "discount_only", "sample_index": "physical"}


def spec(stack=STACK, size=1, length=4):
    return EnvSpec(Observation(jax.ShapeDtypeStruct((stack, size), jnp.float32)), Discrete(4), 1, length, length)


BRANCH = EpochReplay(capacity=11, **REFERENCE).build(spec())
RELEASED = EpochReplay(capacity=11, **(REFERENCE | {"gap_size": 1})).build(spec())


def episode(first, length=4):
    """Transitions number `first` and on: state t, action t mod 4, reward t / 10, ended by the last."""
    number = jnp.arange(first, first + length)
    shown = jnp.broadcast_to(number[:, None, None, None], (length, 1, STACK, 1)).astype(jnp.float32)
    flags = jnp.zeros((length, 1), bool)
    obs = Observation(shown)
    return Transition(obs, number[:, None] % 4, number[:, None] / 10, flags, flags.at[-1].set(True), obs)


def filled(buffer, episodes):
    state = buffer.init()
    for number in range(episodes):
        state = buffer.add(state, episode(1 + 4 * number))
    return state


@pytest.mark.parametrize(
    ("buffer", "sizes"),
    [(BRANCH, [0, 4, 4, 8, 8, 11]), (RELEASED, [1, 5, 6, 10, 11, 11])],
    ids=["branch", "released"],
)
def test_gaps_and_rows_move_as_in_the_reference(buffer, sizes):
    state, rows, frames, counted = buffer.init(), [], [], []
    for number in range(3):
        for put in (buffer.add_gap, lambda s, n=number: buffer.add_rows(s, *rows_of(n))):
            state = put(state)
            rows.append(int(state.row))
            counted.append(int(state.size))
            frames.append(buffer.previous_frames(state, 2)[:, 0].tolist())
    assert rows == [2, 6, 8, 1, 3, 7]
    assert counted == sizes
    assert frames == [[0, 0], [3, 4], [0, 0], [7, 8], [0, 1], [11, 12]]
    assert state.frames[:, 0].tolist() == [8, 0, 1, 9, 10, 11, 12, 0, 5, 6, 7]
    assert np.flatnonzero(state.done).tolist() == [0, 6]


def rows_of(number):
    rollout = episode(1 + 4 * number)
    return rollout.obs.features[:, 0, -1], rollout.action[:, 0], rollout.reward[:, 0], rollout.truncated[:, 0]


def windows(buffer, state, count, discount=0.5):
    batch, valid = buffer.windows(state, jnp.arange(count), discount)
    columns = (batch.obs.features[..., 0], batch.action, batch.reward, batch.next_obs.features[..., 0], batch.discount)
    return [np.asarray(column, np.float64).round(6).tolist() for column in columns] + [valid.tolist()]


@pytest.mark.parametrize("buffer", [BRANCH, RELEASED], ids=["branch", "released"])
def test_windows_of_the_reference(buffer):
    state = filled(buffer, 3)
    assert int(buffer.num_windows(state)) == 7
    shown, action, reward, following, discount, valid = windows(buffer, state, 7)
    assert shown == [[8, 0, 1], [0, 1, 9], [1, 9, 10], [9, 10, 11], [10, 11, 12], [11, 12, 0], [12, 0, 5]]
    assert following == [[0, 1, 9], [1, 9, 10], [9, 10, 11], [10, 11, 12], [11, 12, 0], [12, 0, 5], [0, 5, 6]]
    assert action == [1, 1, 2, 3, 0, 0, 1]
    assert reward == [0.1, 0.9, 1.0, 1.1, 1.2, 0.0, 0.5]
    assert discount == [0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5]
    assert valid == [False, True, True, True, True, False, False]


def test_windows_of_the_reference_after_two_episodes():
    state = filled(BRANCH, 2)
    assert int(BRANCH.num_windows(state)) == 4
    shown, *_, valid = windows(BRANCH, state, 4)
    assert shown == [[8, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert valid == [False, True, True, True]
    state = filled(RELEASED, 2)
    assert int(RELEASED.num_windows(state)) == 6
    shown, *_, valid = windows(RELEASED, state, 6)
    assert shown[4:] == [[3, 4, 0], [4, 0, 0]]
    assert valid[4:] == [False, False]


def test_corrected_windows():
    buffer = EpochReplay(capacity=11, n_step=2).build(spec())
    state = filled(buffer, 3)
    assert (int(state.row), int(state.size), int(buffer.num_windows(state))) == (7, 11, 7)
    assert state.frames[:, 0].tolist() == [8, 0, 0, 9, 10, 11, 12, 0, 5, 6, 7]
    shown, action, reward, following, discount, valid = windows(buffer, state, 7)
    assert shown == [[0, 5, 6], [5, 6, 7], [6, 7, 8], [7, 8, 0], [8, 0, 0], [0, 0, 9], [0, 9, 10]]
    assert following == [[6, 7, 8], [7, 8, 0], [8, 0, 0], [0, 0, 9], [0, 9, 10], [9, 10, 11], [10, 11, 12]]
    assert action == [2, 3, 0, 0, 0, 1, 2]
    assert reward == [0.95, 1.1, 0.8, 0.0, 0.45, 1.4, 1.55]
    assert discount == [0.25, 0.0, 0.0, 0.25, 0.25, 0.25, 0.25]
    assert valid == [True, True, True, False, False, True, True]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            REFERENCE,
            {0: (54, 50, 44), 4: (270, 250, 244), 5: (324, 300, 294), 18: (2, 950, 944), 20: (110, 1024, 1018)},
        ),
        (
            REFERENCE | {"gap_size": 1},
            {0: (54, 51, 45), 5: (324, 306, 300), 19: (56, 1020, 1014), 20: (110, 1024, 1018)},
        ),
        ({}, {3: (216, 216, 211), 4: (270, 270, 265), 20: (110, 1024, 1019)}),
        ({"n_step": 3}, {4: (270, 270, 263)}),
    ],
    ids=["branch", "released", "corrected", "corrected, three steps"],
)
def test_the_benchmark_fills_as_the_tables_say(settings, expected):
    """Rows, counted rows and windows at the end of epochs; learning begins where there are 256 windows."""
    buffer = EpochReplay(**settings).build(spec(stack=5, size=1, length=50))
    state, found, began = buffer.init(), {}, None
    nothing = (jnp.zeros((50, 1)), jnp.zeros(50), jnp.zeros(50), jnp.zeros(50, bool))
    for epoch in range(21):
        state = buffer.add_rows(buffer.add_gap(state), *nothing)
        found[epoch] = (int(state.row), int(state.size), int(buffer.num_windows(state)))
        if began is None and bool(buffer.ready(state, 256)):
            began = epoch
    assert {epoch: found[epoch] for epoch in expected} == expected
    assert began == (5 if "gap_fill" in settings else 4)


def test_draws_are_uniform_and_none_comes_twice():
    """Every window that exists equally often, also once the ring has gone round; never one across the newest row."""
    buffer = EpochReplay(capacity=40, n_step=2).build(spec())
    state = filled(buffer, 9)
    draw = jax.jit(jax.vmap(lambda key: buffer.sample(state, key, Request(8, discount=0.9))))
    sample = draw(jax.random.split(jax.random.key(0), 4_000))
    shown = np.asarray(sample.batch.obs.features[..., 0])  # [draws, 8, 3]
    count = int(buffer.num_windows(state))
    assert count == 40 - STACK - 2 + 1
    newest = [tuple(row) for row in shown.reshape(-1, 3).tolist()]
    numbers = {window: newest.count(window) for window in set(newest)}
    every = windows(buffer, state, count)[0]
    assert set(numbers) == {tuple(window) for window in every}
    expected = 4_000 * 8 / count
    for window, times in numbers.items():
        alike = every.count(list(window))
        assert abs(times - alike * expected) < 5 * np.sqrt(alike * expected)
    for row in shown.tolist():
        assert len({tuple(window) for window in row}) >= 8 - 2  # only blank windows look alike
    # A window is without a doubt one piece: its numbers follow each other, but for the blanks before an episode.
    weight = np.asarray(sample.weight).reshape(-1)
    for (a, b, c), valid in zip(newest, weight, strict=True):
        if valid:
            assert c == 0 or (b in (0, c - 1) and a in (0, b - 1)), (a, b, c)
    assert 0.5 < weight.mean() < 1


@pytest.mark.parametrize("n", [1, 2, 5])
def test_targets_by_brute_force(n):
    buffer, rng, gamma = EpochReplay(capacity=64, n_step=n).build(spec()), np.random.default_rng(n), 0.8
    state = buffer.init()
    frames = jnp.asarray(np.arange(64)[:, None], jnp.float32)
    reward, done = rng.normal(size=64), rng.random(64) < 0.15
    state = buffer.add_rows(state, frames, jnp.zeros(64), jnp.asarray(reward), jnp.asarray(done))
    count = int(buffer.num_windows(state))
    batch, valid = buffer.windows(state, jnp.arange(count), gamma)
    for start in range(count):
        last, total, goes_on = start + STACK - 1, 0.0, True
        for ahead in range(n):
            if goes_on:
                total += gamma**ahead * reward[last + ahead]
            goes_on &= not done[last + ahead]
        np.testing.assert_allclose(batch.reward[start], total, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(batch.discount[start], gamma**n * goes_on, rtol=1e-5)
        assert bool(valid[start]) == (not done[start : start + STACK - 1].any())


def test_what_does_not_fit_is_refused_with_the_fix():
    wide = spec()._replace(num_envs=2, rollout_length=3)
    assert EpochReplay().problems(spec()) == []
    assert [line.split(";")[0].split(":")[0] for line in EpochReplay(capacity=5).problems(wide)] == [
        "replay=epoch keeps the episodes of one environment",
        "replay=epoch needs whole episodes",
        "capacity=5 does not hold an episode and its gap",
    ]
