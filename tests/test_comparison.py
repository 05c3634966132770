"""PyTorch's mode of the comparison is the same learner in the same world: number by number where both can be told."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import rollax
from rollax.envs import registry
from rollax.envs.treasurehunt import TreasureHunt
from rollax.envs.treasurehunt.world import World
from rollax.errors import ConfigError, ResourceError
from rollax.memory.epochs import EpochReplay
from rollax.programs.plan import make_plan
from rollax.tools.comparison.settings import settings_of
from rollax.types import Observation, Transition

torch = pytest.importorskip("torch", reason="the comparison needs the extra rollax[torch]")

from rollax.tools.comparison.conversion import from_torch, to_torch  # noqa: E402
from rollax.tools.comparison.jax_parallel import JaxParallel  # noqa: E402
from rollax.tools.comparison.jax_sequential import JaxSequential  # noqa: E402
from rollax.tools.comparison.numpy_replay import NumpyReplay  # noqa: E402
from rollax.tools.comparison.numpy_world import NumpyWorld  # noqa: E402
from rollax.tools.comparison.torch_learner import Pass, TorchLearner  # noqa: E402
from rollax.tools.comparison.torch_mode import TorchMode  # noqa: E402

REFERENCE = {"gap_fill": "stale", "gap_size": 0, "episode_end": "never", "nstep_mode": "discount_only"}


def hunt(**changes):
    return rollax.make_experiment("irainbow", env="TreasureHunt-v0", **changes)


@pytest.fixture(scope="module")
def both():
    """One player's agent in JAX with a full batch, and the same weights in PyTorch."""
    plan = make_plan(hunt())
    players: Any = plan.program.loop.agent
    agent = players.agent
    hparams = jax.tree.map(lambda leaf: leaf[0], plan.hparams)
    learner, _ = jax.jit(agent.init)(jax.random.key(3), hparams)
    target = jax.jit(agent.init)(jax.random.key(4), hparams)[0].params
    ours = learner._replace(target_params=target)
    theirs = TorchLearner(settings_of(hunt()))
    theirs.network.load_state_dict(to_torch(ours.params))
    theirs.target.load_state_dict(to_torch(target))
    return agent, ours, theirs


def as_torch(array):
    return torch.tensor(np.asarray(array))


def split_noise(normals, width=250, actions=4):
    """The noise of one pass, as PyTorch's layers take it."""
    parts, place = [], 0
    for outputs in (width, actions, 1):
        weights = normals[place : place + width * outputs].reshape(width, outputs).T
        place += width * outputs
        parts.append((as_torch(weights), as_torch(normals[place : place + outputs])))
        place += outputs
    return parts


def draw_pass(key, batch=256, quantiles=12):
    taus = jax.random.uniform(key, (batch, quantiles))
    normals = jax.random.normal(jax.random.fold_in(key, 1), (64_005,))
    return taus, normals


def test_weights_come_back_as_they_were(both):
    _, ours, theirs = both
    back = from_torch(theirs.network.state_dict())
    assert jax.tree.structure(back) == jax.tree.structure(ours.params)
    jax.tree.map(np.testing.assert_array_equal, back, ours.params)
    assert sum(parameter.numel() for parameter in theirs.network.parameters()) == 300_760


def test_both_networks_are_the_same_function(both):
    agent, ours, theirs = both
    x = (jax.random.uniform(jax.random.key(1), (256, 5, 125)) < 0.2).astype(jnp.float32)
    taus, normals = draw_pass(jax.random.key(2))
    for noise in (None, normals):
        here = agent.network.apply(ours.params, x, noise, taus).values
        there = theirs.network(
            as_torch(x.reshape(256, -1)), as_torch(taus), None if noise is None else split_noise(noise)
        )
        np.testing.assert_allclose(jnp.swapaxes(here, 1, 2), there.detach().numpy(), atol=1e-5)


