"""What an agent remembers within an episode: carried everywhere, and cleared by nobody but the agent itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting_agent import RECIPE, Counting
from host_tools import Frames, HostFrames, host_program, host_task
from probes import Counter, task
from training_tools import seed_keys

import rollax
from rollax.agents.players import Independent, Shared
from rollax.envs import registry
from rollax.errors import ConfigError
from rollax.programs.evaluate import Evaluator
from rollax.programs.jit import JitProgram
from rollax.programs.loop import Loop
from rollax.programs.plan import make_plan
from rollax.reports.episodes import Ending, Scene, player_of
from rollax.reports.export import ExportedPolicy, export
from rollax.reports.films import film
from rollax.runs.result import Policy, evaluate_run

AGENT = "counting_agent:RECIPE"
LENGTH = 5  # of an episode of `Frames`


def counts(fresh, start):
    """By hand: what is counted in each step `[T, B]`, from flags and the counts before."""
    rows, count = [], np.array(start)
    for row in np.asarray(fresh):
        count = np.where(row, 1, count)
        rows.append(count)
        count = count + 1
    return np.array(rows)


def population(num_envs=4, rollout_length=7):
    hparams = RECIPE.hparams.replace(learning_rate=jnp.zeros(1))
    made = task(Counter())
    agent = Counting(made.spec(num_envs, rollout_length))
    loop = Loop(agent, made, num_envs, rollout_length)
    return JitProgram(loop, Evaluator(agent, made, 3, 20)), hparams


def test_a_carry_is_cleared_where_an_episode_begins_and_only_there():
    program, hparams = population()
    state = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, program.init(seed_keys(0), hparams)[0])
    np.testing.assert_array_equal(program.task.fresh(state.envs), True)
    envs, start = state.envs, [1, 1, 1, 1]
    for seed in range(3):
        envs, rollout, _ = program.loop.collect(state.learner, envs, jax.random.key(seed))
        expected = counts(rollout.fresh, start)
        np.testing.assert_array_equal(rollout.notes, expected)
        np.testing.assert_array_equal(rollout.carry["count"][1:], expected[:-1] + 1)  # as it was before the step
        start = expected[-1] + 1
        np.testing.assert_array_equal(envs.carry["count"], start)
        ended = rollout.terminated | rollout.truncated
        np.testing.assert_array_equal(rollout.fresh[1:], ended[:-1])
        np.testing.assert_array_equal(program.task.fresh(envs), ended[-1])
    assert np.asarray(rollout.fresh).any()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run in one go, and the same interrupted in the middle of an episode and resumed."""
    folder = tmp_path_factory.mktemp("carry")
    values: Any = {"env": "CartPole-v1", "seeds": 2, "eval_episodes": 4, "log_steps": 20}
    whole = rollax.train(rollax.make_experiment(AGENT, steps=240, **values), folder / "whole", quiet=True)
    rollax.train(rollax.make_experiment(AGENT, steps=120, **values), folder / "parts", quiet=True)
    return whole, rollax.resume(folder / "parts", 240, quiet=True)


def test_a_resumed_run_counts_on(runs):
    whole, parts = runs
    hashes = [[member["params_sha256"] for member in run.summary["members"]] for run in runs]
    assert hashes[0] == hashes[1]
    assert (whole.curves["wrong"] == 0).all()
    np.testing.assert_array_equal(whole.curves["episode_return_mean"], parts.curves["episode_return_mean"])


def test_evaluations_begin_with_a_clear_carry(runs):
    """Every episode of CartPole with these actions has the length that a loop by hand gives."""
    policy = rollax.load(runs[0].run_dir)
    rows = evaluate_run(runs[0].run_dir, 8)
    lengths = []
    for seed in range(8):
        _, state = policy.task.reset(jax.random.key(seed))
        for count in range(1, 200):
            step = policy.task.step(jax.random.key(count), state, jnp.int32(count % 3 == 0))
            state = step.state
            if step.terminated:
                break
        lengths.append(count)
    # Without pushing right in two steps of three it falls at once, whatever it starts from.
    assert min(lengths) <= rows[0]["length_mean"] <= max(lengths)


