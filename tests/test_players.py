"""Several players: nobody's learning reaches another, and one after the other is the same as all at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rollax
from rollax.agents.players import SeparateLearners
from rollax.envs.check import check_environment
from rollax.envs.treasurehunt import TreasureHunt
from rollax.errors import ConfigError
from rollax.programs.plan import make_plan
from rollax.reports.films import watch
from rollax.reports.playing import play
from rollax.types import Observation

SMALL: Any = {
    "env": "TreasureHunt-v0", "agents": 3, "height": 6, "width": 6, "max_turns": 8, "rollout_length": 8, "steps": 80,
    "hidden": (12,), "shared_hidden": 12, "batch_size": 8, "capacity": 60, "frames": 3, "act_levels": 4, "quantiles": 4,
    "learning_rate": 0.01, "sync_period": 4, "eval_episodes": 4, "spawn_prob": 0.2,
}  # fmt: skip


def hunt(**changes):
    return rollax.make_experiment("irainbow", **(SMALL | changes))


def trained(experiment, iterations=6):
    plan = make_plan(experiment)
    program: Any = plan.program
    state, _ = jax.jit(program.init)(plan.keys, plan.hparams)
    step = jax.jit(lambda state, stop: program.repeat(state, stop, jnp.int32(1), learn=True))
    return plan, *step(state, jnp.int32(iterations))


@pytest.mark.thorough  # the same in one timing, to the last bit: test_comparison.py
@pytest.mark.parametrize("preset", ["irainbow/TreasureHunt-v0", "irainbow/TreasureHunt-v0/reference"])
def test_one_after_the_other_is_the_same_as_all_at_once(preset):
    """Every whole number of the memory is equal, weights to 1e-5."""
    (_, one, rows), (_, other, same) = (trained(hunt(agent_map=way, preset=preset)) for way in ("vmap", "map"))
    for left, right in zip(jax.tree.leaves(one.memory), jax.tree.leaves(other.memory), strict=True):
        np.testing.assert_array_equal(left, right)
    for left, right in zip(jax.tree.leaves(one.learner.params), jax.tree.leaves(other.learner.params), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)
    np.testing.assert_allclose(rows, same, atol=1e-4)
    assert int(one.memory.row) == 6 * (8 + 2) % 60


@pytest.mark.thorough
@pytest.mark.parametrize("timing", ["sequential", "simultaneous"])
def test_players_may_move_in_an_order_that_is_drawn(timing):
    """Whoever moves first, each acts with its own weights: one after the other is the same as all at once."""
    changes = {"shuffle_agent_order": True, "obs_timing": timing}
    (_, one, _), (_, other, _) = (trained(hunt(agent_map=way, **changes), 3) for way in ("vmap", "map"))
    for left, right in zip(jax.tree.leaves(one.memory), jax.tree.leaves(other.memory), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.thorough
def test_a_player_that_is_known_only_later_acts_with_its_own_weights():
    """Where the order of moves is drawn, the number of who is next is an array."""
    plan, state, _ = trained(hunt(), 1)
    agent, learner = plan.program.loop.agent, jax.tree.map(lambda leaf: leaf[0], state.learner)
    apart, obs = agent.apart(learner), Observation(jax.random.normal(jax.random.key(5), (40, 3, 125)))
    assert isinstance(apart, SeparateLearners)

    fresh = jnp.zeros(40, bool)
    later = jax.jit(lambda player: agent.act_as(apart, player, (), obs, fresh, jax.random.key(0), explore=False)[0])
    acted = set()
    for player in range(3):
        key = jax.random.fold_in(jax.random.key(0), player)
        alone = agent.agent.act(apart[player], (), obs, fresh, key, explore=False).action
        assert later(jnp.int32(player)).tolist() == alone.tolist()
        acted.add(tuple(alone.tolist()))
        known = agent.act_as(apart, player, (), obs, fresh, jax.random.key(0), explore=False)
        assert known.action.tolist() == alone.tolist()
    assert len(acted) == 3  # they would do different things


def test_players_are_independent():
    """Another memory for player 2 leaves the others' weights as they are, to the last bit."""
    plan, state, _ = trained(hunt(), iterations=4)
    agent = plan.program.loop.agent
    one = jax.tree.map(lambda leaf: leaf[0] if leaf.ndim else leaf, (state.learner, state.memory))
    changed = one[1]._replace(reward=one[1].reward.at[2].add(5.0))
    rollout = jax.eval_shape(plan.program.loop.collect, one[0], jax.tree.map(lambda x: x[0], state.envs), state.key[0])[
        1
    ]
    rollout = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), rollout)
    learn = jax.jit(agent.learn)
    calm, other = (learn(one[0], memory, rollout, jax.random.key(1))[0] for memory in (one[1], changed))
    pairs = list(zip(jax.tree.leaves(calm.params), jax.tree.leaves(other.params), strict=True))
    assert all(np.array_equal(left[:2], right[:2]) for left, right in pairs)
    assert any(not np.array_equal(left[2], right[2]) for left, right in pairs)
    # They began differently, and each has a memory of its own.
    kernel = one[0].params["params"]["torso"]["Dense_0"]["kernel"]
    assert not np.array_equal(kernel[0], kernel[1])
    assert not np.array_equal(one[1].frames[0], one[1].frames[1])


