"""PPO: its objective by hand, its masks, its advantages, and the probes."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import BOOTHS, Fair, Masked, task
from training_tools import make_program, seed_keys, small, solve, stack_hparams, start

from rollax.agents.names import AGENTS
from rollax.agents.ppo import Lesson, PPOHParams, of_action
from rollax.types import Observation

DISCOUNT = 0.7
MASKED = task(Masked(truncates=True), 3)


@cache
def collected(made, rollout_length=6):
    """An agent, its learner, and a rollout that it made."""
    program = make_program(made, small("ppo", minibatches=2), 4, rollout_length)
    state = start(program, seed_keys(0), stack_hparams(1, "ppo", reward_scale=0.5), warm_up=1)
    state = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, state)
    _, rollout, _ = program.loop.collect(state.learner, state.envs, jax.random.key(3))
    return program.loop.agent, state.learner, rollout


def lesson_of(agent, learner, seed=0, rows=16):
    """Random lessons whose actions had other chances when they were taken."""
    keys = jax.random.split(jax.random.key(seed), 5)
    legal = jnp.array([[True, True, False], [True, False, False]])[jax.random.randint(keys[0], (rows,), 0, 2)]
    obs = Observation(jax.random.normal(keys[1], (rows, 2)), legal)
    action, noted = agent.act(learner, obs, keys[2], explore=True)
    old = noted.log_prob + 0.5 * jax.random.normal(keys[3], (rows,))
    advantage, target = 3 * jax.random.normal(keys[4], (2, rows))
    return Lesson(obs, action, old, advantage, target)


def test_the_loss_by_hand():
    """Every term in NumPy, row by row, over legal actions only."""
    agent, learner, _ = collected(MASKED)
    hp = PPOHParams(clip=0.15, entropy_weight=0.03, entropy_end=0.5, entropy_steps=100.0, value_weight=0.7)
    lesson = lesson_of(agent, learner)
    loss, metrics = agent.loss(learner.params, hp, jnp.float32(50.0), lesson)
    scores, values = (np.asarray(x, np.float64) for x in agent.network.apply(learner.params, lesson.obs.features))
    advantage = np.asarray(lesson.advantage, np.float64)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy, value, entropy, clipped = [], [], [], []
    for row in range(len(advantage)):
        legal = np.flatnonzero(lesson.obs.legal[row])
        chances = np.exp(scores[row, legal] - scores[row, legal].max())
        chances /= chances.sum()
        now = chances[legal.tolist().index(int(lesson.action[row]))]
        ratio = now / np.exp(float(lesson.log_prob[row]))
        policy.append(-min(ratio * advantage[row], np.clip(ratio, 0.85, 1.15) * advantage[row]))
        value.append(0.5 * (values[row] - float(lesson.target[row])) ** 2)
        entropy.append(-np.sum(chances * np.log(chances)))
        clipped.append(abs(ratio - 1) > 0.15)
    expected = np.mean(policy) + 0.7 * np.mean(value) - 0.03 * 0.75 * np.mean(entropy)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(metrics["entropy"], np.mean(entropy), rtol=1e-4)
    np.testing.assert_allclose(metrics["value_loss"], np.mean(value), rtol=1e-4)
    np.testing.assert_allclose(metrics["clipped"], np.mean(clipped))
    assert 0 < np.mean(clipped) < 1


def test_a_held_action_pulls_no_more():
    """Beyond the clip the policy's gradient is gone where the advantage has been taken, and only there."""
    agent, learner, _ = collected(MASKED)
    hp = PPOHParams(clip=0.2, entropy_weight=0.0, value_weight=0.0)
    obs = Observation(jnp.ones((2, 2)), jnp.array([[True, True, False]] * 2))
    log_policy, _ = agent.judge(learner.params, obs)
    action = jnp.array([0, 0])

    def gradient(log_ratio, advantages):
        lesson = Lesson(obs, action, of_action(log_policy, action) - log_ratio, jnp.array(advantages), jnp.zeros(2))
        grads = jax.grad(lambda p: agent.loss(p, hp, jnp.float32(0), lesson)[0])(learner.params)
        return max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(grads))

    # The first row's ratio is e^0.5 with a good advantage, the second's e^-0.5 with a bad one: both are held.
    assert gradient(jnp.array([0.5, -0.5]), [1.0, -1.0]) == 0.0
    assert gradient(jnp.array([-0.5, 0.5]), [1.0, -1.0]) > 1e-3
    assert gradient(jnp.array([0.1, -0.1]), [1.0, -1.0]) > 1e-3


def test_illegal_actions_have_no_chance_and_no_gradient():
    agent, learner, _ = collected(MASKED)
    lesson = lesson_of(agent, learner, rows=64)
    taken = np.take_along_axis(np.asarray(lesson.obs.legal), np.asarray(lesson.action)[:, None], axis=1)
    assert taken.all()
    only_third = lesson._replace(obs=lesson.obs._replace(legal=jnp.array([[True, True, False]] * 64)))
    grads = jax.grad(lambda p: agent.loss(p, PPOHParams(), jnp.float32(0), only_third)[0])(learner.params)
    kernel = grads["params"]["policy"]["kernel"]
    assert np.all(np.asarray(kernel)[:, 2] == 0.0)
    assert np.all(np.isfinite(kernel))
    assert np.any(np.asarray(kernel)[:, :2] != 0.0)


