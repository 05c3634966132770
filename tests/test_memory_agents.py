"""Agents that remember: what a cell must keep to, and each mistake that recurrent agents are known for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Counter, Endless, Masked, Probe, task
from training_tools import make_program, runner, seed_keys, small, stack_hparams, start

import rollax
from rollax.agents.rollouts import minibatch
from rollax.envs import registry
from rollax.envs.views import ViewConfig
from rollax.errors import ConfigError
from rollax.memory.replay import Request
from rollax.memory.sequences import SequenceReplay
from rollax.networks.heads import CategoricalHead, ImplicitQuantileHead, QuantileHead, RescaledHead, ScalarHead
from rollax.networks.recurrence import GRU, LSTM, MinGRU, orthogonal_squares
from rollax.rules.returns import Rescaled, squash, unsquash
from rollax.types import Observation

CELLS = {"gru": GRU(units=12), "lstm": LSTM(units=12), "min_gru": MinGRU(units=12)}
SLOWLY = [pytest.param(name, marks=pytest.mark.thorough) for name in ("pqn", "ppo", "r2d2")]
SEQUENCES = SequenceReplay(capacity=8_000, n_step=2, sequence=6, burn_in=4, stride=5)


def config(name: str, cell: Any = CELLS["gru"], **changes: Any) -> Any:
    changes = {"replay": SEQUENCES, "batch_size": 16, **changes} if name == "r2d2" else changes
    return small(name, recurrence=cell, **changes)


def read(cell: Any, params: Any, carry: Any, features: Any, fresh: Any) -> Any:
    """What a cell makes of features: the last carry, what it shows, and all carries."""
    return cell.apply(params, carry, features, fresh)


def weights_of(cell: Any, inputs: int = 3) -> Any:
    return cell.init(jax.random.key(0), cell.initial_carry(1), jnp.zeros((1, 1, inputs)), jnp.ones((1, 1), bool))


def steps(length: int = 9, num: int = 4) -> tuple[Any, Any]:
    features = jax.random.normal(jax.random.key(1), (length, num, 3))
    return features, jax.random.bernoulli(jax.random.key(2), 0.3, (length, num)).at[0].set(True)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_stepping_is_unrolling_split_anywhere(name, cut):
    cell = CELLS[name]
    params, (features, fresh) = weights_of(cell), steps()
    dirty = jax.tree.map(lambda x: x + 7.0, cell.initial_carry(4))  # the first of an episode must clear it
    last, whole, carries = read(cell, params, dirty, features, fresh)
    carry, rows = dirty, []
    for t in range(len(features)):
        carry, row, _ = read(cell, params, carry, features[t : t + 1], fresh[t : t + 1])
        rows.append(row[0])
        for one, many in zip(jax.tree.leaves(carry), jax.tree.leaves(carries), strict=True):
            np.testing.assert_allclose(one, many[t], atol=1e-6)
    np.testing.assert_allclose(jnp.stack(rows), whole, atol=1e-6)
    middle, first, _ = read(cell, params, dirty, features[:cut], fresh[:cut])
    end, second, _ = read(cell, params, middle, features[cut:], fresh[cut:])
    np.testing.assert_allclose(jnp.concatenate([first, second]), whole, atol=1e-6)
    for one, other in zip(jax.tree.leaves(end), jax.tree.leaves(last), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_recurrent_weights_keep_lengths():
    weights = np.asarray(orthogonal_squares(jax.random.key(0), (48, 96))).reshape(48, 2, 48)
    for square in (weights[:, 0], weights[:, 1]):
        np.testing.assert_allclose(square.T @ square, np.eye(48), atol=1e-3)
    assert not np.allclose(weights[:, 0], weights[:, 1])


@pytest.mark.parametrize("name", CELLS)
def test_nothing_leaks_over_the_beginning_of_an_episode(name):
    cell = CELLS[name]
    params, (features, _) = weights_of(cell), steps()
    fresh = jnp.zeros(features.shape[:2], bool).at[4].set(True)
    other = features.at[:4].add(5.0)
    carry = cell.initial_carry(4)
    one, two = (read(cell, params, carry, x, fresh)[1] for x in (features, other))
    assert np.array_equal(one[4:], two[4:]), "exactly"
    assert not np.array_equal(one[:4], two[:4])


@pytest.mark.parametrize("name", CELLS)
def test_a_long_memory_is_there_from_the_beginning(name):
    """Of what was shown a hundred steps ago something is left; with all gates half open, nothing."""

    def left(cell):
        features = jnp.zeros((101, 2, 3)).at[0, 0].set(2.0)
        seen = read(cell, weights_of(cell), cell.initial_carry(2), features, jnp.zeros((101, 2), bool))[1]
        return float(jnp.max(jnp.abs(seen[-1, 0] - seen[-1, 1])))

    assert left(CELLS[name].clone(units=64)) > 1e-3
    assert left(CELLS[name].clone(units=64, gate_bias=0.0)) < 1e-6


@dataclass(frozen=True)
class Walk(Probe):
    """A number that wanders, cut by a time limit of five steps: what came before it matters to who remembers."""

    episode_length: int = 5
    truncates: bool = True

    def reset(self, key, params):
        _, state = super().reset(key, params)
        state = {**state, "place": jax.random.normal(key)}
        return self.observe(state), state

    def observe(self, state):
        return jnp.stack([state.get("place", jnp.float32(0)), state["time"].astype(jnp.float32)])

    def step(self, key, state, action, params):
        moved = {**state, "place": state["place"] + jax.random.normal(key)}
        return super().step(jax.random.fold_in(key, 1), moved, action, params)


def collected(agent_config, made, num_envs=4, length=12, iterations=1):
    """The agent, its learner, and rollouts that follow on each other."""
    program = make_program(made, agent_config, num_envs, length)
    name = {"PQN": "pqn", "PPO": "ppo", "R2D2": "r2d2"}[type(program.loop.agent).__name__]
    state = jax.tree.map(
        lambda leaf: leaf[0] if leaf.ndim else leaf, program.init(seed_keys(0), stack_hparams(1, name))[0]
    )
    envs, rollouts = state.envs, []
    for number in range(iterations):
        envs, rollout, _ = jax.jit(program.loop.collect)(state.learner, envs, jax.random.key(number))
        rollouts.append(rollout)
    return program.loop.agent, state, rollouts


@pytest.mark.parametrize(
    ("name", "cell", "interval"),
    [
        ("pqn", "gru", 12),
        *(
            pytest.param(name, cell, interval, marks=pytest.mark.thorough)
            for name, cell, interval in (("ppo", "gru", 1), ("ppo", "lstm", 12), ("pqn", "min_gru", 1))
        ),
    ],
)
def test_a_bootstrap_at_a_time_limit_is_that_episode_replayed_alone(name, cell, interval):
    """Not the next episode's memory, not that of one step before, not a death."""
    length = 5 if interval == 1 else 12
    made = task(Walk(episode_length=length), interval)
    agent, state, (rollout,) = collected(config(name, CELLS[cell]), made)
    params = state.learner.params
    extra = (jax.random.key(0),) if name == "pqn" else ()
    found = np.asarray(agent.next_values(params, rollout, *extra))
    cuts = 0
    for env in range(4):
        begins = 0
        for t in range(12):
            begins = t if bool(rollout.fresh[t, env]) else begins
            if not (bool(rollout.truncated[t, env]) or t == 11):
                continue
            cuts += bool(rollout.truncated[t, env])
            carry = agent.initial_carry(1)
            seen = [rollout.obs.features[k, env] for k in range(begins, t + 1)] + [rollout.next_obs.features[t, env]]
            for number, features in enumerate(seen):
                asked = (carry, Observation(features[None]), jnp.array([number == 0]))
                if name == "pqn":
                    carry, ask = agent.look(params, *asked)
                    value = float(jnp.max(ask(None, None).mean()))
                else:
                    _, values, carry = agent.look(params, *asked)
                    value = float(values[0])
            assert found[t, env] == pytest.approx(value, abs=1e-5)
    assert cuts > 0