def test_loss_gradients_and_updated_weights_agree(both):
    """One gradient step of both frameworks from the same weights, batch, levels and noise."""
    agent, ours, theirs = both
    rng = np.random.default_rng(0)
    memory = NumpyReplay(EpochReplay(), 5, 125)
    for _ in range(7):
        memory.add_gap()
        for turn in range(50):
            frame = (rng.random(125) < 0.2).astype(np.float32)
            memory.add(frame, int(rng.integers(4)), float(rng.choice([-1, 0, 10])), last=turn == 49)
    drawn = memory.sample(rng, 256, 0.99)
    assert 0 < drawn.valid.mean() < 1
    passes = [draw_pass(jax.random.key(number)) for number in (10, 11, 12)]
    judge, successor, now = passes

    def quantiles(params, state, drawn_pass):
        return agent.network.apply(params, jnp.asarray(state).reshape(256, 5, 125), drawn_pass[1], drawn_pass[0])

    def loss(params):
        best = jnp.argmax(quantiles(ours.params, drawn.next_state, judge).mean(), axis=-1)
        following = quantiles(ours.target_params, drawn.next_state, successor).under(jax.nn.one_hot(best, 4))
        predicted = quantiles(params, drawn.state, now).under(jax.nn.one_hot(drawn.action, 4))
        error = predicted.bellman_error(drawn.reward, drawn.discount, following, 1.0)
        return jnp.mean(drawn.valid * error.loss) / 12

    here, grads = jax.jit(jax.value_and_grad(loss))(ours.params)
    told = [Pass(as_torch(taus), split_noise(normals)) for taus, normals in passes]
    there = theirs.loss(drawn, *told)
    theirs.optimizer.zero_grad()
    there.backward()
    assert abs(float(here) - float(there.detach())) < 1e-5
    gradients = from_torch({name: parameter.grad for name, parameter in theirs.network.named_parameters()})
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, atol=1e-5), grads, gradients)
    assert optax.tree.norm(grads) > 0.01
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2.5e-4))
    updates, _ = optimizer.update(grads, optimizer.init(ours.params))
    updated = optax.apply_updates(ours.params, updates)
    torch.nn.utils.clip_grad_norm_(theirs.network.parameters(), 1.0)
    theirs.optimizer.step()
    theirs.follow(0.001)
    check = lambda left, right: np.testing.assert_allclose(left, right, atol=1e-5)  # noqa: E731
    jax.tree.map(check, updated, from_torch(theirs.network.state_dict()))
    followed = optax.incremental_update(updated, ours.target_params, 0.001)
    jax.tree.map(check, followed, from_torch(theirs.target.state_dict()))


def test_targets_carry_no_gradient(both):
    theirs = both[2]
    assert not any(parameter.requires_grad for parameter in theirs.target.parameters())


@pytest.mark.parametrize("variant", ["gem", "gem_food_bone"])
def test_both_worlds_have_the_same_rules(variant):
    game = TreasureHunt(variant, height=7, width=8, agents=4, spawn_prob=0.2)
    world = NumpyWorld(game.rules, np.random.default_rng(1))
    move, observe = jax.jit(game.rules.move), jax.jit(game.rules.observe)
    rng, met = np.random.default_rng(2), set()
    for _ in range(30):
        world.spawn()
        board = World(jnp.asarray(world.top), jnp.asarray(world.position, jnp.int32))
        for player in range(4):
            np.testing.assert_array_equal(observe(board)[player], world.observe(player))
            action = int(rng.integers(4))
            board, reward = move(board, player, jnp.int32(action))
            assert world.move(player, action) == float(reward)
            met.add(float(reward))
            np.testing.assert_array_equal(board.top, world.top)
            assert board.position.tolist() == world.position
    assert {-1.0, 0.0, 10.0} <= met
    world.reset()
    assert not set(world.top.reshape(-1).tolist()) & set(game.rules.treasures)


