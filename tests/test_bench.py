"""`rollax bench`: the same training on every side, and figures that are what they say."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rollax.commands.cli import run_command
from rollax.envs import registry
from rollax.envs.protocol import reset_envs
from rollax.envs.random_play import random_play
from rollax.errors import ConfigError
from rollax.memory.ring import Batch as RingBatch
from rollax.programs.plan import make_plan
from rollax.tools.bench import against, throughput
from rollax.tools.bench.settings import Course, Settings, with_budget
from rollax.tools.sides import figures
from rollax.types import Observation

SMALL = Settings(
    steps=400, num_envs=4, warm_up_steps=40, batch_size=16, capacity=1_000, hidden=(16, 16), epsilon_steps=200,
    target_period=3, eval_steps=200, eval_episodes=2,
)  # fmt: skip


def weights_of(learner):
    """Our weights as PyTorch's layers have them."""
    params = learner.params["params"]
    layers = [*(params["torso"][name] for name in sorted(params["torso"])), params["streams"]["advantage"]]
    return [(np.asarray(layer["kernel"]).T, np.asarray(layer["bias"])) for layer in layers]


@pytest.fixture(scope="module")
def ours():
    """Our agent with the small settings, and a new learner of it."""
    plan = make_plan(SMALL.experiment(seed=0))
    agent = plan.program.loop.agent
    learner, _ = jax.jit(agent.init)(jax.random.key(1), jax.tree.map(lambda leaf: leaf[0], plan.hparams))
    return agent, learner


