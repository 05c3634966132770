"""PPO: its objective by hand, its masks, its advantages, and the probes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import BOOTHS, Fair, Masked, task
from training_tools import decide, make_program, runner, seed_keys, small, solve, stack_hparams, start

from rollax.agents.names import AGENTS
from rollax.agents.ppo import Lesson, PPOHParams
from rollax.agents.rollouts import flatten_time, minibatch
from rollax.errors import ConfigError
from rollax.experiment.experiment import make_experiment
from rollax.networks.normalization import NormalizedObservations, RawObservations
from rollax.programs.plan import make_plan
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
    action, noted, _ = decide(agent, learner, obs, keys[2], explore=True)
    old = noted.log_prob + 0.5 * jax.random.normal(keys[3], (rows,))
    value, advantage, target = 3 * jax.random.normal(keys[4], (3, rows))
    return Lesson(obs, action, old, value, advantage, target)


def test_the_loss_by_hand():
    """Every term in NumPy, row by row, over legal actions only."""
    agent, learner, _ = collected(MASKED)
    hp = PPOHParams(clip=0.15, entropy_weight=0.03, entropy_end=0.5, entropy_steps=100.0, value_weight=0.7)
    lesson = lesson_of(agent, learner)
    loss, metrics = agent.loss(learner.params, hp, jnp.float32(50.0), lesson)
    scores, values = (
        np.asarray(x, np.float64) for x in agent.network.apply(learner.params.network, lesson.obs.features)
    )
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
    np.testing.assert_allclose(metrics["clip_fraction"], np.mean(clipped))
    assert 0 < np.mean(clipped) < 1


def test_a_held_action_pulls_no_more():
    """Beyond the clip the policy's gradient is gone where the advantage has been taken, and only there."""
    agent, learner, _ = collected(MASKED)
    hp = PPOHParams(clip=0.2, entropy_weight=0.0, value_weight=0.0)
    obs = Observation(jnp.ones((2, 2)), jnp.array([[True, True, False]] * 2))
    policy, _ = agent.judge(learner.params, obs)
    action = jnp.array([0, 0])

    def gradient(log_ratio, advantages):
        old, none = policy.log_prob(action) - log_ratio, jnp.zeros(2)
        lesson = Lesson(obs, action, old, none, jnp.array(advantages), none)
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
    kernel = grads.network["params"]["policy"]["kernel"]
    assert np.all(np.asarray(kernel)[:, 2] == 0.0)
    assert np.all(np.isfinite(kernel))
    assert np.any(np.asarray(kernel)[:, :2] != 0.0)


def lessons_learnt(agent, learner, rollout, monkeypatch):
    """The minibatches that an iteration's gradient steps take."""
    seen = []

    def step(self, progress, shared, own):
        seen.append(minibatch(shared, own[0], agent.config.recurrence))
        return progress, {}

    monkeypatch.setattr(type(agent), "step", step)
    with jax.disable_jit():
        agent.learn(learner, (), rollout, jax.random.key(0))
    return seen


@pytest.mark.parametrize("made", [MASKED])
def test_targets_are_the_lambda_returns_of_true_successors(made, monkeypatch):
    """By the definition of generalized advantage estimation, step by step, with the reward's scale."""
    agent, learner, rollout = collected(made)
    seen = lessons_learnt(agent, learner, rollout, monkeypatch)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout.next_obs)
    next_value = np.asarray(agent.judge(learner.params, flat)[1]).reshape(rollout.reward.shape)
    value, reward = np.asarray(rollout.notes.value), 0.5 * np.asarray(rollout.reward)
    terminated, truncated = np.asarray(rollout.terminated), np.asarray(rollout.truncated)
    advantage, expected = np.zeros(value.shape[1]), np.zeros_like(value)
    for t in reversed(range(len(value))):
        delta = reward[t] + 0.99 * np.where(terminated[t], 0.0, next_value[t]) - value[t]
        advantage = delta + 0.99 * 0.95 * np.where(terminated[t] | truncated[t], 0.0, advantage)
        expected[t] = advantage
    got = np.concatenate([np.asarray(lesson.advantage) for lesson in seen[:2]])  # one epoch
    np.testing.assert_allclose(np.sort(got), np.sort(expected.reshape(-1)), rtol=1e-3, atol=1e-4)


