"""Actions that are numbers: their distributions against integrals, and their spaces."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rollax.envs.actions import box, few_actions, for_environment, in_words, random_action, space_of
from rollax.errors import EnvError
from rollax.networks.policies import NumberPolicy, PolicyHead
from rollax.rules.distributions import INSIDE, Choices, Normal, Product, SquashedNormal, masked_categorical
from rollax.types import Box, Discrete, Joint, MultiDiscrete, action_shape, size_of

MEANS, DEVIATIONS = (-1.5, 0.0, 0.7), (0.1, 0.6, 1.5)


def normal(mean, deviation, kind=SquashedNormal):
    return kind(jnp.array([mean], jnp.float32), jnp.log(jnp.array([deviation], jnp.float32)))


def grid(kind):
    """Points and their widths: all of what the distribution can draw, but for tails of no weight.

    Squashed points are evenly spaced before they are squashed, so that the steep ends are seen as closely as the rest.
    """
    before = np.linspace(-14.0, 14.0, 400_001)
    points = np.tanh(before) if kind is SquashedNormal else before
    return points[:-1] + np.diff(points) / 2, np.diff(points)


def density(mean, deviation, points, kind):
    """By the definition, in float64: for a squashed number with the slope of the inverse function."""
    before = np.arctanh(points) if kind is SquashedNormal else points
    slope = 1 - points**2 if kind is SquashedNormal else 1.0
    return np.exp(-0.5 * ((before - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi)) / slope


@pytest.mark.parametrize("kind", [Normal, SquashedNormal])
@pytest.mark.parametrize("deviation", DEVIATIONS)
@pytest.mark.parametrize("mean", MEANS)
def test_densities_and_entropies_are_those_of_their_integrals(mean, deviation, kind):
    points, widths = grid(kind)
    points, widths = (
        points[np.abs(points) < INSIDE] if kind is SquashedNormal else points,
        (widths[np.abs(points) < INSIDE] if kind is SquashedNormal else widths),
    )
    true = density(mean, deviation, points, kind)
    said = np.asarray(normal(mean, deviation, kind).log_prob(jnp.asarray(points[:, None], jnp.float32)), np.float64)
    seen = (true > 1e-6) & (np.abs(points) < 0.999 if kind is SquashedNormal else True)  # float32 is coarse near 1
    np.testing.assert_allclose(said[seen], np.log(true[seen]), atol=3e-3)
    assert np.sum(np.exp(said) * widths) == pytest.approx(1.0, abs=5e-3)
    entropy = -np.sum(np.where(true > 0, true * np.log(np.maximum(true, 1e-300)), 0.0) * widths)
    assert float(normal(mean, deviation, kind).entropy()) == pytest.approx(entropy, abs=5e-3)


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_the_density_of_a_draw_is_that_of_its_action_and_finite_at_the_bounds(deviation):
    policy = normal(0.3, deviation)
    noise = jnp.linspace(-2.0, 2.0, 41)[:, None]
    action, log_prob = policy.place_with_log_prob(noise)
    np.testing.assert_allclose(log_prob, policy.log_prob(action), atol=2e-3)
    far = SquashedNormal(jnp.array([40.0]), jnp.array([0.0]))
    action, log_prob = far.place_with_log_prob(jnp.array([0.5]))
    assert (float(action[0]), bool(jnp.isfinite(log_prob))) == (1.0, True)
    # The slope of tanh at 40.5 is 4 exp(-81), which float32 would round to 0.
    assert float(log_prob) == pytest.approx(-0.125 - 0.5 * np.log(2 * np.pi) + 81.0 - np.log(4.0), abs=1e-3)
    assert bool(jnp.isfinite(policy.log_prob(jnp.array([1.0]))))


@pytest.mark.parametrize("kind", [Normal, SquashedNormal])
def test_gradients_of_placed_noise_are_those_of_the_integral(kind):
    """What a policy's loss follows: of the mean of a function of the action, by mean and by deviation."""
    mean, deviation, step = 0.4, 0.8, 1e-4
    points, widths = grid(kind)

    def worth(action):
        return jnp.sum(jnp.sin(3 * action) + action**2, axis=-1)

    def integral(mean, deviation):
        value = np.sin(3 * points) + points**2
        return np.sum(density(mean, deviation, points, kind) * value * widths)

    noise = jnp.asarray(np.polynomial.hermite_e.hermegauss(64)[0][:, None], jnp.float32)
    weights = np.polynomial.hermite_e.hermegauss(64)[1]

    def placed(parameters):
        policy = kind(parameters[:1], parameters[1:])
        return jnp.sum(worth(policy.place(noise)) * jnp.asarray(weights / weights.sum(), jnp.float32))

    by_mean, by_log = jax.grad(placed)(jnp.array([mean, np.log(deviation)], jnp.float32))
    assert float(by_mean) == pytest.approx(
        (integral(mean + step, deviation) - integral(mean - step, deviation)) / (2 * step), abs=2e-3
    )
    up, down = deviation * np.exp(step), deviation * np.exp(-step)
    assert float(by_log) == pytest.approx((integral(mean, up) - integral(mean, down)) / (2 * step), abs=2e-3)


@pytest.mark.parametrize("kind", [Normal, SquashedNormal])
def test_draws_have_the_moments_of_their_integrals(kind):
    points, widths = grid(kind)
    weight = density(-0.4, 0.5, points, kind) * widths
    draws = np.asarray(jax.vmap(normal(-0.4, 0.5, kind).draw)(jax.random.split(jax.random.key(0), 100_000)))
    assert draws.mean() == pytest.approx(np.sum(points * weight), abs=5e-3)
    assert draws.var() == pytest.approx(np.sum(points**2 * weight) - np.sum(points * weight) ** 2, abs=5e-3)