class TestTorchLoop:
    @pytest.fixture(autouse=True)
    def needs_torch(self):
        pytest.importorskip("torch", reason="needs the extra rollax[torch]")

    def learner(self, ours=None):
        """A learner in PyTorch, with the weights of ours if there is one."""
        import torch

        from rollax.tools.bench.torch_dqn import TorchDQN

        made = TorchDQN(SMALL, 4, 2)
        if ours is not None:
            linear = [layer for layer in made.network if isinstance(layer, torch.nn.Linear)]
            for layer, (weight, bias) in zip(linear, weights_of(ours), strict=True):
                layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
            made.target.load_state_dict(made.network.state_dict())
        return made

    def batch(self, count=32):
        import torch

        from rollax.tools.bench.torch_dqn import Batch

        draw = torch.Generator().manual_seed(0)
        return Batch(
            obs=torch.randn((count, 4), generator=draw),
            action=torch.randint(2, (count,), generator=draw),
            reward=3 * torch.randn(count, generator=draw),  # errors on both sides of the Huber loss's bend
            continues=(torch.rand(count, generator=draw) < 0.7).float(),
            next_obs=torch.randn((count, 4), generator=draw),
        )

    def test_a_termination_bootstraps_nothing_and_a_time_limit_does(self):
        import torch

        learner, batch = self.learner(), self.batch(1)
        with torch.no_grad():
            learner.network[-1].weight.zero_()
            learner.network[-1].bias.copy_(torch.tensor([0.25, 0.25]))
            learner.target.load_state_dict(learner.network.state_dict())
            learner.target[-1].bias.copy_(torch.tensor([10.0, 20.0]))
        reward = torch.ones(1)
        ended = learner.loss(batch._replace(reward=reward, continues=torch.zeros(1)))
        cut = learner.loss(batch._replace(reward=reward, continues=torch.ones(1)))
        assert ended.item() == pytest.approx(0.5 * 0.75**2)
        assert cut.item() == pytest.approx(1 + 0.99 * 20 - 0.25 - 0.5)

    def test_its_loss_and_gradient_step_are_ours(self, ours):
        """With the same weights and batch: the Huber loss, the clipped gradient, Adam."""
        agent, learner = ours
        batch, theirs = self.batch(SMALL.batch_size), self.learner(learner)
        features = [Observation(jnp.asarray(column.numpy())) for column in (batch.obs, batch.next_obs)]
        action, reward, continues = (jnp.asarray(column.numpy()) for column in batch[1:4])
        own = RingBatch(features[0], action, reward, SMALL.discount * continues, features[1])
        error = agent.bellman_error(learner.params, learner, own, jax.random.key(0))
        assert theirs.loss(batch).item() == pytest.approx(float(jnp.mean(error.loss)), rel=1e-5)
        from rollax.memory.replay import Sample

        after, _, _ = agent.improve(learner, Sample(own, 1.0, ()), jax.random.key(0))
        theirs.learn(batch)
        found = [parameter.detach().numpy() for parameter in theirs.network.parameters()]
        wanted = [array for layer in weights_of(after) for array in layer]
        for own_array, their_array in zip(wanted, found, strict=True):
            np.testing.assert_allclose(own_array, their_array, atol=2e-6)

    def test_the_target_follows_on_time(self):
        learner, batch = self.learner(), self.batch()

        def equal():
            pairs = zip(learner.network.parameters(), learner.target.parameters(), strict=True)
            return all((one == two).all() for one, two in pairs)

        seen = []
        for _ in range(6):
            learner.learn(batch)
            seen.append(equal())
        assert seen == [False, False, True, False, False, True]

    def test_the_replay_keeps_the_newest(self):
        import torch

        from rollax.tools.bench.torch_dqn import Replay

        replay, batch = Replay(8, 4, "cpu"), self.batch(3)
        for number in range(4):
            replay.add(batch._replace(reward=torch.arange(3.0) + 3 * number))
        assert sorted(replay.data.reward.tolist()) == [4, 5, 6, 7, 8, 9, 10, 11]
        assert set(replay.sample(500).reward.tolist()) == set(range(4, 12))

    def test_steps_and_updates_are_those_asked_for(self, monkeypatch):
        """A step that only resets counts as none, and no transition leads from one episode into the next."""
        from rollax.tools.bench import torch_dqn

        kept, made = [], []
        add = torch_dqn.Replay.add
        monkeypatch.setattr(torch_dqn.Replay, "add", lambda self, rows: (kept.append(rows), add(self, rows)))
        init = torch_dqn.TorchDQN.__init__
        monkeypatch.setattr(torch_dqn.TorchDQN, "__init__", lambda self, *a: (made.append(self), init(self, *a))[1])
        course = torch_dqn.train(SMALL, seed=0)
        steps = sum(len(rows.action) for rows in kept)
        assert SMALL.steps <= steps < SMALL.steps + SMALL.num_envs
        assert made[0].gradient_steps == math.ceil((steps - SMALL.warm_up_steps) * SMALL.updates_per_step)
        assert [len(point["scores"]) for point in course.points] == [1, 1]
        jumps = max(float((rows.next_obs - rows.obs)[:, 2].abs().max()) for rows in kept)
        assert jumps < 0.1  # the pole moves 0.02 s further; a reset would turn it by more than 0.15
        assert any((rows.continues == 0).any() for rows in kept)

    @pytest.mark.thorough
    def test_it_learns(self):
        from rollax.tools.bench.torch_dqn import train

        course = train(with_budget(Settings(), 60_000), seed=0)
        assert max(point["scores"][0] for point in course.points) > 150