def test_values_may_be_clipped_and_advantages_left_alone():
    agent, learner, _ = collected(MASKED)
    plain = replace(agent, config=replace(agent.config, clip_values=True, normalize_advantages=False))
    hp = PPOHParams(clip=0.3, entropy_weight=0.0, value_weight=1.0)
    lesson = lesson_of(agent, learner)
    loss, metrics = plain.loss(learner.params, hp, jnp.float32(0), lesson)
    policy, value = agent.judge(learner.params, lesson.obs)
    ratio = np.exp(np.asarray(policy.log_prob(lesson.action) - lesson.log_prob))
    value, old, target = (np.asarray(x) for x in (value, lesson.value, lesson.target))
    near = old + np.clip(value - old, -0.3, 0.3)
    value_loss = 0.5 * np.mean(np.maximum((value - target) ** 2, (near - target) ** 2))
    advantage = np.asarray(lesson.advantage)
    policy_loss = -np.mean(np.minimum(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage))
    np.testing.assert_allclose(metrics["value_loss"], value_loss, rtol=1e-4)
    np.testing.assert_allclose(loss, policy_loss + value_loss, rtol=1e-4)
    assert value_loss > 1.01 * 0.5 * np.mean((value - target) ** 2)


@pytest.mark.parametrize(
    "observations", [pytest.param(RawObservations(), marks=pytest.mark.thorough), NormalizedObservations()]
)
def test_nothing_has_moved_before_the_first_gradient_step(observations):
    """Acting and learning see the same features and the same mask: the ratio is 1 in a first and in a later rollout."""
    program = make_program(MASKED, small("ppo", observations=observations, epochs=1, minibatches=1), 4, 8)
    keys, hparams = seed_keys(0), stack_hparams(1, "ppo")
    agent: Any = program.loop.agent
    run, learn = runner(program, keys, hparams), jax.jit(agent.learn)
    for done in (0, 3):
        state = run(keys, hparams, done)
        state = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, state)
        _, rollout, _ = program.loop.collect(state.learner, state.envs, jax.random.key(3))
        policy, _ = agent.judge(state.learner.params, flatten_time(rollout.obs))
        ratio = jnp.exp(policy.log_prob(rollout.action.reshape(-1)) - rollout.notes.log_prob.reshape(-1))
        np.testing.assert_allclose(ratio, 1.0, atol=1e-5)
        _, _, metrics = learn(state.learner, state.memory, rollout, jax.random.key(1))
        assert abs(float(metrics["approx_kl"])) < 1e-5
        assert float(metrics["clip_fraction"]) == 0.0


def test_every_lesson_is_learnt_once_in_each_epoch(monkeypatch):
    agent, learner, rollout = collected(MASKED)
    seen = lessons_learnt(agent, learner, rollout, monkeypatch)
    assert len(seen) == 2 * agent.config.epochs
    every = np.sort(np.asarray(rollout.notes.log_prob).reshape(-1))
    orders = [np.concatenate([np.asarray(lesson.log_prob) for lesson in seen[at : at + 2]]) for at in (0, 2)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), every)
    assert not np.array_equal(orders[0], orders[1])


def test_a_rollout_is_left_when_the_policy_has_moved_too_far():
    """With a limit, all steps from the first that is beyond it on are left out, and schedules still count them."""
    agent, learner, rollout = collected(MASKED)

    def learnt(limit):
        hparams = learner.hparams.replace(kl_limit=jnp.float32(limit), learning_rate=jnp.float32(0.05))
        return agent.learn(learner._replace(hparams=hparams), (), rollout, jax.random.key(0))

    def moved(after):
        pairs = zip(jax.tree.leaves(after.params), jax.tree.leaves(learner.params), strict=True)
        return max(float(jnp.max(jnp.abs(new - old))) for new, old in pairs)

    (free, _, metrics), (short, _, _) = learnt(0.0), learnt(1e-4)
    assert float(metrics["approx_kl"]) > 1e-4
    # The first step is always taken: nothing has moved before it.  Adam's first step is one learning rate.
    assert moved(short) == pytest.approx(0.05, rel=0.01)
    assert moved(free) > 2 * moved(short)
    assert int(short.gradient_steps) == int(free.gradient_steps) == 2 * agent.config.epochs