def test_several_choices_and_products_add_up_to_one():
    scores = jnp.array([0.3, -1.0, 2.0]), jnp.array([1.0, 0.5])
    choices = Choices(tuple(masked_categorical(one, None) for one in scores))
    every = jnp.array([[first, second] for first in range(3) for second in range(2)], jnp.float32)
    chances = jnp.exp(jax.vmap(choices.log_prob)(every))
    assert float(chances.sum()) == pytest.approx(1.0, abs=1e-6)
    assert float(choices.entropy()) == pytest.approx(float(-jnp.sum(chances * jnp.log(chances))), abs=1e-6)
    np.testing.assert_array_equal(choices.mode(), every[jnp.argmax(chances)])
    number = normal(0.2, 0.4, Normal)
    both = Product((choices, number), (2, 1))
    action = jnp.array([2.0, 0.0, 0.9])
    expected = float(choices.log_prob(action[:2]) + number.log_prob(action[2:]))
    assert float(both.log_prob(action)) == pytest.approx(expected, abs=1e-6)
    assert both.draw(jax.random.key(0)).shape == (3,)
    assert float(both.entropy()) == pytest.approx(float(choices.entropy() + number.entropy()), abs=1e-6)


# -- spaces

SPACE = Joint(
    (Discrete(3), MultiDiscrete((2, 5), (2,)), Box((-1.0, 0.0), (3.0, 10.0), (2,))), jax.tree.structure([0] * 3)
)


@given(arrays(np.float32, (5,), elements=st.floats(-1e6, 1e6, width=32)))
def test_bounds_are_never_left_whatever_an_agent_says(said):
    for maths in (np.asarray, jnp.asarray):
        choice, choices, numbers = for_environment(SPACE, maths(said))
        assert 0 <= int(choice) < 3
        assert np.all((np.asarray(choices) >= 0) & (np.asarray(choices) < np.array([2, 5])))
        assert np.all((np.asarray(numbers) >= np.array([-1.0, 0.0])) & (np.asarray(numbers) <= np.array([3.0, 10.0])))


@given(st.floats(-1e4, 1e4, width=32), st.floats(2**-10, 1e4, width=32), st.floats(-1.0, 1.0, width=32))
def test_a_box_is_scaled_and_its_ends_are_reached(low, room, said):
    high = float(np.float32(low + room))
    if high <= low:
        return
    space = box("test", low, high, (1,))
    ends = for_environment(space, np.array([[-1.0], [1.0]], np.float32))[:, 0]
    assert (ends[0], ends[1]) == (np.float32(low), np.float32(high))
    inside = for_environment(space, np.array([said], np.float32))[0]
    assert low <= inside <= high
    assert inside == pytest.approx(low + (said + 1) / 2 * (high - low), abs=1e-5 * max(abs(low), abs(high), 1.0))


def test_random_actions_cover_the_space():
    actions = np.asarray(random_action(SPACE, jax.random.key(0), (4_000,)))
    assert actions.shape == (4_000, size_of(SPACE)) == action_shape(SPACE, (4_000,)).shape
    assert [sorted(set(column)) for column in actions.T[:3]] == [[0, 1, 2], [0, 1], [0, 1, 2, 3, 4]]
    np.testing.assert_allclose(actions[:, 3:].mean(0), 0.0, atol=0.05)
    assert np.abs(actions[:, 3:]).max() <= 1.0
    assert np.abs(actions[:, 3:]).max() > 0.99
    assert len({row.tobytes() for row in few_actions(SPACE, 5)}) == 5


def test_spaces_of_other_libraries_become_ours():
    import gymnasium.spaces as theirs

    found = space_of(
        "x", theirs.Dict(b=theirs.MultiBinary(3), a=theirs.Tuple([theirs.Discrete(2), theirs.Box(-2, 2, (1,))]))
    )
    assert isinstance(found, Joint)
    assert [type(part) for part in found.parts] == [Discrete, Box, MultiDiscrete]
    assert size_of(found) == 5
    assert in_words(found) == "an action is one of 2 choices and 1 number in [-2, 2] and 3 choices among 2"
    assert space_of("x", theirs.Text(3)) is None
    with pytest.raises(EnvError, match="number 1 of an action goes from 3 to 3"):
        box("x", np.array([0.0, 3.0]), np.array([1.0, 3.0]), (2,))
    assert box("x", -np.inf, np.inf, (2,)) == Box((-1.0, -1.0), (1.0, 1.0), (2,))


@pytest.mark.parametrize("state_deviation", [False, True])
def test_a_policy_begins_with_its_initial_deviation(state_deviation):
    head = PolicyHead(SPACE, NumberPolicy(state_deviation=state_deviation, initial_deviation=0.5))
    assert (head.outputs, head.free) == (3 + 7 + (4 if state_deviation else 2), 0 if state_deviation else 2)
    said = jnp.concatenate([jnp.zeros(head.outputs), jnp.full(head.free, head.start)])
    policy = head.distribution(said, None)
    assert isinstance(policy, Product)
    number = policy.each[-1]
    assert isinstance(number, Normal)
    np.testing.assert_allclose(jnp.exp(number.log_deviation), 0.5, rtol=1e-5)
    assert float(policy.entropy()) == pytest.approx(
        np.log(3) + np.log(2) + np.log(5) + 2 * (0.5 * np.log(2 * np.pi * np.e) + np.log(0.5)), abs=1e-4
    )
