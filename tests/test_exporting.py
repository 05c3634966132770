"""Exported policies: the same actions without the code that trained them, and damage is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rollax
from rollax.commands.cli import run_command
from rollax.errors import CheckpointError, ConfigError
from rollax.reports.export import ExportedPolicy, export, scores_of
from rollax.types import Observation

SCRIPT = """
import sys
from pathlib import Path
import jax
import numpy as np

policy = jax.export.deserialize(bytearray(Path(sys.argv[1]).read_bytes()))
observations = np.linspace(-0.2, 0.2, 40, dtype=np.float32).reshape(10, 4)
print(policy.call(observations, np.uint32(0)).tolist())
assert not any(name.startswith("rollax") for name in sys.modules)
"""


def trained(folder, agent="double", **values):
    common = {"steps": 1_200, "eval_episodes": 4, "num_envs": 4, "seeds": 2}
    replay = {} if agent in ("ppo", "pqn") else {"warm_up_steps": 400, "capacity": 1_000, "batch_size": 8}
    rollax.train(rollax.make_experiment(agent, preset="none", **(common | replay | values)), folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run") / "run", hidden=(16,))


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    export(run, folder, member=1, onnx=True)
    return folder


def observations(count=50):
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


def test_the_same_actions_for_any_number_of_observations(run, exported):
    policy = ExportedPolicy(exported)
    for count in (1, 7, 50):
        np.testing.assert_array_equal(policy(observations(count)), rollax.load(run, member=1)(observations(count)))


def test_a_script_without_the_library(run, exported, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-I", str(tmp_path / "script.py"), str(exported / "policy.jaxexport")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = np.linspace(-0.2, 0.2, 40, dtype=np.float32).reshape(10, 4)
    assert json.loads(done.stdout) == rollax.load(run, member=1)(shown).tolist()


def test_eval_plays_it_as_it_plays_the_run(run, exported, capsys):
    assert run_command("eval", [str(exported), "--episodes", "6", "--seed", "3", "--json"]) == 0
    (own,) = json.loads(capsys.readouterr().out)
    assert run_command("eval", [str(run), "--episodes", "6", "--seed", "3", "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)[1]
    assert own == {name: theirs[name] for name in own}
    assert run_command("eval", [str(exported), "--best"]) == 2
    assert "leave them out" in capsys.readouterr().err


def test_onnx_gives_the_scores(run, exported):
    import onnxruntime

    session = onnxruntime.InferenceSession(exported / "policy.onnx")
    found: Any = session.run(None, {session.get_inputs()[0].name: observations()})[0]
    policy = rollax.load(run, member=1)
    np.testing.assert_allclose(found, scores_of(policy)(jnp.asarray(observations())), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(axis=1), policy(observations()))


def test_weights_are_plain_arrays(run, exported):
    from safetensors.numpy import load_file

    arrays = load_file(exported / "weights.safetensors")
    layers = rollax.load(run, member=1).learner.params["params"]
    assert sum(array.size for array in arrays.values()) == 4 * 16 + 16 + 16 * 2 + 2
    np.testing.assert_array_equal(arrays["params/torso/Dense_0/kernel"], layers["torso"]["Dense_0"]["kernel"])


def test_damage_is_noticed(run, tmp_path):
    export(run, tmp_path)
    path = tmp_path / "policy.jaxexport"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"policy\.jaxexport is damaged"):
        ExportedPolicy(tmp_path)(observations())
    with pytest.raises(CheckpointError, match="damaged"):  # before the environment that it names is imported
        ExportedPolicy(tmp_path).evaluate(2)
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(CheckpointError, match="files is missing"):
        ExportedPolicy(tmp_path)(observations())


def test_a_mask_is_an_argument(tmp_path):
    run = trained(tmp_path / "run", "ppo", env="probes:Masked", rollout_length=8, hidden=(8,), steps=64)
    export(run, tmp_path / "out")
    policy, found = rollax.load(run), ExportedPolicy(tmp_path / "out")
    features = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    legal = np.eye(3, dtype=bool)[[0, 1, 2, 2, 1, 0]]
    np.testing.assert_array_equal(found(features, legal), [0, 1, 2, 2, 1, 0])
    either = legal | np.eye(3, dtype=bool)[[1]]
    np.testing.assert_array_equal(found(features, either), policy(Observation(features, either)))
    assert found.card["mask"]


def test_an_observation_of_several_arrays_is_several_arguments(tmp_path):
    """Only initialised: the game takes long to compile."""
    from rollax.programs.plan import make_plan
    from rollax.reports.export import program_of
    from rollax.runs.result import policy_of

    plan = make_plan(rollax.make_experiment("ppo", env="HackMatrix-v0", preset="none", torso="hackmatrix"))
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), plan.shapes()[0].learner.params)
    policy = policy_of(plan, params, 0)
    arrays = [jnp.zeros((2, *leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(policy.task.observation.features)]
    legal = np.eye(policy.task.num_actions, dtype=bool)[[7, 3]]
    assert len(arrays) > 1
    np.testing.assert_array_equal(program_of(policy).call(*arrays, legal, np.uint32(0)), [7, 3])


def test_what_has_not_been_trained_is_said(tmp_path):
    with pytest.raises(ConfigError, match="is no run folder"):
        export(tmp_path, tmp_path / "other")