class TestSettings:
    def test_our_experiment_has_them(self):
        experiment = SMALL.experiment(seed=3, seeds=2)
        assert (experiment.seed, experiment.seeds, experiment.steps) == (3, 2, 400)
        assert experiment.choices.torso.hidden == SMALL.hidden
        assert experiment.choices.torso.input_scale == ()
        assert not experiment.choices.double
        assert experiment.choices.replay.n_step == 1
        assert experiment.hparams.learning_rate_end == 1.0
        assert make_plan(experiment).schedule.warm_up == SMALL.warm_up_steps // SMALL.num_envs

    def test_epsilon_is_the_same_everywhere(self, ours):
        agent, learner = ours
        for updates in (0, 10, 37, 1_000):
            step = SMALL.warm_up_steps + updates * SMALL.num_envs
            own = agent.epsilon(learner._replace(gradient_steps=jnp.int32(updates)))
            assert float(own) == pytest.approx(SMALL.epsilon(step), abs=1e-6)

    @pytest.mark.parametrize("side", ["sb3", "sbx"])
    def test_their_model_has_them(self, side, ours):
        pytest.importorskip("stable_baselines3" if side == "sb3" else "sbx", reason=f"needs the extra rollax[{side}]")
        from rollax.tools.bench.sb3_dqn import make_model

        model = make_model(SMALL, side, seed=0)
        assert (model.batch_size, model.gradient_steps, model.gamma, model.tau) == (16, 1, 0.99, 1.0)
        assert (model.learning_starts, model.n_envs) == (SMALL.warm_up_steps, SMALL.num_envs)
        assert model.replay_buffer.buffer_size * model.n_envs == SMALL.capacity
        assert model.replay_buffer.handle_timeout_termination
        assert (model.train_freq.frequency, model.train_freq.unit.value) == (1, "step")
        assert model.lr_schedule(1.0) == model.lr_schedule(0.0) == SMALL.learning_rate
        calls = model.target_update_interval // (SMALL.num_envs if side == "sb3" else 1)  # SBX has divided already
        assert calls * SMALL.gradient_steps == SMALL.target_period
        for share in (0.0, 0.3, 1.0):
            assert model.exploration_schedule(1 - share) == pytest.approx(SMALL.epsilon(share * SMALL.steps))
        own = sum(leaf.size for leaf in jax.tree.leaves(ours[1].params))
        if side == "sb3":
            assert sum(parameter.numel() for parameter in model.q_net.parameters()) == own
            (group,) = model.policy.optimizer.param_groups
            assert (group["lr"], group["eps"]) == (SMALL.learning_rate, SMALL.optimizer_eps)
            assert model.max_grad_norm == SMALL.max_grad_norm
        else:
            state = model.policy.qf_state
            assert sum(leaf.size for leaf in jax.tree.leaves(state.params)) == own
            huge = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e9), state.params)
            moments = state.tx.update(huge, state.opt_state, state.params)[1][1][0].mu
            norm = math.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(moments)))
            assert norm == pytest.approx(0.1 * SMALL.max_grad_norm, rel=1e-4)  # Adam keeps a tenth of the first

    def test_a_budget_is_whole_evaluations(self):
        for steps in (20, 21, 999, 60_000, 200_000):
            settings = with_budget(Settings(), steps)
            assert settings.steps >= steps
            assert settings.steps % settings.eval_steps == 0
            assert settings.steps >= 2 * settings.eval_steps
            assert settings.warm_up_steps <= settings.eval_steps
            assert settings.eval_steps % settings.num_envs == 0
        with pytest.raises(ConfigError, match="steps=3 must be at least 20"):
            with_budget(Settings(), 3)

    def test_they_survive_json(self):
        assert Settings.from_json(json.loads(json.dumps(SMALL.to_json()))) == SMALL


class TestFigures:
    RUN = {  # two members; the first evaluation came late, as if something had been compiled before it
        "ready_seconds": 4.0,
        "points": [
            {"step": 100, "seconds": 5.0, "scores": [10.0, 480.0]},
            {"step": 200, "seconds": 6.0, "scores": [475.0, 20.0]},
            {"step": 300, "seconds": 8.0, "scores": [30.0, 500.0]},
        ],
    }

    def test_rates_and_times(self):
        assert against.steady_rate(self.RUN, 2) == pytest.approx(2 * 200 / 3)
        assert against.whole_rate(self.RUN, 2) == pytest.approx(2 * 300 / 12)
        assert against.seconds_to(475.0, self.RUN) == [6.0, 5.0]
        assert against.seconds_to(475.0, self.RUN, start=True) == [10.0, 9.0]
        assert against.seconds_to(501.0, self.RUN) == [None, None]

    def test_what_was_not_reached_counts_as_never(self):
        assert figures([3.0, None, 1.0])["median"] == 3.0
        assert figures([3.0, None, None])["median"] is None
        assert figures([3.0, None, 1.0])["max"] is None

    def test_the_clock_stands_still_in_evaluations(self, monkeypatch):
        now = [100.0]
        monkeypatch.setattr("rollax.tools.bench.settings.time.perf_counter", lambda: now[0])
        course = Course(SMALL, since=100.0)

        def slow_evaluation():
            now[0] += 50.0
            return [1.0]

        now[0] += 2.0
        assert not course.due(199)
        assert course.due(200)
        course.reached(200, slow_evaluation)
        now[0] += 3.0
        course.reached(400, slow_evaluation)
        assert [point["seconds"] for point in course.points] == [2.0, 5.0]


