"""SAC from first principles, and the agents of actions that are numbers on probes with known optima."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Aim, DelayedNumbers, EndlessNumbers, ModeAndNumber, task
from training_tools import LIGHT, decide, make_program, runner, seed_keys, small, stack_hparams

from rollax.agents.exploring import Noise
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Sample
from rollax.memory.ring import Batch
from rollax.memory.uniform import UniformReplay
from rollax.networks.policies import NumberPolicy
from rollax.types import Observation

LITTLE: dict[str, Any] = {"automatic_temperature": False}  # with a temperature of nearly nothing, values are returns


def learnt(name: str, probe: Any, iterations: int, values: dict[str, Any], **choices: Any) -> tuple[Any, Any]:
    """The agent, and what it has learnt in the probe."""
    rollout = {"ppo": 16}.get(name, 1)
    program = make_program(task(probe), small(name, **choices), rollout_length=rollout)
    warm_up = 0 if rollout > 1 else 32
    hparams = stack_hparams(1, name, **{"learning_rate": 3e-3, "target_step": 0.05, **values})
    state = runner(program, seed_keys(0), hparams, warm_up, LIGHT)(seed_keys(0), hparams, warm_up + iterations)
    return program.loop.agent, jax.tree.map(lambda leaf: leaf[0], state.learner)


def goals(size: int) -> Any:
    return jax.random.uniform(jax.random.key(1), (64, size), minval=0.15, maxval=0.85)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("sac", None),
        ("ppo", NumberPolicy()),
        pytest.param("ppo", NumberPolicy(squashed=True, state_deviation=True), marks=pytest.mark.thorough),
        pytest.param("ppo", NumberPolicy(state_deviation=True, initial_deviation=0.5), marks=pytest.mark.thorough),
    ],
)
def test_the_goal_is_hit(name, numbers):
    """The best action is known for every observation: agents speak of it in [-1, 1], whatever its bounds are."""
    own = {} if numbers is None else {"numbers": numbers, "epochs": 4, "minibatches": 4}
    agent, learner = learnt(name, Aim(), 1_500 if name == "sac" else 400, {"entropy_weight": 0.0}, **own)
    shown = goals(2)
    action = decide(agent, learner, Observation(shown), jax.random.key(0)).action
    assert float(jnp.sqrt(jnp.mean((action - (2 * shown - 1)) ** 2))) < 0.1


@pytest.mark.thorough
def test_choices_and_numbers_together_are_learnt():
    agent, learner = learnt("ppo", ModeAndNumber(), 800, {"entropy_weight": 0.0}, epochs=4, minibatches=4)
    shown = goals(1)
    action = decide(agent, learner, Observation(shown), jax.random.key(0)).action
    assert action.shape == (64, 2)
    assert set(np.asarray(action[:, 0]).tolist()) == {1.0}
    assert float(jnp.sqrt(jnp.mean((action[:, 1:] - (2 * shown - 1)) ** 2))) < 0.15


@pytest.mark.parametrize(
    ("probe", "discount", "expected"),
    [
        (EndlessNumbers(episode_length=5), 0.9, {(1.0, 0.0): 10.0}),  # not 4.1, the five rewards before time runs out
        (DelayedNumbers(episode_length=3), 0.7, {(0.0, 0.0): 0.49, (1.0, 2.0): 1.0}),
    ],
    ids=["endless", "delayed"],
)
@pytest.mark.parametrize(
    "replay",
    [UniformReplay(8_192), pytest.param(PrioritizedReplay(8_192, n_step=3), marks=pytest.mark.thorough)],
    ids=["uniform", "prioritised, three steps"],
)
def test_values_are_those_of_the_probe(probe, discount, expected, replay):
    fixed = {"temperature": 1e-6, "discount": discount, "importance_steps": 8_000.0}
    agent, learner = learnt("sac", probe, 1_500, fixed, replay=replay, **LITTLE)
    shown = jnp.array(list(expected), jnp.float32)
    values = agent.values(learner.params.critics, shown, jnp.zeros((len(expected), 1)))
    np.testing.assert_allclose(values, np.broadcast_to(list(expected.values()), values.shape), atol=0.15)


def test_the_temperature_holds_the_entropy_at_its_target():
    """Where a distance costs little the entropy would be large, and where it costs much, small: neither is."""
    shown = goals(2)
    for target in (-1.5, -0.5):
        agent, learner = learnt("sac", Aim(), 2_500, {"target_entropy": target, "temperature": 0.3})
        entropy = agent.policy(learner.params.actor, shown).entropy()
        assert float(jnp.mean(entropy)) == pytest.approx(2 * target, abs=0.35)


def made(**changes: Any) -> tuple[Any, Any, Sample]:
    """An agent, a learner, and a sample of eight transitions by chance."""
    agent: Any = make_program(task(Aim()), small("sac", **changes)).loop.agent
    hparams = jax.tree.map(lambda leaf: leaf[0], stack_hparams(1, "sac"))
    learner, _ = agent.init(jax.random.key(0), hparams)
    keys = jax.random.split(jax.random.key(1), 4)
    now, after = (Observation(jax.random.normal(key, (8, 2))) for key in keys[:2])
    action, reward = jax.random.uniform(keys[2], (8, 2), minval=-1.0), jax.random.normal(keys[3], (8,))
    batch = Batch(now, action, reward, jnp.full(8, 0.9), after)
    return agent, learner, Sample(batch, jnp.ones(8), ())


def leaves_are_zero(tree: Any) -> bool:
    return all(not np.any(leaf) for leaf in jax.tree.leaves(tree))


def test_each_loss_moves_its_own_weights_alone():
    """Actor and temperature are paid by critics that they do not bend, and critics follow targets that hold still."""
    agent, learner, sample = made()
    key = jax.random.key(2)

    def of(name: str | None) -> Any:
        def value(params: Any) -> Any:
            total, (_, metrics) = agent.loss(params, learner, sample, key)
            return total if name is None else metrics[name]

        return jax.grad(value)(learner.params)

    together, critic, actor = of(None), of("loss"), of("actor_loss")
    assert leaves_are_zero((critic.actor, critic.log_temperature))
    assert leaves_are_zero((actor.critics, actor.log_temperature))
    for whole, part in zip(
        *map(jax.tree.leaves, ((together.critics, together.actor), (critic.critics, actor.actor))), strict=True
    ):
        np.testing.assert_allclose(whole, part, atol=1e-6)
    entropy = agent.loss(learner.params, learner, sample, key)[1][1]["entropy"]
    assert float(together.log_temperature) == pytest.approx(float(entropy) + 2.0, abs=1e-5)  # its target is -2
    fixed, still, sample = made(**LITTLE)
    grads = jax.grad(lambda params: fixed.loss(params, still, sample, key)[0])(still.params)
    assert float(grads.log_temperature) == 0.0


def test_the_target_is_that_of_the_paper():
    """Reward, and discounted: the lower critic of the two at a drawn action, less its log-probability's price."""
    agent, learner, sample = made()
    learner = learner._replace(
        target_critics=jax.tree.map(lambda leaf: leaf * 1.3, learner.target_critics),
        params=learner.params._replace(log_temperature=jnp.log(0.7)),
    )
    key = jax.random.key(2)
    priority = agent.loss(learner.params, learner, sample, key)[1][0]
    policy = agent.policy(learner.params.actor, sample.batch.next_obs.features)
    noise = jax.random.normal(jax.random.split(key)[1], (8, 2))
    action = policy.place(noise)
    after = agent.values(learner.target_critics, sample.batch.next_obs.features, action).min(0)
    target = sample.batch.reward + 0.9 * (after - 0.7 * policy.log_prob(action))
    now = agent.values(learner.params.critics, sample.batch.obs.features, sample.batch.action)
    np.testing.assert_allclose(priority, jnp.abs(now - target).mean(0), atol=2e-3)