@pytest.mark.parametrize(
    ("cell", "shared"), [("gru", False), pytest.param("lstm", True, marks=pytest.mark.thorough), ("min_gru", True)]
)
def test_the_first_minibatch_of_ppo_has_not_moved(cell, shared):
    """A stored memory that is one step off shows as a divergence from the policy that acted."""
    agent, state, (rollout,) = collected(config("ppo", CELLS[cell], shared=shared), task(Walk(), 5))
    _, lessons = agent.begin(state.learner, (), rollout, jax.random.key(0))
    rows = jnp.array([2, 0])
    lesson = minibatch(lessons.shared, rows, agent.config.recurrence)
    _, metrics = agent.loss(state.learner.params, state.learner.hparams, jnp.float32(0), lesson)
    assert float(metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    _, value = agent.judge(state.learner.params, lesson.obs, lesson.past)
    np.testing.assert_allclose(value, rollout.notes.value[:, rows].reshape(-1), atol=1e-5)


@pytest.mark.parametrize("name", SLOWLY)
def test_a_time_limit_is_no_death(name):
    """Reward 1 for ever, cut every five steps, at a discount of 0.9: worth 10, where deaths would make it 4.1."""
    made = task(Endless(episode_length=5), 5)
    rollout = 10 if name == "r2d2" else 8
    heads = {"head": ScalarHead()} if name == "r2d2" else {}
    program = make_program(made, config(name, GRU(units=16), **heads), 8, rollout)
    settings = {
        "discount": 0.9,
        "learning_rate": 3e-3,
        "target_step": 0.05,
        "huber_kappa": 100.0,
        "entropy_weight": 0.0,
    }
    keys, hparams = seed_keys(0), stack_hparams(1, name, **settings)
    warm_up = 5 if name == "r2d2" else 0
    state = runner(program, keys, hparams, warm_up)(keys, hparams, 600)
    agent: Any = program.loop.agent
    params = jax.tree.map(lambda leaf: leaf[0], state.learner.params)
    asked = (agent.initial_carry(1), Observation(jnp.array([[1.0, 0.0]])), jnp.array([True]))
    value = agent.look(params, *asked)[1]
    value = value[0] if name == "ppo" else jnp.max(value(None, None).mean())
    assert float(value) == pytest.approx(10.0, rel=0.1)


HEADS = [ScalarHead(), RescaledHead(), CategoricalHead(), QuantileHead(quantiles=5), ImplicitQuantileHead(quantiles=4)]


@pytest.mark.parametrize(
    ("rollout", "replay", "length", "truncates", "interval"),
    [
        (10, SequenceReplay(320, 2, sequence=6, burn_in=4, stride=5), 7, True, 7),
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in (
                (10, SequenceReplay(320, 3, sequence=6, burn_in=0, stride=10), 7, False, 1),
                (1, SequenceReplay(160, 1, sequence=3, burn_in=2, stride=4), 3, True, 1),
                (4, SequenceReplay(256, 4, sequence=5, burn_in=3, stride=8), 5, True, 5),
                (4, SequenceReplay(256, 2, sequence=9, burn_in=3, stride=8), 4, True, 4),
            )
        ),
    ],
)
def test_sequences_are_the_rollouts_that_they_came_from(rollout, replay, length, truncates, interval):
    """At every fill level, over wraps and endings: with the weights that acted, what is seen is what was seen then."""
    made = task(Counter(episode_length=length, truncates=truncates), interval)
    agent_config = config("r2d2", GRU(units=6), replay=replay, batch_size=4)
    program = make_program(made, agent_config, 4, rollout)
    agent: Any = program.loop.agent
    state = jax.tree.map(
        lambda leaf: leaf[0] if leaf.ndim else leaf, start(program, seed_keys(0), stack_hparams(1, "r2d2"), 0)
    )
    params, memory, envs, rollouts = state.learner.params, state.memory, state.envs, []
    collect, add = jax.jit(program.loop.collect), jax.jit(agent.remember)
    sample = jax.jit(lambda memory, key: agent.buffer.sample(memory, key, Request(24, 0.9, 0.4)))
    see = jax.jit(lambda sequence: agent.seen(params, sequence))
    iterations = 3 * replay.capacity // (4 * rollout)
    every = max(1, iterations // 8)
    for number in range(iterations):
        envs, one, _ = collect(state.learner, envs, jax.random.key(number))
        rollouts.append(one)
        memory = add(memory, one)
        if (number + 1) * rollout < replay.read or number % every:
            continue
        everything = jax.tree.map(lambda *parts: jnp.concatenate(parts), *rollouts)
        truth = seen_in(agent, params, everything)
        drawn = sample(memory, jax.random.key(number))
        batch, seen = drawn.batch, np.asarray(see(drawn.batch.sequence))
        assert bool(jnp.all(batch.counts))
        oldest = len(everything.reward) - replay.capacity // 4
        for row in range(0, len(batch.action), 7):
            t, env = where(everything.obs, batch.obs.features[row])
            assert t >= oldest
            np.testing.assert_allclose(seen[int(batch.now[row])], truth.now[t, env], atol=1e-5)
            reward, discount, last = 0.0, 1.0, t
            for k in range(t, t + replay.n_step):
                reward += discount * float(everything.reward[k, env])
                discount, last = discount * 0.9, k
                if bool(everything.terminated[k, env] | everything.truncated[k, env]):
                    break
            assert float(batch.reward[row]) == pytest.approx(reward, rel=1e-5)
            if bool(everything.terminated[last, env]):
                assert float(batch.discount[row]) == 0.0
                continue
            assert float(batch.discount[row]) == pytest.approx(discount, rel=1e-5)
            np.testing.assert_allclose(batch.next_obs.features[row], everything.next_obs.features[last, env])
            np.testing.assert_allclose(seen[int(batch.after[row])], truth.after[last, env], atol=1e-5)


@dataclass
class Truth:
    now: Any
    after: Any


def seen_in(agent, params, rollout) -> Truth:
    """What the network has seen at every step of a long rollout, and at its true successor."""
    carry = agent.initial_carry(rollout.reward.shape[1])
    _, now, carries = agent.remembered(params, carry, rollout.obs.features, rollout.fresh)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (carries, rollout.next_obs.features))
    _, after, _ = agent.remembered(params, rows[0], rows[1][None], jnp.zeros((1, rollout.reward.size), bool))
    return Truth(np.asarray(now), np.asarray(after).reshape(*rollout.reward.shape, -1))


