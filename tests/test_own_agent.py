"""The agent of docs/write-an-agent.md, with `init`, `act`, `learn` and `scores` alone, wherever an agent may be."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

import rollax
from rollax.agents.base import Agent, AgentConfig, OptimizerHParams, Recipe, Stepwise
from rollax.commands.cli import run_command
from rollax.reports.export import ExportedPolicy, export, scores_of

PAGE = Path(__file__).parent.parent / "docs" / "write-an-agent.md"
SMALL: Any = {"num_envs": 4, "rollout_length": 8, "hidden": (8,), "eval_episodes": 3}


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """The name under which the page's agent is found."""
    folder = tmp_path_factory.mktemp("own")
    code = re.search(r"```python\n# reinforce\.py\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert code is not None
    (folder / "own_reinforce.py").write_text(code[1])
    sys.path.insert(0, str(folder))
    yield "own_reinforce:RECIPE"
    sys.path.remove(str(folder))
    sys.modules.pop("own_reinforce", None)


@pytest.fixture(scope="module")
def run(agent, tmp_path_factory):
    experiment = rollax.make_experiment(agent, env="CartPole-v1", seeds=2, steps=640, **SMALL)
    return rollax.train(experiment, tmp_path_factory.mktemp("run") / "run", quiet=True)


def test_it_has_only_what_an_agent_must_have(agent):
    own = rollax.make_experiment(agent).choices.build.__globals__["Reinforce"]
    assert issubclass(own, Agent)
    assert not issubclass(own, Stepwise)
    for name in ("remember", "interrupt", "concern", "with_weights", "initial_carry"):
        assert name not in vars(own)


def test_it_trains(run):
    assert run.summary["status"] == "finished"
    assert np.isfinite(run.curves["loss"]).all()
    assert (run.evaluations["return_mean"] > 1).all()


def test_it_is_resumed_to_the_last_bit(agent, run, tmp_path):
    shorter = rollax.make_experiment(agent, env="CartPole-v1", seeds=2, steps=320, **SMALL)
    rollax.train(shorter, tmp_path / "parts", quiet=True)
    parts = rollax.resume(tmp_path / "parts", 640, quiet=True)
    hashes = [[member["params_sha256"] for member in each.summary["members"]] for each in (run, parts)]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("overlap", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_it_learns_in_environments_outside_jax(agent, overlap, tmp_path):
    experiment = rollax.make_experiment(agent, env="gymnasium:CartPole-v1", steps=320, overlap=overlap, **SMALL)
    rollax.train(experiment, tmp_path / "run", quiet=True)
    later = rollax.resume(tmp_path / "run", 640, quiet=True)
    assert later.summary["status"] == "finished"
    assert np.isfinite(later.curves["loss"][:, -1]).all()
    policy = rollax.load(tmp_path / "run")
    assert policy(np.zeros((5, 4), np.float32)).shape == (5,)


@pytest.mark.thorough
def test_it_is_exported_as_a_program_and_as_onnx(run, tmp_path):
    export(run.run_dir, tmp_path / "export", onnx=True)
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    policy = rollax.load(run.run_dir)
    np.testing.assert_array_equal(ExportedPolicy(tmp_path / "export")(observations), policy(observations))
    scores = scores_of(policy)(jnp.asarray(observations))
    np.testing.assert_array_equal(np.argmax(scores, axis=1), policy(observations))
    reference = pytest.importorskip("onnx.reference")
    model = reference.ReferenceEvaluator(str(tmp_path / "export" / "policy.onnx"))
    (found,) = model.run(None, {model.input_names[0]: observations})
    np.testing.assert_allclose(found, scores, atol=1e-5)


def test_it_is_inspected(agent, capsys):
    flags = ["--num-envs", "4", "--rollout-length", "8", "--hidden", "8", "--steps", "640"]
    assert run_command("inspect", [agent, *flags, "--memory", "--params", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert any("policy" in part["name"] for part in facts["params"])
    assert run_command("inspect", [agent, *flags, "--diff", "vmap"]) == 0
    assert "one observation, then 8 of them" in capsys.readouterr().out


class Half(Agent):
    """It cannot learn."""

    def init(self, key, hparams):
        return (), ()

    def act(self, learner, carry, obs, fresh, key, *, explore):
        raise AssertionError


@dataclass(frozen=True)
class HalfConfig(AgentConfig):
    kind: str = "half"

    def build(self, spec):
        unfinished: Any = Half
        return unfinished() if self.kind == "half" else self.kind


NO_AGENT = Recipe(HalfConfig("none"), OptimizerHParams())
NO_LEARN = Recipe(HalfConfig(), OptimizerHParams())
NO_CONFIG = Recipe(cast(Any, object()), OptimizerHParams())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("NO_AGENT", "str must be a subclass of rollax.agents.base.Agent"),
        ("NO_LEARN", "abstract method '?learn'?; write what is missing"),
        ("NO_CONFIG", "object must be a subclass of rollax.agents.base.AgentConfig"),
    ],
)
def test_what_is_no_agent_is_refused_in_one_line(name, line, capsys):
    assert run_command("train", [f"test_own_agent:{name}", "--quiet"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert re.search(line, error)