@pytest.mark.parametrize("made", [MASKED])
def test_targets_are_the_lambda_returns_of_true_successors(made, monkeypatch):
    """By the definition of generalized advantage estimation, step by step, with the reward's scale."""
    agent, learner, rollout = collected(made)
    seen = []
    monkeypatch.setattr(
        type(agent), "gradient_step", lambda self, learner, lesson, key: (seen.append(lesson), (learner, {}))[1]
    )
    with jax.disable_jit():
        agent.learn(learner, (), rollout, jax.random.key(0))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.next_obs)
    next_value = np.asarray(agent.judge(learner.params, flat)[1]).reshape(rollout.reward.shape)
    value, reward = np.asarray(rollout.extras.value), 0.5 * np.asarray(rollout.reward)
    terminated, truncated = np.asarray(rollout.terminated), np.asarray(rollout.truncated)
    advantage, expected = np.zeros(value.shape[1]), np.zeros_like(value)
    for t in reversed(range(len(value))):
        delta = reward[t] + 0.99 * np.where(terminated[t], 0.0, next_value[t]) - value[t]
        advantage = delta + 0.99 * 0.95 * np.where(terminated[t] | truncated[t], 0.0, advantage)
        expected[t] = advantage
    got = np.concatenate([np.asarray(lesson.advantage) for lesson in seen[:2]])  # one epoch
    np.testing.assert_allclose(np.sort(got), np.sort(expected.reshape(-1)), rtol=1e-3, atol=1e-4)


def test_evaluations_take_the_likeliest_action_or_draw():
    agent, learner, _ = collected(MASKED)
    obs = Observation(jnp.zeros((500, 2)), jnp.array([[True, True, False]] * 500))
    calm = agent.act(learner, obs, jax.random.key(1), explore=False)[0]
    assert len(set(calm.tolist())) == 1
    drawing = type(agent)(small("ppo", evaluation_draws=True), agent.spec)
    assert set(drawing.act(learner, obs, jax.random.key(1), explore=False)[0].tolist()) == {0, 1}


def test_one_torso_or_two():
    spec = MASKED.spec(4, 8)
    sizes = {}
    for shared in (True, False):
        agent = small("ppo", shared=shared).build(spec)
        params = agent.init(jax.random.key(0), AGENTS["ppo"].hparams)[0].params["params"]
        sizes[shared] = set(params)
    assert sizes[True] == {"actor", "policy", "value"}
    assert sizes[False] == {"actor", "critic", "policy", "value"}


def test_every_probe():
    """Values of states under the policy that was found, and that policy's choices."""
    fair = task(Fair(booths=tuple(BOOTHS.values())))
    agent, learner = solve(
        "ppo", fair, iterations=6_000, discount=DISCOUNT, entropy_weight=0.03, entropy_end=0.0, entropy_steps=40_000.0,
        learning_rate_steps=48_000.0,
    )  # fmt: skip

    def features(booth, *shown):
        number = list(BOOTHS).index(booth)
        return jnp.array([[*np.eye(len(BOOTHS))[number], *row] for row in shown], jnp.float32)

    def values(booth, *shown):
        return np.asarray(agent.judge(learner.params, Observation(features(booth, *shown)))[1])

    def choices(booth, *shown, legal=None):
        return agent.act(learner, Observation(features(booth, *shown), legal), jax.random.key(0), explore=False)[
            0
        ].tolist()

    np.testing.assert_allclose(values("constant", [0, 0], [1, 0]), 1.0, atol=0.2)
    np.testing.assert_allclose(values("from_observation", [0, 0], [1, 0]), [-1.0, 1.0], atol=0.25)
    np.testing.assert_allclose(values("delayed", [0, 0], [0, 1]), [DISCOUNT, 1.0], atol=0.2)
    assert choices("choice", [0, 0], [1, 0]) == [0, 1]
    np.testing.assert_allclose(values("choice", [0, 0], [1, 0]), 1.0, atol=0.3)
    worth = 1 / (1 - DISCOUNT)
    np.testing.assert_allclose(values("endless", [1, 0]), worth, atol=0.4)
    np.testing.assert_allclose(values("endless_by_three", [1, 0]), worth, atol=0.4)
    assert choices("chain", [0, 0]) == [1]
    np.testing.assert_allclose(values("chain", [0, 0]), DISCOUNT**3, atol=0.15)
    legal = jnp.array([[True, False, False], [True, True, False]])
    assert choices("masked", [0, 0], [1, 0], legal=legal) == [0, 1]
    np.testing.assert_allclose(values("masked", [0, 0], [1, 0]), [0.0, 1 + DISCOUNT + DISCOUNT**2], atol=0.3)
    np.testing.assert_allclose(values("lottery", [1, 0]), 2.0, atol=0.4)