def where(obs, features) -> tuple[int, int]:
    """The step and the environment of an observation that there is once."""
    found = np.argwhere(np.all(np.asarray(obs.features) == np.asarray(features), axis=-1))
    assert len(found) == 1
    return int(found[0][0]), int(found[0][1])


@pytest.mark.thorough
def test_no_step_of_a_sequence_crosses_an_interruption():
    """Where a run was stopped, its rows are no steps; after them a new episode begins, and nothing leaks."""
    replay = SequenceReplay(160, 1, sequence=4, burn_in=2, stride=2)
    made = task(Counter(episode_length=9, truncates=True), 9)
    program = make_program(made, config("r2d2", GRU(units=6), replay=replay, batch_size=4), 4, 2)
    one: Any = program.loop.agent
    agent: Any = replace(one, spec=one.spec._replace(restarts=True))
    state = jax.tree.map(
        lambda leaf: leaf[0] if leaf.ndim else leaf, start(program, seed_keys(0), stack_hparams(1, "r2d2"), 0)
    )
    memory, _ = agent.init(jax.random.key(0), state.learner.hparams)[::-1]
    collect = jax.jit(program.loop.collect)
    envs, parts = state.envs, []
    for number in range(12):
        envs, one, _ = collect(state.learner, envs, jax.random.key(number))
        memory = agent.remember(memory, one)
        parts.append(one)
        if number == 6:
            memory = agent.interrupt(memory, jax.tree.map(lambda x: x[-1], one.next_obs))
            envs = made.begin(jax.random.key(77), 4, envs.carry)
            begun = len(parts) * 2
    everything = jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)
    truth = seen_in(agent, state.learner.params, everything)
    drawn = agent.buffer.sample(memory, jax.random.key(5), Request(64, 0.9, 0.4)).batch
    seen = np.asarray(agent.seen(state.learner.params, drawn.sequence))
    assert not bool(jnp.all(drawn.counts)), "some rows are no steps"
    stopped = 0
    for row in np.flatnonzero(np.asarray(drawn.counts))[::3]:
        t, env = where(everything.obs, drawn.obs.features[row])
        np.testing.assert_allclose(seen[int(drawn.now[row])], truth.now[t, env], atol=1e-5)
        np.testing.assert_allclose(drawn.next_obs.features[row], everything.next_obs.features[t, env])
        np.testing.assert_allclose(seen[int(drawn.after[row])], truth.after[t, env], atol=1e-5)
        stopped += t == begun - 1
    assert stopped > 0