def test_learning_waits_until_there_is_a_batch():
    """The schedule counts every epoch; weights move from the first one on that leaves enough windows."""
    moved = []
    for iterations in (1, 2):
        plan, state, _ = trained(hunt(), iterations)
        start = jax.jit(plan.program.init)(plan.keys, plan.hparams)[0]
        pairs = zip(jax.tree.leaves(start.learner.params), jax.tree.leaves(state.learner.params), strict=True)
        moved.append(any(not np.array_equal(one, two) for one, two in pairs))
        assert np.all(np.asarray(state.learner.gradient_steps) == iterations)
    assert moved == [False, True]  # 10 rows hold 7 windows of 3 frames, 20 rows 17


@pytest.mark.thorough
def test_one_learner_for_all():
    """Each player is an environment of the shared learner, and any agent of the library learns so."""
    for agent, changes in {"double": {"capacity": 480}, "ppo": {"minibatches": 2}}.items():
        values: dict[str, Any] = {
            name: SMALL[name] for name in ("env", "agents", "height", "width", "max_turns", "hidden", "steps")
        }
        values |= {"rollout_length": 8, "num_envs": 2, "warm_up_steps": 16, "preset": "none", "eval_episodes": 3}
        plan, state, _ = trained(rollax.make_experiment(agent, learners="shared", **values, **changes), 3)
        assert plan.program.loop.agent.spec.num_envs == 6
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.params))
        assert float(state.window[0, 0]) == 0  # every iteration ended a row


@pytest.mark.thorough
def test_a_run_from_start_to_picture(tmp_path):
    """Trained, evaluated, loaded and watched through the same doors as every other environment."""
    result = rollax.train(hunt(seeds=2, log_steps=8), tmp_path / "run", quiet=True)
    assert result.exit_code == 0
    returns = result.curves["episode_return_mean"]
    assert returns.shape == (2, 10)
    policy = rollax.load(tmp_path / "run", member=1)
    game = TreasureHunt(agents=3, height=6, width=6, max_turns=8, frames=3)
    obs, _ = game.reset(jax.random.key(0))
    assert policy(obs).shape == (3,)
    path, ending = watch(tmp_path / "run")
    assert path.read_bytes().startswith(b"GIF")
    assert ending.steps == 8


@pytest.mark.thorough
def test_a_longer_run_is_the_same_as_a_resumed_one(tmp_path):
    rollax.train(hunt(seeds=2), tmp_path / "run", quiet=True)
    longer = rollax.resume(tmp_path / "run", steps=120, quiet=True)
    straight = rollax.train(hunt(seeds=2, steps=120, eval_steps=8), tmp_path / "straight", quiet=True)
    shas = [[member["params_sha256"] for member in one.summary["members"]] for one in (longer, straight)]
    assert shas[0] == shas[1]


def test_the_environment_is_checked_as_others_are():
    lines = check_environment("TreasureHunt-v0", 60)
    assert "5 players" in lines
    assert lines[-1] == "ok"


def test_mistakes_are_answered():
    with pytest.raises(ConfigError, match="has 5 players, and a keyboard is for one"):
        play("TreasureHunt-v0")
    with pytest.raises(ConfigError, match="agents=40 do not fit on the 16 free cells"):
        make_plan(hunt(agents=40))
    with pytest.raises(ConfigError, match="rollout_length=4 must be 8"):
        make_plan(hunt(rollout_length=4))
    with pytest.raises(ConfigError, match="num_envs=2 must be 1"):
        make_plan(hunt(num_envs=2))