def test_weights_of_a_sample_scale_the_critics_loss_alone():
    agent, learner, sample = made()
    key = jax.random.key(3)
    once, twice = (
        agent.loss(learner.params, learner, replace_weight(sample, weight), key)[1][1] for weight in (1.0, 2.0)
    )
    assert float(twice["loss"]) == pytest.approx(2 * float(once["loss"]), rel=1e-5)
    assert float(twice["actor_loss"]) == pytest.approx(float(once["actor_loss"]), rel=1e-6)


def replace_weight(sample: Sample, weight: float) -> Sample:
    return sample._replace(weight=jnp.full(8, weight))


def test_actions_before_learning_are_uniform_and_those_of_play_have_no_noise():
    agent, learner, _ = made()
    shown = Observation(jnp.zeros((4_096, 2)))
    drawn = np.asarray(decide(agent, learner, shown, jax.random.key(0), explore=True).action)
    assert np.histogram(drawn, bins=8, range=(-1, 1))[0] == pytest.approx(1_024, rel=0.15)
    greedy = np.asarray(decide(agent, learner, shown, jax.random.key(0)).action)
    assert np.ptp(greedy, axis=0).max() == 0
    later = replace_count(learner, 1)
    assert np.ptp(np.asarray(decide(agent, later, shown, jax.random.key(0), explore=True).action), axis=0).min() > 0.1


def replace_count(learner: Any, count: int) -> Any:
    return learner._replace(gradient_steps=jnp.int32(count))


def test_correlated_noise_is_normal_at_each_step_and_begins_anew_with_each_episode():
    noise = Noise(1, 0.9)

    def step(carry, own):
        key, fresh = own
        drawn, carry = noise.draw(carry, fresh, key)
        return carry, drawn[:, 0]

    steps, rows = 40, 20_000
    fresh = jnp.zeros((steps, rows), bool).at[0].set(True).at[20].set(True)
    _, drawn = jax.lax.scan(step, noise.initial(rows), (jax.random.split(jax.random.key(0), steps), fresh))
    drawn = np.asarray(drawn)
    np.testing.assert_allclose(drawn.mean(1), 0.0, atol=0.03)
    np.testing.assert_allclose(drawn.std(1), 1.0, atol=0.03)
    for earlier, later, expected in ((3, 4, 0.9), (3, 6, 0.9**3), (19, 20, 0.0), (20, 21, 0.9)):
        assert np.corrcoef(drawn[earlier], drawn[later])[0, 1] == pytest.approx(expected, abs=0.03)


def test_a_replay_of_sequences_is_refused():
    from rollax.memory.sequences import SequenceReplay

    config: Any = small("sac")
    problems = replace(config, replay=SequenceReplay(1_024)).problems(task(Aim()).spec(8, 1))
    assert problems == [config.other_replay()]