@pytest.mark.parametrize(
    "choices",
    [EpochReplay(120), EpochReplay(120, n_step=3), EpochReplay(120, n_step=3, sample_index="physical", **REFERENCE)],
    ids=["corrected", "three_steps", "reference"],
)
def test_both_memories_give_the_same_windows(choices):
    spec = registry.make("TreasureHunt-v0").spec(1, 20)
    buffer = choices.build(spec)
    ours, theirs = buffer.init(), NumpyReplay(choices, 5, 125)
    add = jax.jit(buffer.add)
    windows = jax.jit(lambda state, start: buffer.windows(state, start, 0.9))
    rng = np.random.default_rng(0)
    for _ in range(8):
        frames, action = rng.random((20, 125), np.float32), rng.integers(0, 4, 20)
        reward, last = rng.normal(size=20).astype(np.float32), np.arange(20) == 19
        stacks = np.zeros((20, 1, 5, 125), np.float32)
        stacks[:, 0, -1] = frames
        columns = (jnp.asarray(action)[:, None], jnp.asarray(reward)[:, None], jnp.zeros((20, 1), bool), last[:, None])
        obs = Observation(jnp.asarray(stacks))
        ours = add(ours, Transition(obs, *columns, obs, ()))
        theirs.add_gap()
        np.testing.assert_array_equal(
            theirs.stacked(frames[0])[0, :500].reshape(4, 125)[0], theirs.frames[theirs.row - 4]
        )
        for turn in range(20):
            theirs.add(frames[turn], int(action[turn]), float(reward[turn]), last=bool(last[turn]))
        count = int(buffer.num_windows(ours))
        assert (int(ours.row), int(ours.size), count) == (theirs.row, theirs.size, theirs.num_windows)
        batch, valid = jax.tree.map(lambda leaf, n=count: leaf[:n], windows(ours, jnp.arange(choices.capacity)))
        drawn = theirs.windows(np.arange(count), 0.9)
        pairs = [
            (batch.obs.features.reshape(count, -1), drawn.state), (batch.action, drawn.action), (valid, drawn.valid),
            (batch.next_obs.features.reshape(count, -1), drawn.next_state),
        ]  # fmt: skip
        for left, right in pairs:
            np.testing.assert_array_equal(left, right)
        np.testing.assert_allclose(batch.reward, drawn.reward, atol=1e-6)
        np.testing.assert_allclose(batch.discount, drawn.discount, atol=1e-6)
    sampled = theirs.sample(rng, 40, 0.9)
    assert len(np.unique(sampled.state, axis=0)) == 40  # without replacement


def test_an_epoch_of_pytorch_keeps_the_books():
    """The first gradient step, the hard copies, epsilon and the return, as the epochs go by."""
    experiment = hunt(
        agents=2, max_turns=10, rollout_length=10, hidden=(16,), shared_hidden=16, batch_size=24, capacity=60,
        sync_period=3, act_levels=4, quantiles=4,
    )  # fmt: skip
    run = TorchMode(experiment)
    learner = run.learners[0]
    learnt = []
    for epoch in range(7):
        total, losses = run.epoch()
        learnt.append(not np.isnan(losses[0]))
        gap = max(
            float((a - b).abs().max())
            for a, b in zip(learner.network.parameters(), learner.target.parameters(), strict=True)
        )
        assert (gap == 0) == (not any(learnt))  # a step takes the target only part of the way
        assert total == pytest.approx(
            sum(float(memory.reward[memory.row - 10 : memory.row or None].sum()) for memory in run.memories)
        )
        if epoch == 4:
            before = [parameter.clone() for parameter in learner.network.parameters()]
    assert learnt == [False, False, True, True, True, True, True]  # 14 rows an epoch, and windows of 5 for 24
    assert run.epsilon == pytest.approx(0.999**7)
    assert run.seconds["training"] > 0
    assert run.seconds["acting"] > 0
    assert any(float((a - b).abs().max()) > 0 for a, b in zip(before, learner.network.parameters(), strict=True))


# -- the modes in JAX

SMALL = {
    "agents": 3, "height": 6, "width": 6, "max_turns": 8, "rollout_length": 8, "hidden": (12,), "shared_hidden": 12,
    "batch_size": 8, "capacity": 60, "frames": 3, "act_levels": 4, "quantiles": 4, "learning_rate": 0.01,
    "sync_period": 4, "spawn_prob": 0.2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("timing", "profile"),
    [
        ("simultaneous", ""),
        ("sequential", ""),
        ("sequential", "/reference"),
    ],
)
@pytest.mark.thorough
def test_one_agent_after_the_other_is_the_whole_program_to_the_last_bit(timing, profile):
    """The same numbers are drawn, so boards, memories, returns and weights are the same."""
    changes = SMALL | ({"stale_frames": 60} if profile else {})
    experiment = hunt(agent_map="map", obs_timing=timing, preset=f"irainbow/TreasureHunt-v0{profile}", **changes)
    whole, parts = JaxParallel(experiment), JaxSequential(experiment)
    assert whole.epochs(12) == parts.epochs(12)
    for one, other in ((whole.state.memory, parts.state.memory), (whole.state.learner, parts.state.learner)):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    assert int(whole.state.learner.gradient_steps[0]) == 12
    moved = jax.tree.map(lambda left, right: float(jnp.max(jnp.abs(left - right))), whole.state.learner.params,
                         whole.begin(jax.random.key(0), whole.hparams).learner.params)  # fmt: skip
    assert max(jax.tree.leaves(moved)) > 0.01


