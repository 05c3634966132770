"""The family's rule, piece by piece."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probes import Constant, task
from training_tools import decide, small, stack_hparams

from rollax.agents.base import make_optimizer
from rollax.agents.dqn import FAMILY, DQNHParams
from rollax.agents.replaying import StepKeys
from rollax.agents.treasurehunt import ShrinkingEpsilon, SyncedTarget, WeightedLoss
from rollax.memory.replay import Request
from rollax.memory.ring import Batch
from rollax.rules.backups import MunchausenBackup
from rollax.types import Decision, Observation

MADE = task(Constant())
KEY = jax.random.key(11)


def make(config, **values):
    agent = config.build(MADE.spec(8, 1))
    hparams = jax.tree.map(lambda leaf: leaf[0], stack_hparams(1, **values))
    learner, memory = agent.init(jax.random.key(0), hparams)
    return agent, learner, memory


def gradient_step(agent, carry, key):
    return agent.step(carry, (), StepKeys(*jax.random.split(key)))


def other_params(agent, seed):
    return agent.init(jax.random.key(seed), DQNHParams())[0].params


def batch_of(size=5, seed=0, legal=None):
    keys = jax.random.split(jax.random.key(seed), 3)
    features = jax.random.normal(keys[0], (size, 2))
    following = jax.random.normal(keys[1], (size, 2))
    action = jax.random.randint(keys[2], (size,), 0, 2)
    return Batch(
        Observation(features), action, jnp.linspace(-1, 1, size), jnp.full(size, 0.9), Observation(following, legal)
    )


@pytest.mark.parametrize("double", [False, True])
def test_the_target_by_hand(double):
    """The target weights judge; in Double DQN the online weights choose."""
    agent, learner, _ = make(small("dqn", double=double, loss="squared"))
    learner = learner._replace(target_params=other_params(agent, 7))
    batch = batch_of()
    online = agent.returns(learner.params, batch.obs).mean()
    online_next = agent.returns(learner.params, batch.next_obs).mean()
    target_next = agent.returns(learner.target_params, batch.next_obs).mean()
    losses = agent.bellman_error(learner.params, learner, batch, KEY).loss
    for row in range(5):
        chosen = int(jnp.argmax((online_next if double else target_next)[row]))
        goal = batch.reward[row] + 0.9 * target_next[row, chosen]
        np.testing.assert_allclose(losses[row], 0.5 * (online[row, batch.action[row]] - goal) ** 2, rtol=1e-5)


def test_the_bootstrap_maximum_is_over_legal_actions():
    agent, learner, _ = make(small("dqn", loss="squared"))
    batch = batch_of()
    best = jnp.argmax(agent.returns(learner.target_params, batch.next_obs).mean(), axis=-1)
    masked = batch._replace(next_obs=batch.next_obs._replace(legal=jax.nn.one_hot(1 - best, 2).astype(bool)))
    target_next = agent.returns(learner.target_params, batch.next_obs).mean()
    values = agent.returns(learner.params, batch.obs).under(jax.nn.one_hot(batch.action, 2)).values
    goal = batch.reward + 0.9 * jnp.min(target_next, axis=-1)
    losses = agent.bellman_error(learner.params, learner, masked, KEY).loss
    np.testing.assert_allclose(losses, 0.5 * (values - goal) ** 2, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILY)
def test_the_loss_reads_the_target_network_and_sends_it_no_gradient(name):
    """A target network that no loss reads would give the same loss with any weights."""
    agent, learner, _ = make(small(name))
    batch = batch_of()

    def loss(target_params):
        return jnp.sum(
            agent.bellman_error(learner.params, learner._replace(target_params=target_params), batch, KEY).loss
        )

    assert float(loss(learner.target_params)) != float(loss(other_params(agent, 3)))
    gradient = jax.grad(loss)(learner.target_params)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(gradient))


def test_no_gradient_flows_through_the_successor():
    """The gradient is that against a constant target, though the online weights choose the next action."""
    agent, learner, _ = make(small("double", loss="squared"))
    learner = learner._replace(target_params=learner.params)  # what would leak, leaks through the same weights
    batch = batch_of()
    targets = agent.returns(learner.target_params, batch.next_obs).mean()
    goal = np.asarray(batch.reward + 0.9 * jnp.max(targets, axis=-1))

    def against_constant(params):
        return jnp.sum(
            0.5 * (agent.returns(params, batch.obs).under(jax.nn.one_hot(batch.action, 2)).values - goal) ** 2
        )

    def whole(params):
        moved = learner._replace(params=params, target_params=params)
        return jnp.sum(agent.bellman_error(params, moved, batch, KEY).loss)

    ours, expected = jax.grad(whole)(learner.params), jax.grad(against_constant)(learner.params)
    for one, two in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def filled(agent, memory):
    """A memory with enough to sample from."""
    from rollax.envs.protocol import reset_envs, step_envs

    envs = reset_envs(MADE, jax.random.key(1), 8)
    for number in range(6):
        envs, transition, _ = step_envs(MADE, envs, Decision(jnp.zeros(8, jnp.int32)), jax.random.key(number))
        memory = agent.remember(memory, jax.tree.map(lambda leaf: leaf[None], transition))
    return memory


@pytest.mark.parametrize(("period", "step"), [pytest.param(1, 0.25, marks=pytest.mark.thorough), (3, 1.0)])
def test_target_weights_move_softly_or_by_copies(period, step):
    agent, learner, memory = make(small("double"), target_period=period, target_step=step)
    memory = filled(agent, memory)
    for count in range(1, 7):
        before = learner
        (learner, memory), _ = gradient_step(agent, (learner, memory), jax.random.key(count))
        share = step if count % period == 0 else 0.0
        for new, old, target in zip(
            *map(jax.tree.leaves, (learner.params, before.target_params, learner.target_params)), strict=True
        ):
            np.testing.assert_allclose(target, share * new + (1 - share) * old, atol=1e-6)


def test_max_grad_norm_scales_the_whole_gradient():
    """A library that clips each number on its own changes the direction; this must not."""
    rule = make_optimizer("adam", DQNHParams(max_grad_norm=1.0, learning_rate=1.0))
    clip = optax.clip_by_global_norm(1.0)
    gradient = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
    clipped: Any = clip.update(gradient, clip.init(gradient))[0]
    np.testing.assert_allclose(optax.global_norm(clipped), 1.0, rtol=1e-6)
    np.testing.assert_allclose(clipped["a"][0] / clipped["b"][0], 0.75, rtol=1e-6)
    # Adam's first step is the sign of the gradient, so the chain is seen in its second moment instead.
    _, state = rule.update(gradient, rule.init(gradient))
    second = optax.tree.get(state, "nu")
    np.testing.assert_allclose(second["b"] / second["a"][0], (4 / 3) ** 2, rtol=1e-5)
    np.testing.assert_allclose(second["a"][0], 0.001 * 0.6**2, rtol=1e-5)


def test_adam_and_rmsprop_by_hand():
    gradient = {"w": jnp.array([0.5])}
    for optimizer in ("adam", "rmsprop"):
        rule = make_optimizer(optimizer, DQNHParams(learning_rate=0.1, optimizer_eps=0.01, max_grad_norm=100.0))
        update: Any = rule.update(gradient, rule.init(gradient))[0]
        if optimizer == "adam":
            expected = -0.1 * 0.5 / (0.5 + 0.01)
        else:  # centred: the mean and the mean square both start at 0 and move by 0.05
            expected = -0.1 * 0.5 / np.sqrt(0.05 * 0.25 - (0.05 * 0.5) ** 2 + 0.01)
        np.testing.assert_allclose(update["w"][0], expected, rtol=1e-4)


def test_schedules_are_linear_in_environment_steps():
    agent, learner, _ = make(
        small("dqn", gradient_steps=2), epsilon_start=1.0, epsilon_end=0.2, epsilon_steps=800.0, learning_rate=0.1
    )
    for iterations, expected in ((0, 1.0), (50, 0.6), (100, 0.2), (1_000, 0.2)):
        at = learner._replace(gradient_steps=jnp.int32(2 * iterations))
        np.testing.assert_allclose(agent.epsilon(at), expected, rtol=1e-5)
    gradient = {"w": jnp.array([1.0])}
    hparams = DQNHParams(learning_rate=0.1, learning_rate_end=0.5, learning_rate_steps=100.0, max_grad_norm=10.0)
    sizes = []
    for steps in (0.0, 50.0, 100.0, 500.0):
        rule = make_optimizer("adam", hparams, steps)
        update: Any = rule.update(gradient, rule.init(gradient))[0]
        sizes.append(float(-update["w"][0]))
    np.testing.assert_allclose(sizes, [0.1, 0.075, 0.05, 0.05], rtol=1e-4)


def test_verbs_are_pure():
    """The same arguments give the same answer, and stay as they were."""
    agent, learner, memory = make(small("double"))
    memory = filled(agent, memory)
    before = jax.tree.map(np.array, (learner, memory))
    first, second = (gradient_step(agent, (learner, memory), jax.random.key(5)) for _ in range(2))
    for pair in ((first, second), (before, (learner, memory))):
        for left, right in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_array_equal(left, right)


def test_evaluation_epsilon_and_greedy_actions():
    agent, learner, _ = make(small("dqn"))
    obs = Observation(jnp.zeros((4_000, 2)))
    greedy = decide(agent, learner, obs, jax.random.key(0), explore=False).action
    assert len(np.unique(greedy)) == 1
    loose = replace(agent, config=replace(agent.config, evaluation_epsilon=1.0))
    actions = decide(loose, learner, obs, jax.random.key(0), explore=False).action
    np.testing.assert_allclose(np.mean(actions), 0.5, atol=0.05)


def test_weights_of_another_learner_replace_both_networks():
    agent, learner, _ = make(small("dqn"))
    params = other_params(agent, 9)
    moved = agent.with_weights(learner, params)
    for name in ("params", "target_params"):
        for one, two in zip(jax.tree.leaves(getattr(moved, name)), jax.tree.leaves(params), strict=True):
            np.testing.assert_array_equal(one, two)


def test_priorities_of_a_sample_reach_the_replay():
    """After a gradient step a prioritised replay holds the errors of what was drawn, to the exponent."""
    agent, learner, memory = make(small("prioritized"), priority_exponent=0.5)
    memory = filled(agent, memory)
    (_, after), _ = gradient_step(agent, (learner, memory), KEY)
    sample_key, loss_key = jax.random.split(KEY)
    sample = agent.buffer.sample(memory, sample_key, Request(64, learner.hparams.discount, 0.4))
    error = agent.bellman_error(learner.params, learner, sample.batch, loss_key)
    env, leaf = sample.handle
    held = np.asarray(after.tree.levels[0]).reshape(8, -1)[env, leaf]
    np.testing.assert_allclose(held, np.sqrt(error.priority), rtol=1e-4)
    values = agent.returns(learner.params, sample.batch.obs).under(jax.nn.one_hot(sample.batch.action, 2)).values
    np.testing.assert_allclose(error.priority, np.abs(values - 1.0), rtol=1e-4)  # every return is 1


def test_importance_weights_reach_the_loss_and_are_annealed():
    agent, learner, memory = make(
        small("prioritized", loss="squared"), importance_start=0.2, importance_end=1.0, importance_steps=800.0
    )
    memory = filled(agent, memory)
    priorities = jnp.linspace(0.1, 9.0, 8)
    memory = agent.buffer.reprioritize(memory, (jnp.arange(8), jnp.zeros(8, jnp.int32)), priorities, 1.0)
    sample_key, loss_key = jax.random.split(KEY)
    for iterations, exponent in ((0, 0.2), (50, 0.6), (100, 1.0), (999, 1.0)):
        at = learner._replace(gradient_steps=jnp.int32(iterations))
        _, metrics = gradient_step(agent, (at, memory), KEY)
        sample = agent.buffer.sample(memory, sample_key, Request(64, 0.99, exponent))
        error = agent.bellman_error(at.params, at, sample.batch, loss_key)
        assert np.ptp(sample.weight) > 0.1
        np.testing.assert_allclose(metrics["loss"], jnp.mean(sample.weight * error.loss), rtol=1e-4)


@pytest.mark.parametrize("name", ["noisy", "iqn", "rainbow", "irainbow", "munchausen"])
def test_every_pass_of_the_loss_has_keys_of_its_own(name, monkeypatch):
    """Noise and levels that two passes shared would let a prediction agree with its target by itself.

    Only the target network's own choice has its noise, as one draw of weights; never its levels.
    """
    agent, learner, _ = make(small(name))
    noises, levels = [], []
    real = type(agent).returns

    def recorded(self, params, obs, noise: Any = None, level: Any = None):
        noises.append(tuple(jax.random.key_data(noise).tolist()))
        levels.append(tuple(jax.random.key_data(noise if level is None else level).tolist()))
        return real(self, params, obs, noise, level)

    monkeypatch.setattr(type(agent), "returns", recorded)
    agent.bellman_error(learner.params, learner, batch_of(), KEY)
    assert len(levels) == (4 if name == "munchausen" else 3)
    assert len(set(levels)) == len(levels)
    assert len(set(noises)) == len(noises) - (0 if agent.config.double else 1)


def test_the_noisy_target_is_the_best_value_of_one_draw_of_the_target_weights():
    """Fortunato et al. 2018, equation 12: the maximum is taken under the same noise that values it."""
    agent, learner, _ = make(small("noisy", loss="squared"))
    batch = batch_of(64)
    now_key, next_key = jax.random.split(KEY, 4)[:2]
    taken = jax.nn.one_hot(batch.action, 2)
    predicted = jnp.sum(taken * agent.returns(learner.params, batch.obs, now_key).mean(), axis=-1)
    best = jnp.max(agent.returns(learner.target_params, batch.next_obs, next_key).mean(), axis=-1)
    goal = batch.reward + batch.discount * best
    error = agent.bellman_error(learner.params, learner, batch, KEY)
    np.testing.assert_allclose(error.loss, 0.5 * (predicted - goal) ** 2, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["noisy", "iqn", "rainbow", "irainbow"])
def test_another_key_gives_another_loss(name):
    agent, learner, _ = make(small(name))
    batch = batch_of()
    first, same, other = (
        agent.bellman_error(learner.params, learner, batch, key).loss for key in (KEY, KEY, jax.random.key(5))
    )
    np.testing.assert_array_equal(first, same)
    assert np.all(np.asarray(first) != np.asarray(other))


@pytest.mark.parametrize("name", ["noisy", "rainbow", "irainbow"])
def test_noise_explores_and_is_absent_from_evaluations(name):
    config = small(name)
    agent, learner, _ = make(
        replace(config, streams=config.streams.clone(noise_scale=3.0)), epsilon_start=0.0, epsilon_end=0.0
    )
    obs = Observation(jax.random.normal(jax.random.key(0), (200, 2)))
    tries = [decide(agent, learner, obs, jax.random.key(k), explore=True)[0].tolist() for k in range(6)]
    calm = [decide(agent, learner, obs, jax.random.key(k), explore=False)[0].tolist() for k in range(6)]
    assert len(set(map(tuple, tries))) > 1
    assert len(set(map(tuple, calm))) == 1
    greedy = jnp.argmax(agent.returns(learner.params, obs).mean(), axis=-1)
    assert calm[0] == greedy.tolist()


def test_iqn_bootstraps_from_the_target_network():
    """With target weights whose every return is 7, the loss is that against reward + discount * 7."""
    agent, learner, _ = make(small("iqn", loss="squared"))

    def constant(path, leaf):
        place = jax.tree_util.keystr(path)
        if "advantage" not in place:
            return leaf
        return jnp.full_like(leaf, 7.0) if "bias" in place else jnp.zeros_like(leaf)

    learner = learner._replace(target_params=jax.tree_util.tree_map_with_path(constant, learner.params))
    batch = batch_of()
    error = agent.bellman_error(learner.params, learner, batch, KEY)
    now_key = jax.random.split(KEY, 4)[0]
    predicted = agent.returns(learner.params, batch.obs, now_key).under(jax.nn.one_hot(batch.action, 2))
    goal = (batch.reward + 0.9 * 7.0)[:, None]
    weight = jnp.abs(predicted.taus - (goal < predicted.values))
    expected = jnp.sum(weight * 0.5 * (goal - predicted.values) ** 2, axis=1)
    np.testing.assert_allclose(error.loss, expected, rtol=1e-4)


def test_the_munchausen_target_by_hand():
    """Vieillard et al. 2020, equation 1, with everything of the target weights."""
    config = small("munchausen", loss="squared", backup=MunchausenBackup(0.5, 0.9, -1.0))
    agent, learner, _ = make(config)
    learner = learner._replace(target_params=other_params(agent, 7))
    batch = batch_of()
    target_now = np.asarray(agent.returns(learner.target_params, batch.obs).mean(), np.float64)
    target_next = np.asarray(agent.returns(learner.target_params, batch.next_obs).mean(), np.float64)
    online = np.asarray(agent.returns(learner.params, batch.obs).mean())
    error = agent.bellman_error(learner.params, learner, batch, KEY)

    def policy(q):
        weights = np.exp((q - q.max()) / 0.5)
        return weights / weights.sum()

    for row in range(5):
        action = int(batch.action[row])
        now, later = policy(target_now[row]), policy(target_next[row])
        bonus = 0.9 * np.clip(0.5 * np.log(now[action]), -1.0, 0.0)
        follows = np.sum(later * (target_next[row] - 0.5 * np.log(later)))
        goal = float(batch.reward[row]) + bonus + 0.9 * follows
        np.testing.assert_allclose(error.loss[row], 0.5 * (online[row, action] - goal) ** 2, rtol=1e-4)


def test_epsilon_may_shrink_with_every_iteration():
    """The table of the treasure hunt's reference: a decay of 0.001 for each epoch."""
    shrinking = ShrinkingEpsilon(epsilon_start=1.0, epsilon_end=0.4, epsilon_decay=0.001)
    agent, learner, _ = make(small("dqn", gradient_steps=2), exploration=shrinking)
    for iterations, expected in ((0, 1.0), (100, 0.9048), (500, 0.6064), (1_000, 0.4)):
        at = learner._replace(gradient_steps=jnp.int32(2 * iterations))
        np.testing.assert_allclose(agent.epsilon(at), expected, atol=5e-5)


def test_target_weights_are_copied_whole_after_so_many_iterations():
    """Beside their small moves, at multiples of `sync_period` and only there."""
    synced = SyncedTarget(target_step=0.001, sync_period=3)
    agent, learner, memory = make(small("dqn", gradient_steps=2), target=synced, learning_rate=0.01)
    memory, step, same = filled(agent, memory), jax.jit(functools.partial(gradient_step, agent)), []
    for number in range(12):
        (learner, memory), _ = step((learner, memory), jax.random.fold_in(KEY, number))
        pairs = zip(jax.tree.leaves(learner.params), jax.tree.leaves(learner.target_params), strict=True)
        same.append(all(np.array_equal(one, two) for one, two in pairs))
    assert np.flatnonzero(same).tolist() == [5, 11]


def test_a_loss_may_be_weighed():
    """Half the loss is half the gradient, which the limit of its norm sees."""
    found = []
    for weight in (1.0, 0.5):
        agent, learner, memory = make(small("dqn"), objective=WeightedLoss(loss_weight=weight))
        found.append(float(gradient_step(agent, (learner, filled(agent, memory)), KEY)[1]["loss"]))
    np.testing.assert_allclose(found[1], found[0] / 2, rtol=1e-6)