def test_a_loaded_policy_is_stepped(runs):
    policy = rollax.load(runs[0].run_dir)
    with pytest.raises(ConfigError, match="this agent remembers"):
        policy(np.zeros(4, np.float32))
    carry, acted = policy.start(), []
    for step in range(8):
        action, carry = policy.step(carry, np.zeros(4, np.float32), fresh=step in (0, 4))
        acted.append(int(action))
    assert acted == [0, 0, 1, 0] * 2


def test_an_exported_program_takes_and_gives_the_carry(runs, tmp_path):
    export(runs[0].run_dir, tmp_path / "export")
    policy = ExportedPolicy(tmp_path / "export")
    with pytest.raises(ConfigError, match="this agent remembers"):
        policy(np.zeros((2, 4), np.float32))
    carry, acted = policy.initial_carry(2), []
    for step in range(8):
        fresh = np.array([step in (0, 4), step == 0])
        actions, carry = policy.step(carry, np.zeros((2, 4), np.float32), fresh)
        acted.append(actions.tolist())
    assert np.transpose(acted).tolist() == [[0, 0, 1, 0] * 2, [0, 0, 1, 0, 0, 1, 0, 0]]
    assert policy.evaluate(8)[0]["length_mean"] == evaluate_run(runs[0].run_dir, 8)[0]["length_mean"]
    with pytest.raises(ConfigError, match="remembers nothing; leave --onnx out"):
        export(runs[0].run_dir, tmp_path / "onnx", onnx=True)


def test_a_film_shows_what_was_counted(runs):
    """Who plays in a film acts by the steps of the episode so far."""
    policy = rollax.load(runs[0].run_dir)
    obs, state = policy.task.reset(jax.random.key(0))
    play = player_of(policy, seed=0)
    assert [int(play(Scene(state, obs, 0.0, step))) for step in range(6)] == [0, 0, 1, 0, 0, 1]


def test_a_film_of_players_who_decide_in_turn_shows_it_too():
    made: Any = registry.make("TreasureHunt-v0", replace(registry.world_of("TreasureHunt-v0"), agents=2))
    agent = Shared(Counting(made.spec(1, 1)), 2)
    learner, _ = agent.init(jax.random.key(0), RECIPE.hparams)
    obs, state = made.reset(jax.random.key(0))
    play = player_of(Policy(agent, learner, made), seed=0)
    assert [play(Scene(state, obs, 0.0, step)).tolist() for step in range(3)] == [[0, 0], [0, 0], [1, 1]]


class Coloured(HostFrames):
    """The same for a camera."""

    def shown(self):
        return np.repeat(super().shown()[..., None], 3, axis=-1)


def test_a_film_outside_shows_it_too():
    """Counted from 1 to 5 it is paid three times; who forgets, and counts 1 in every step, twice."""
    world = Frames(truncates=True)
    made = replace(host_task(world), camera=lambda: Coloured(1, world))
    agent = Counting(made.spec(1, 1))
    learner, _ = agent.init(jax.random.key(0), RECIPE.hparams)
    *_, ending = film(Policy(agent, learner, made), "Frames", seed=0, most=20)
    assert isinstance(ending, Ending)
    assert (ending.total, ending.steps) == (3.0, LENGTH)


class Lives(HostFrames):
    """After the third step of an episode a life is lost: the learner is told that it ended, and it goes on."""

    def step(self, action):
        step = super().step(action)
        return step._replace(terminated=step.terminated | (self.time == 3))