@pytest.mark.thorough
@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_every_head_learns_from_sequences(head):
    made = task(Masked())
    program = make_program(made, config("r2d2", GRU(units=8), head=head, batch_size=8), 4, 10)
    keys, hparams = seed_keys(0), stack_hparams(1, "r2d2")
    before = start(program, keys, hparams, 4)
    after = runner(program, keys, hparams, 4)(keys, hparams, 8)
    moved = jax.tree.map(lambda one, two: not np.array_equal(one, two), before.learner.params, after.learner.params)
    assert all(jax.tree.leaves(moved))
    assert int(after.health.cause[0]) == 0


def test_numbers_are_squashed_and_come_back():
    numbers = jnp.array([-1e4, -37.0, -0.5, 0.0, 1e-3, 2.0, 500.0, 1e5])
    np.testing.assert_allclose(unsquash(squash(numbers)), numbers, rtol=2e-4, atol=1e-6)
    assert float(squash(jnp.float32(500.0))) == pytest.approx(np.sqrt(501) - 1 + 0.5, rel=1e-6)
    values = Rescaled(squash(jnp.array([[1.0, 9.0]])))
    np.testing.assert_allclose(values.mean(), [[1.0, 9.0]], rtol=1e-5)
    np.testing.assert_allclose(values.under(jnp.array([[0.5, 0.5]])).mean(), [5.0], rtol=1e-5)
    error = Rescaled(squash(jnp.array([5.0]))).bellman_error(
        jnp.array([1.0]), jnp.array([0.5]), Rescaled(squash(jnp.array([8.0]))), 1e9
    )
    assert float(error.loss[0]) == pytest.approx(0.0, abs=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["pqn", "ppo", "r2d2"])