@pytest.mark.thorough
def test_epsilon_can_be_held_and_given_back():
    mode = JaxParallel(hunt(**SMALL))
    agent: Any = mode.agent.agent
    for share, expected in ((0.25, 0.25), (None, 0.999**4)):
        mode.epochs(2, share)
        learner = jax.tree.map(lambda leaf: leaf[0], mode.state.learner)
        assert float(agent.epsilon(learner)) == pytest.approx(expected)


@pytest.mark.thorough
def test_the_target_is_copied_at_multiples_of_its_period():
    """Of every fourth epoch the next begins with a target that equals the weights, and no other does."""
    mode = JaxParallel(hunt(**SMALL))
    equal = []
    for _ in range(12):
        mode.epochs(1)
        learner = mode.state.learner
        pairs = zip(jax.tree.leaves(learner.params), jax.tree.leaves(learner.target_params), strict=True)
        equal.append(all(np.array_equal(left, right) for left, right in pairs))
    learnt = equal.index(False)  # before the first gradient step both are as they began
    assert learnt == 1  # ten rows an epoch: the second has windows enough
    assert [epoch + 1 for epoch, same in enumerate(equal) if same and epoch > learnt] == [4, 8, 12]


# -- the command


@pytest.mark.thorough
@pytest.mark.parametrize(
    "modes", [("pytorch", "jax_parallel"), ("pytorch", "jax_sequential", "jax_parallel")], ids=["two", "three"]
)
def test_compare_runs_its_modes_and_writes_down_what_it_saw(modes, tmp_path, monkeypatch):
    from rollax.tools.comparison import measure

    monkeypatch.setattr(measure, "WARM_UP", 3)
    monkeypatch.setattr(measure, "GREEDY_EPOCHS", 4)
    said: list[str] = []
    protocol = measure.Protocol(epochs=6, timed_epochs=2, repeats=2, seeds=2)
    result = measure.compare(hunt(**SMALL), tmp_path, protocol, modes, say=said.append)
    written = json.loads((tmp_path / "bench.json").read_text())
    assert [its["mode"] for its in written["modes"]] == list(modes)
    for its in result["modes"]:
        assert its["total_seconds"] > 0
        assert set(its["part_seconds"]) == {"acting", "training", "sampling", "world"}
        assert its["peak_bytes"]["host"] > 1e8
        assert its["epoch_seconds"]["0.37"]["min"] <= its["epoch_seconds"]["0.37"]["median"]
        table = (tmp_path / f"{its['run_name']}.csv").read_text().splitlines()
        assert table[0] == "epoch,return_seed_0,return_seed_1"
        assert len(table) == 7
        assert any(line.startswith(f'{{"mode": "{its["mode"]}"') for line in said)
    *others, last = result["modes"]
    assert others[0]["compile_seconds"] == 0 < last["compile_seconds"]
    for its in others[1:]:  # the other mode in JAX
        assert its["return_last_100_of_seeds"] == last["return_last_100_of_seeds"]
    assert result["modes"][0]["run_name"].endswith("_PYTORCH_SEQUENTIAL")
    assert result["speed_ups"]["pytorch"]["total"] == 1
    assert (tmp_path / "bench.png").stat().st_size > 5_000


def test_a_mode_that_dies_is_reported_in_one_line(tmp_path):
    from rollax.tools.comparison import measure

    with pytest.raises(ResourceError, match=r"the mode pytorch ended: .*CUDA"):
        measure.compare(hunt(**SMALL), tmp_path, measure.Protocol(1, 0, 1), ("pytorch",), "cuda:99", lambda line: None)


def test_what_pytorch_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="double=False has no counterpart in PyTorch; it must be True"):
        settings_of(hunt(double=False))
    with pytest.raises(ConfigError, match="exploration=linear has no counterpart in PyTorch"):
        settings_of(hunt(exploration="linear"))
    with pytest.raises(ConfigError, match="TreasureHunt-v0"):
        settings_of(rollax.make_experiment("irainbow"))