def test_a_limit_is_compiled_only_where_a_member_has_one():
    """Whatever it leaves out, it learns the same; a search, whose numbers become others, leaves out nothing."""

    def agent(searched=False, **settings):
        return make_plan(make_experiment("ppo", preset="none", **settings), searched=searched).program.agent

    assert not agent().stops
    assert agent(kl_limit=0.1).stops
    assert agent(kl_limit=(0.0, 0.1)).stops
    assert agent(searched=True).stops
    whole, learner, rollout = collected(MASKED)
    assert whole.stops
    slim = whole.fitted([{"kl_limit": 0.0}])
    (one, _, _), (other, _, _) = (each.learn(learner, (), rollout, jax.random.key(0)) for each in (whole, slim))
    for left, right in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6, rtol=0)


def test_a_masked_action_is_never_taken():
    """Whatever the scores: a million draws, huge scores on illegal actions, and a mask with one legal action."""
    agent, learner, _ = collected(MASKED)
    rows = 1_000_000
    legal = jnp.array([[True, True, False], [False, True, False], [True, False, False]])[jnp.arange(rows) % 3]
    for scale in (1.0, 1e10, -1e10):
        network = {"params": {**learner.params.network["params"]}}
        bias = scale * jnp.array([-1.0, 0.0, 1.0])
        network["params"]["policy"] = {"kernel": network["params"]["policy"]["kernel"], "bias": bias}
        params = learner.params._replace(network=network)
        obs = Observation(jnp.zeros((rows, 2)), legal)
        for explore in (True, False):
            act = jax.jit(partial(decide, agent, explore=explore))
            action, noted, _ = act(learner._replace(params=params), obs, jax.random.key(int(abs(scale)) % 97))
            assert bool(jnp.all(jnp.take_along_axis(legal, action[..., None], axis=-1)))
            assert bool(jnp.all(jnp.isfinite(noted.log_prob)))
        _, metrics = agent.loss(params, PPOHParams(), jnp.float32(0), lesson_of(agent, learner))
        assert np.isfinite(float(metrics["entropy"]))
        assert float(metrics["entropy"]) <= np.log(2) + 1e-5


def test_an_early_collapse_is_a_concern():
    agent, _, _ = collected(MASKED)
    assert agent.concern({"entropy": 0.5}, 0.1) is None
    assert agent.concern({"entropy": 0.001}, 0.9) is None
    assert "--entropy-weight" in agent.concern({"entropy": 0.001}, 0.1)


def test_a_torso_that_knows_its_features_wants_them_raw():
    with pytest.raises(ConfigError, match="try observations=raw or torso=mlp"):
        make_plan(make_experiment("ppo", env="HackMatrix-v0", observations="normalized"))


def test_evaluations_take_the_likeliest_action_or_draw():
    agent, learner, _ = collected(MASKED)
    obs = Observation(jnp.zeros((500, 2)), jnp.array([[True, True, False]] * 500))
    calm = decide(agent, learner, obs, jax.random.key(1), explore=False)[0]
    assert len(set(calm.tolist())) == 1
    drawing = type(agent)(small("ppo", evaluation_draws=True), agent.spec)
    assert set(decide(drawing, learner, obs, jax.random.key(1), explore=False)[0].tolist()) == {0, 1}


def test_one_torso_or_two():
    spec = MASKED.spec(4, 8)
    sizes = {}
    for shared in (True, False):
        agent = small("ppo", shared=shared).build(spec)
        params = agent.init(jax.random.key(0), AGENTS["ppo"].hparams)[0].params.network["params"]
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
        return decide(agent, learner, Observation(features(booth, *shown), legal), jax.random.key(0), explore=False)[
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
