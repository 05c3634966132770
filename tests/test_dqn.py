"""The family's rule, piece by piece."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probes import Constant, task
from training_tools import small, stack_hparams

from rollax.agents.dqn import DQNHParams
from rollax.replay import Batch
from rollax.types import Observation

MADE = task(Constant())


def make(config, **values):
    agent = config.build(MADE.spec(8, 1))
    hparams = jax.tree.map(lambda leaf: leaf[0], stack_hparams(1, **values))
    learner, memory = agent.init(jax.random.key(0), hparams)
    return agent, learner, memory


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
    losses = agent.bellman_losses(learner.params, learner, batch)
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
    values = agent.returns(learner.params, batch.obs).at(batch.action).values
    goal = batch.reward + 0.9 * jnp.min(target_next, axis=-1)
    losses = agent.bellman_losses(learner.params, learner, masked)
    np.testing.assert_allclose(losses, 0.5 * (values - goal) ** 2, rtol=1e-4)


def test_the_loss_reads_the_target_network_and_sends_it_no_gradient():
    agent, learner, _ = make(small("double"))
    batch = batch_of()

    def loss(target_params):
        return jnp.sum(agent.bellman_losses(learner.params, learner._replace(target_params=target_params), batch))

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
        return jnp.sum(0.5 * (agent.returns(params, batch.obs).at(batch.action).values - goal) ** 2)

    def whole(params):
        moved = learner._replace(params=params, target_params=params)
        return jnp.sum(agent.bellman_losses(params, moved, batch))

    ours, expected = jax.grad(whole)(learner.params), jax.grad(against_constant)(learner.params)
    for one, two in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def filled(agent, memory):
    """A memory with enough to sample from."""
    from rollax.envs.base import reset_envs, step_envs

    envs = reset_envs(MADE, jax.random.key(1), 8)
    for number in range(6):
        envs, transition, _ = step_envs(MADE, envs, jnp.zeros(8, jnp.int32), (), jax.random.key(number))
        memory = agent.remember(memory, jax.tree.map(lambda leaf: leaf[None], transition))
    return memory


@pytest.mark.parametrize(("period", "step"), [(1, 0.25), (3, 1.0)])
def test_target_weights_move_softly_or_by_copies(period, step):
    agent, learner, memory = make(small("double"), target_period=period, target_step=step)
    memory = filled(agent, memory)
    for count in range(1, 7):
        before = learner
        learner, _ = agent.gradient_step(learner, memory, jax.random.key(count))
        share = step if count % period == 0 else 0.0
        for new, old, target in zip(
            *map(jax.tree.leaves, (learner.params, before.target_params, learner.target_params)), strict=True
        ):
            np.testing.assert_allclose(target, share * new + (1 - share) * old, atol=1e-6)


def test_max_grad_norm_scales_the_whole_gradient():
    """A library that clips each number on its own changes the direction; this must not."""
    agent, _, _ = make(small("dqn"))
    rule = agent.optimizer(DQNHParams(max_grad_norm=1.0, learning_rate=1.0))
    clip = optax.clip_by_global_norm(1.0)
    gradient = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
    clipped, _ = clip.update(gradient, clip.init(gradient))
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
        agent, _, _ = make(small("dqn", optimizer=optimizer))
        rule = agent.optimizer(DQNHParams(learning_rate=0.1, optimizer_eps=0.01, max_grad_norm=100.0))
        update, _ = rule.update(gradient, rule.init(gradient))
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
        rule = agent.optimizer(hparams, steps)
        sizes.append(float(-rule.update(gradient, rule.init(gradient))[0]["w"][0]))
    np.testing.assert_allclose(sizes, [0.1, 0.075, 0.05, 0.05], rtol=1e-4)


def test_verbs_are_pure():
    """The same arguments give the same answer, and stay as they were."""
    agent, learner, memory = make(small("double"))
    memory = filled(agent, memory)
    before = jax.tree.map(np.array, (learner, memory))
    first, second = (agent.gradient_step(learner, memory, jax.random.key(5)) for _ in range(2))
    for pair in ((first, second), (before, (learner, memory))):
        for left, right in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_array_equal(left, right)


def test_evaluation_epsilon_and_greedy_actions():
    agent, learner, _ = make(small("dqn"))
    obs = Observation(jnp.zeros((4_000, 2)))
    greedy, _ = agent.act(learner, obs, jax.random.key(0), explore=False)
    assert len(np.unique(greedy)) == 1
    loose = replace(agent, config=replace(agent.config, evaluation_epsilon=1.0))
    actions, _ = loose.act(learner, obs, jax.random.key(0), explore=False)
    np.testing.assert_allclose(np.mean(actions), 0.5, atol=0.05)


def test_weights_of_another_learner_replace_both_networks():
    agent, learner, _ = make(small("dqn"))
    params = other_params(agent, 9)
    moved = agent.with_weights(learner, params)
    for name in ("params", "target_params"):
        for one, two in zip(jax.tree.leaves(getattr(moved, name)), jax.tree.leaves(params), strict=True):
            np.testing.assert_array_equal(one, two)
