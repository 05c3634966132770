"""A run that did not do what was asked does not end with 0, and never keeps weights that are not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fault_tools import Answer, ask, ask_process, judge, summary_of
from safetensors.numpy import load_file

from rollax.programs.evaluate import Best, Evaluation, keep_best

SMALL = ["--preset", "none", "--num-envs", "4", "--hidden", "8", "--log-steps", "80", "--eval-steps", "80"]
REPLAY = ["--capacity", "800", "--batch-size", "8", "--warm-up-steps", "40"]
SHORT = ["--eval-episodes", "2", "--max-episode-steps", "8", "--quiet"]
ACTORS = ["apex", *SMALL, *REPLAY, *SHORT, "--rollout-length", "4", "--actors", "2", "--steps", "100000"]
HUNT = [
    *("irainbow", "--env", "TreasureHunt-v0", "--preset", "none", "--agents", "2", "--height", "5", "--width", "5"),
    *("--max-turns", "8", "--num-envs", "2", "--rollout-length", "8", "--hidden", "8", "--batch-size", "8"),
    *("--capacity", "256", "--spawn-prob", "0.9", "--learning-rate", "1e30", "--steps", "4000", "--eval-episodes", "2"),
    *("--warm-up-steps", "128", "--quiet"),
]


def stored(run: Path) -> dict[str, np.ndarray]:
    """All arrays of the newest checkpoint."""
    newest = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    return {name: array for path in sorted(newest.glob("*.safetensors")) for name, array in load_file(path).items()}


def stays_finite(run: Path) -> None:
    """Weights and best weights are finite, and the member is named with its step and tensor."""
    arrays = stored(run)
    weights = {name: array for name, array in arrays.items() if "/params/" in name or name.startswith("best/params")}
    assert any(name.startswith("best/params") for name in weights), sorted(arrays)
    for name, array in weights.items():
        assert np.isfinite(array).all(), name
    member = summary_of(run)["members"][0]
    assert summary_of(run)["status"] == member["status"] == "failed"
    assert member["failure"]["step"] > 0


WAYS = {
    "replay": (["double", *SMALL, *REPLAY, *SHORT, "--env", "probes:nan_rewards"], "rewards"),
    "observations": (["double", *SMALL, *REPLAY, *SHORT, "--env", "probes:nan_observations"], "observations"),
    "prioritized": (["prioritized", *SMALL, *REPLAY, *SHORT, "--env", "probes:nan_rewards"], "rewards"),
    "pqn": (["pqn", *SMALL, *SHORT, "--rollout-length", "4", "--env", "probes:nan_rewards"], "rewards"),
    "ppo": (["ppo", *SMALL, *SHORT, "--rollout-length", "4", "--env", "probes:nan_rewards"], "rewards"),
    "host": (["double", *SMALL, *REPLAY, *SHORT, "--env", "gymnasium:sick_envs:SickReward-v0"], "rewards"),
    "host observations": (
        ["double", *SMALL, *REPLAY, *SHORT, "--env", "gymnasium:sick_envs:SickObservation-v0"],
        "observations",
    ),
    "host without overlap": (
        ["pqn", *SMALL, *SHORT, "--env", "gymnasium:sick_envs:SickReward-v0", "--no-overlap"],
        "rewards",
    ),
    "players": (HUNT, "not finite"),
}
ALWAYS = ("replay", "host")


@pytest.mark.parametrize("way", [w if w in ALWAYS else pytest.param(w, marks=pytest.mark.thorough) for w in WAYS])
def test_a_number_that_is_not_finite_ends_every_way_to_run_with_4(request, tmp_path, way):
    flags, told = WAYS[way]
    answer = ask("train", *flags, *([] if "--steps" in flags else ["--steps", "800"]), "--run-dir", tmp_path / "run")
    judge(request, answer, 4, "member 0 (seed 0)", "step", told)
    stays_finite(tmp_path / "run")


def actors(tmp_path: Path, env: str) -> Answer:
    return ask_process("train", *ACTORS, "--env", env, "--run-dir", tmp_path / "run")


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("probes:nan_rewards", "rewards"),
        pytest.param("probes:nan_observations", "observations", marks=pytest.mark.thorough),
    ],
)
def test_actors_are_examined_as_everyone(request, tmp_path, env, told):
    """What an actor met reaches the learner, which stops with its last finite weights."""
    judge(request, actors(tmp_path, env), 4, "member 0 (seed 0)", "step", told)
    stays_finite(tmp_path / "run")


def test_a_score_that_is_not_finite_is_no_success(request, tmp_path):
    """The training is well, as its episodes are over before: only the long episodes of evaluations break."""
    flags = [
        "double",
        *SMALL,
        *REPLAY,
        "--env",
        "probes:nan_scores",
        "--eval-episodes",
        "8",
        "--max-episode-steps",
        "200",
    ]
    answer = ask("train", *flags, "--steps", "160", "--quiet", "--run-dir", tmp_path / "run")
    judge(request, answer, 4, "returns of the evaluation not finite")
    stays_finite(tmp_path / "run")


class Learner(NamedTuple):
    params: Any


@pytest.mark.parametrize("score", [1.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [1.0, np.nan, np.inf])
def test_the_best_weights_are_finite_whatever_comes(score, weight):
    """Member 0 is always well; member 1 has this score and this weight."""
    learner = Learner({"kernel": jnp.array([[2.0, 2.0], [2.0, weight]]), "count": jnp.array([1, 1])})
    before = Best(jnp.full(2, -jnp.inf), jax.tree.map(jnp.zeros_like, learner.params))
    returns = jnp.array([[0.0, 4.0], [score, 1.0]])
    after = jax.jit(keep_best)(before, learner, Evaluation(returns, returns, returns))
    well = bool(np.isfinite(score) and np.isfinite(weight))
    np.testing.assert_array_equal(after.params["kernel"], [[2.0, 2.0], [2.0, weight] if well else [0.0, 0.0]])
    np.testing.assert_array_equal(after.score, [2.0, (score + 1) / 2 if well else -np.inf])