def test_the_first_symbol_is_repeated_after_others_were_shown(name, tmp_path):
    """Who forgets, or clears its memory at the wrong time, is right in a quarter of the steps."""
    values: dict[str, Any] = {
        "env": "RepeatFirst-v0",
        "symbols": 3,
        "length": 6,
        "seed": 1,
        "hidden": (32,),
        "units": 32,
    }
    values |= {"eval_episodes": 50, "eval_steps": 10**9, "learning_rate": 3e-3, "recurrence": "gru", "num_envs": 32}
    rollouts = {"rollout_length": 18, "minibatches": 4, "epochs": 4}
    own = {
        "pqn": {"steps": 60_000, "epsilon_steps": 30_000.0, "discount": 0.5, **rollouts},
        "ppo": {"steps": 60_000, "discount": 0.5, **rollouts},
        "r2d2": {"steps": 60_000, "capacity": 25_600, "epsilon_steps": 30_000.0, "discount": 0.5, "sequence": 12,
                 "burn_in": 4, "stride": 10, "rollout_length": 10, "gradient_steps": 4, "n_step": 1},
    }  # fmt: skip
    result = rollax.train(
        rollax.make_experiment(name, preset="none", **(values | own[name])), tmp_path / "run", quiet=True
    )
    (member,) = result.summary["members"]
    assert member["eval_return_mean"] > 0.9