def test_the_random_player_is_legal_and_each_environment_is_played():
    for name in ("CartPole-v1", "TreasureHunt-v0"):
        task = registry.make_inside(name)
        envs = reset_envs(task, jax.random.key(0), 3)
        after, total = jax.jit(random_play(task, 5))(envs, jax.random.key(1))
        assert np.isfinite(float(total))
        assert int(jnp.max(after.episode_length)) == 5


SMALLEST = {
    "GAMES": {"CartPole-v1": 8},
    "AGENTS": (("double", 1),),
    "CAPACITIES": (800, 1_600),
    "LESSONS": 4,
    "BATCHES": (16,),
}


@pytest.mark.thorough
def test_every_part_is_measured(monkeypatch, capsys, tmp_path):
    for name, value in SMALLEST.items():
        monkeypatch.setattr(throughput, name, value)
    target = tmp_path / "bench.json"
    assert run_command("bench", ["--seconds", "0.05", "--json", "--out", str(target)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(target.read_text())
    assert {row["part"] for row in found["measured"]} == {"environments", "agents", "replay", "update"}
    for row in found["measured"]:
        assert len(row["values"]) == throughput.REPEATS
        assert all(math.isfinite(value) and value > 0 for value in row["values"])
        assert row["min"] <= row["median"] <= row["max"]
    assert found["machine"]["backend"] == "cpu"
    text = throughput.show(found)
    assert "uniform replay: 1,600 rows cost" in text
    assert "environments" in text


@pytest.mark.thorough
def test_the_whole_bench(capsys):
    assert run_command("bench", ["--seconds", "0.05"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("HackMatrix-v0", "TreasureHunt-v0", "Breakout-MinAtar", "ppo", "pqn"))


@pytest.mark.thorough  # two processes that train
def test_a_comparison_shows_both_sides(tmp_path):
    pytest.importorskip("torch", reason="needs the extra rollax[torch]")
    lines = []
    found = against.compare(SMALL, "torch", against.Protocol(repeats=1, seeds=2), lines.append)
    ours, theirs, many = found["contenders"]
    assert [ours["side"], theirs["side"], many["side"], many["seeds"]] == ["rollax", "torch", "rollax", 2]
    for its in (ours, theirs, many):
        assert its["steps_per_second"]["median"] > its["steps_per_second_with_start"]["median"] > 0
        assert its["of"] == its["seeds"]
        assert [point["step"] for point in its["runs"][0]["points"]][-1] >= SMALL.steps
    assert "jax" in found["machine"]
    text = against.show(found)
    assert "PyTorch loop" in text
    assert "2 seeds: at once in" in text
    assert any(line.startswith("PyTorch loop, threads tried") for line in lines)
    against.draw(found, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 1_000


@pytest.mark.parametrize("side", ["torch", "sb3", "sbx"])
def test_a_missing_extra_is_one_line(side, monkeypatch, capsys):
    there = importlib.util.find_spec
    missing = {"torch", "stable_baselines3", "sbx"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else there(name))
    assert run_command("bench", ["--against", side]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"pip install 'rollax[{side}]'")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--seconds", "0"], "seconds=0.0 must be in (0, 600]"),
        (["--against", "torch", "--repeats", "0"], "repeats=0 must be at least 1"),
        (["--against", "torch", "--steps", "5"], "steps=5 must be at least 20"),
        (["--plot", "x.png"], "plot draws a comparison"),
    ],
)
def test_mistakes_are_one_line(arguments, text, capsys):
    assert run_command("bench", arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


def test_sbx_has_two_layers_of_one_width():
    with pytest.raises(ConfigError, match="two layers of one width"):
        against.compare(dataclasses.replace(SMALL, hidden=(16, 8)), "sbx", against.Protocol())