def test_a_lost_life_is_fresh_too():
    """What the learner is told decides, not whether the screen begins anew."""
    made = replace(host_task(Frames(truncates=True)), open=lambda count: Lives(count, Frames(truncates=True)))
    program = host_program(made, RECIPE.choices, 2, 10, overlap=False)
    keys, hparams = seed_keys(0), RECIPE.hparams.replace(learning_rate=jnp.zeros(1))
    running = program.compile(keys, hparams)
    state = running.advance_to(running.begin(keys, hparams)[0], 1).state
    running.close()
    assert float(state.learner.params["total"][0]) == 2 * 2 * (1 + 2 + 3 + 1 + 2)  # two environments, two episodes
    np.testing.assert_array_equal(state.envs.carry["count"], [[3, 3]])


def test_environments_outside_carry_it_too():
    """Over rollouts, parts of a run, and episodes that end in the middle of a rollout."""
    program = host_program(host_task(Frames(truncates=True)), RECIPE.choices, 2, 7, overlap=False)
    keys, hparams = seed_keys(0), RECIPE.hparams.replace(learning_rate=jnp.zeros(1))
    running = program.compile(keys, hparams)
    state, _ = running.begin(keys, hparams)
    for stop in (2, 3):
        state = running.advance_to(state, stop).state
    running.close()
    steps = 3 * 7
    expected = sum(1 + step % LENGTH for step in range(steps))  # a count from 1 to 5, again and again, in each of two
    assert float(state.learner.params["total"][0]) == 2 * expected
    np.testing.assert_array_equal(state.envs.carry["count"], [[1 + steps % LENGTH] * 2])
    result = program.play(state.learner, keys)
    # Even steps pay for action 1: of counts 1 to 5 only the third, which is step 2, is one.
    reward = sum(int(int(count % 3 == 0) == count % 2) for count in range(1, LENGTH + 1))
    np.testing.assert_array_equal(result.returns, reward)


@pytest.mark.parametrize("overlap", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_resumed_run_outside_begins_new_episodes(overlap, tmp_path):
    values: Any = {"env": "gymnasium:CartPole-v1", "overlap": overlap, "eval_episodes": 2}
    rollax.train(rollax.make_experiment(AGENT, steps=100, **values), tmp_path / "run", quiet=True)
    later = rollax.resume(tmp_path / "run", 200, quiet=True)
    assert np.nansum(later.curves["wrong"]) == 0


@pytest.mark.parametrize("kind", [Independent, Shared])
def test_each_player_has_a_carry_of_its_own(kind):
    spec = task(Counter()).spec(2, 1)
    agent = kind(Counting(spec), 3)
    learner, _ = agent.init(jax.random.key(0), RECIPE.hparams)
    carry, obs = agent.initial_carry(2), jax.tree.map(lambda leaf: jnp.zeros((2, 3, *leaf.shape)), spec.observation)
    assert carry["count"].shape == (2, 3)
    fresh = jnp.ones((2, 3), bool)
    for step in range(3):
        decision = agent.act(learner, carry, obs, fresh, jax.random.key(step), explore=True)
        carry, fresh = decision.carry, jnp.zeros((2, 3), bool).at[1, 2].set(step == 1)
    np.testing.assert_array_equal(carry["count"], [[4, 4, 4], [4, 4, 2]])
    alone = jax.tree.map(lambda leaf: leaf[:, 2], (carry, obs, fresh))
    decided = agent.act_as(learner, 2, *alone, jax.random.key(0), explore=True)
    np.testing.assert_array_equal(decided.notes, [4, 2])


def test_players_who_decide_in_turn_carry_it_too():
    plan = make_plan(
        rollax.make_experiment(
            AGENT, env="TreasureHunt-v0", agents=3, num_envs=2, rollout_length=8, steps=64, max_turns=5, eval_episodes=2
        )
    )
    running = plan.program.compile(plan.keys, plan.hparams)
    state, _ = running.begin(plan.keys, plan.hparams)
    state = running.advance_to(state, 2).state
    turns = 2 * 8
    np.testing.assert_array_equal(state.envs.carry["count"], np.full((1, 2, 3), 1 + turns % 5))
    expected = 2 * sum(1 + turn % 5 for turn in range(turns))
    np.testing.assert_array_equal(state.learner.params["total"], np.full((1, 3), expected))