def test_a_memory_chain_has_a_length_and_velocities_are_hidden():
    chain: Any = registry.make("MemoryChain-bsuite", replace(registry.world_of("MemoryChain-bsuite"), memory_length=7))
    obs, state = chain.reset(jax.random.key(0))
    right = jnp.int32((obs.features[2] + 1) / 2)
    count, total = 0, 0.0
    while True:
        step = chain.step(jax.random.key(count), state, right)
        state, count, total = step.state, count + 1, total + float(step.reward)
        if bool(step.terminated):
            break
    assert (count, total) == (8, 1.0)
    hidden: Any = registry.make("PositionOnlyCartPole-v0")
    whole: Any = registry.make("CartPole-v1")
    obs, state = hidden.reset(jax.random.key(3))
    shown, _ = whole.reset(jax.random.key(3))
    np.testing.assert_array_equal(obs.features, shown.features[jnp.array([0, 2])])
    left, right = (one.step(jax.random.key(4), state, jnp.int32(1)) for one in (hidden, whole))
    np.testing.assert_array_equal(left.next_obs.features, right.next_obs.features[jnp.array([0, 2])])
    assert hidden.truncation_interval == whole.truncation_interval == 500


def test_breakout_without_a_trail_is_breakout_otherwise():
    hidden: Any = registry.make("TraillessBreakout-v0")
    whole: Any = registry.make("Breakout-MinAtar")
    assert (hidden.truncation_interval, hidden.num_actions) == (whole.truncation_interval, whole.num_actions)
    assert hidden.observation.features == jax.ShapeDtypeStruct((10, 10, 3), bool)
    (obs, state), (shown, again) = (one.reset(jax.random.key(3)) for one in (hidden, whole))
    channels = jnp.array([0, 1, 3])
    for number in range(40):
        np.testing.assert_array_equal(obs.features, shown.features[..., channels])
        key, action = jax.random.key(number), jnp.int32(number % 3)
        left, right = hidden.step(key, state, action), whole.step(key, again, action)
        np.testing.assert_array_equal(left.next_obs.features, right.next_obs.features[..., channels])
        assert (left.reward, left.terminated, left.truncated) == (right.reward, right.terminated, right.truncated)
        obs, state, shown, again = left.obs, left.state, right.obs, right.state


def test_the_last_action_and_reward_do_not_leak_over_an_episode():
    made: Any = ViewConfig(observe_last=True).of(task(Counter(episode_length=3)), "counter")
    obs, state = made.reset(jax.random.key(0))
    assert {name: leaf.shape for name, leaf in obs.features.items()} == {
        "observation": (2,), "last_action": (2,), "last_reward": (1,),
    }  # fmt: skip
    assert not np.any(obs.features["last_action"])
    for number in range(3):
        step = made.step(jax.random.key(number), state, jnp.int32(1))
        np.testing.assert_array_equal(step.next_obs.features["last_action"], [0, 1])
        assert float(step.next_obs.features["last_reward"][0]) == float(step.reward) == number
        state = step.state
    assert bool(step.terminated)
    assert not np.any(step.obs.features["last_action"])
    assert float(step.obs.features["last_reward"][0]) == 0
    with pytest.raises(ConfigError, match="observe_last=True is for environments with one player"):
        registry.make("TreasureHunt-v0", view=ViewConfig(observe_last=True))
    with pytest.raises(ConfigError, match="is for environments in JAX"):
        registry.make("gymnasium:CartPole-v1", view=ViewConfig(observe_last=True))


