"""What is not installed is said in one line, before anything is written."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from fault_tools import ask, judge

from rollax.errors import EXTRAS

SMALL = ("--preset", "none", "--steps", "64", "--num-envs", "2", "--capacity", "64", "--batch-size", "8")
SEARCH = ("--search", "discount=uniform:0.5:0.9")
CASES = {
    "actors": ("ray", ["train", "apex", *SMALL, "--actors", "2", "--warm-up-steps", "32"], "--run-dir"),
    "tensorboard": ("tensorboardX", ["train", "double", *SMALL, "--log-to", "tensorboard"], "--run-dir"),
    "wandb": ("wandb", ["train", "double", *SMALL, "--log-to", "wandb"], "--run-dir"),
    "atari": ("ale_py", ["train", "double", "--env", "ALE/Pong-v5"], "--run-dir"),
    "gymnasium": ("gymnasium", ["train", "double", "--env", "gymnasium:CartPole-v1"], "--run-dir"),
    "suite": ("pgx", ["train", "ppo", "--env", "pgx:2048"], "--run-dir"),
    "tune": ("optuna", ["tune", "double", *SMALL, *SEARCH], "--out"),
    "sweep_atari": ("ale_py", ["sweep", "double", "--env", "ALE/Pong-v5", *SEARCH], "--out"),
    "tune_gymnasium": ("gymnasium", ["tune", "double", "--env", "gymnasium:CartPole-v1", *SEARCH], "--out"),
    "check_env": ("ale_py", ["check-env", "ALE/Pong-v5"], ""),
    "compare": ("torch", ["compare", "treasurehunt"], "--out"),
    "against_torch": ("torch", ["bench", "--against", "torch"], ""),
    "against_sb3": ("stable_baselines3", ["bench", "--against", "sb3"], ""),
    "against_sbx": ("sbx", ["bench", "--against", "sbx"], ""),
}


@pytest.fixture
def hidden(monkeypatch):
    """Makes a module one that is not installed."""

    def hide(module: str) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == module]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)

    return hide


@pytest.mark.parametrize("case", CASES)
def test_what_is_missing_is_said_before_a_folder_is_made(request, case, hidden, tmp_path, monkeypatch):
    module, words, flag = CASES[case]
    hidden(module)
    monkeypatch.chdir(tmp_path)
    if flag:
        words = [*words, flag, str(tmp_path / "results")]
    judge(request, ask(*words), 2, f"pip install 'rollax[{EXTRAS[module].name}]'", most=1)
    assert list(tmp_path.iterdir()) == []


AFTER = {
    "film": ("imageio_ffmpeg", ["watch", "RUN", "--out", "HERE/film.mp4"]),
    "export": ("flatbuffers", ["export", "RUN", "--out", "HERE/policy"]),
    "onnx": ("jax2onnx", ["export", "RUN", "--out", "HERE/policy", "--onnx"]),
}


@pytest.mark.parametrize("case", AFTER)
def test_what_is_missing_after_a_run_is_said_before_anything_is_written(request, case, hidden, tmp_path, finished_run):
    module, words = AFTER[case]
    hidden(module)
    there = [word.replace("RUN", str(finished_run)).replace("HERE", str(tmp_path)) for word in words]
    judge(request, ask(*there), 2, f"pip install 'rollax[{EXTRAS[module].name}]'", most=1)
    assert list(tmp_path.iterdir()) == []


def test_a_logger_that_is_missing_is_said_before_a_run_goes_on(request, hidden, tmp_path):
    run = tmp_path / "run"
    judge(request, ask("train", "double", *SMALL, "--log-to", "tensorboard", "--run-dir", run, "--quiet"), 0)
    before = (run / "config.json").read_bytes()
    hidden("tensorboardX")
    judge(request, ask("resume", run, "--steps", "128"), 2, "log_to=tensorboard needs tensorboardX", most=1)
    assert (run / "config.json").read_bytes() == before


def test_every_extra_is_one_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    declared = project["project"]["optional-dependencies"]
    for module, extra in EXTRAS.items():
        names = {re.split(r"[\[<>=]", entry)[0].lower().replace("-", "_") for entry in declared[extra.name]}
        assert {module.lower(), f"{module}_rl".lower()} & names, module