@pytest.mark.parametrize(
    ("agent", "values", "told"),
    [
        ("pqn", {"recurrence": "gru", "num_envs": 6, "minibatches": 4}, "divide num_envs = 6, and a recurrent"),
        ("r2d2", {"recurrence": "none"}, "remembers nothing; set --recurrence gru"),
        ("r2d2", {"replay": "uniform"}, "learns from sequences; set --replay sequences"),
        ("double", {"replay": "sequences"}, "is for an agent that remembers; set --replay uniform"),
        ("r2d2", {"stride": 7, "rollout_length": 20}, "stride=7 and rollout_length=20"),
        ("r2d2", {"capacity": 400}, "capacity=400 holds no sequence of 63; the least is"),
        ("r2d2", {"capacity": 51_201}, "capacity=51201 is not a multiple of"),
        ("r2d2", {"actors": 2}, "do not collect sequences yet"),
    ],
)
def test_mistakes_are_answered_in_a_line(agent, values, told):
    from rollax.programs.plan import make_plan

    with pytest.raises(ConfigError, match=told):
        make_plan(rollax.make_experiment(agent, preset="none", **values))


def test_the_smallest_replay_that_is_offered_is_enough():
    from rollax.programs.plan import make_plan

    with pytest.raises(ConfigError) as caught:
        make_plan(rollax.make_experiment("r2d2", preset="none", capacity=400))
    (problem,) = caught.value.problems
    least = int(problem.rpartition("=")[2])
    make_plan(rollax.make_experiment("r2d2", preset="none", capacity=least, batch_size=4))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["pqn", "ppo", "r2d2"])
def test_a_run_with_a_memory_is_resumed_loaded_and_exported(name, tmp_path):
    """In the middle of episodes, to the bit; and a policy that is stepped plays as the run's evaluation did."""
    from rollax.reports.export import ExportedPolicy, export

    values: dict[str, Any] = {
        "env": "PositionOnlyCartPole-v0", "hidden": (16,), "units": 8, "num_envs": 4, "seeds": 2, "eval_episodes": 4,
        "log_steps": 80, "eval_steps": 800, "recurrence": "lstm",
    }  # fmt: skip
    more = {"capacity": 1_600, "rollout_length": 20, "warm_up_steps": 400, "batch_size": 8, "sequence": 10}
    values |= more if name == "r2d2" else {"rollout_length": 20, "minibatches": 2, "epochs": 1}
    whole = rollax.train(rollax.make_experiment(name, preset="none", steps=1_600, **values), tmp_path / "w", quiet=True)
    rollax.train(rollax.make_experiment(name, preset="none", steps=800, **values), tmp_path / "p", quiet=True)
    parts = rollax.resume(tmp_path / "p", 1_600, quiet=True)
    one, two = ([member["params_sha256"] for member in run.summary["members"]] for run in (whole, parts))
    assert one == two
    policy = rollax.load(tmp_path / "w")
    with pytest.raises(ConfigError, match="this agent remembers"):
        policy(np.zeros(2, np.float32))
    export(tmp_path / "w", tmp_path / "exported")
    exported = ExportedPolicy(tmp_path / "exported")
    carry, theirs = policy.start(), exported.initial_carry(1)
    for number in range(6):
        seen = np.random.default_rng(number).normal(size=2).astype(np.float32)
        action, carry = policy.step(carry, seen, fresh=number in (0, 3))
        other, theirs = exported.step(theirs, seen[None], np.array([number in (0, 3)]))
        assert int(action) == int(other[0])
        for mine, its in zip(jax.tree.leaves(carry), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(np.ravel(mine), np.ravel(its), atol=1e-6)
