"""Compiled programs that a command finds again: the same weights, whatever has become of what was kept."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from process_tools import HANGING, rollax, surroundings

from rollax.experiment.experiment import make_experiment
from rollax.programs import background, shelf
from rollax.programs.machine import use_compile_cache

SMALL = ["double", "--preset", "none", "--seeds", 2, "--num-envs", 4, "--steps", 800, "--warm-up-steps", 100,
         "--capacity", 400, "--hidden", 16, "--batch-size", 8, "--eval-episodes", 2, "--quiet"]  # fmt: skip


ROLLOUTS = ["--preset", "none", "--num-envs", 4, "--rollout-length", 8, "--steps", 640, "--hidden", 16,
            "--eval-episodes", 2, "--quiet"]  # fmt: skip


def trained(cache: Path, folder: Path, *flags: object) -> tuple[list[str], float]:
    """The hashes of the weights of a run, and the seconds that it compiled for."""
    words = rollax("train", *(() if "ppo" in flags else SMALL), *flags, "--run-dir", folder)
    env = surroundings(XDG_CACHE_HOME=str(cache))
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=HANGING, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads((folder / "summary.json").read_text())
    return [member["params_sha256"] for member in summary["members"]], summary["compile_seconds"]


@pytest.mark.thorough
def test_a_second_run_finds_its_programs_and_learns_the_same(tmp_path):
    cache = tmp_path / "cache"
    first, _ = trained(cache, tmp_path / "first")
    (kept,) = (cache / "rollax" / "programs").iterdir()
    assert {file.name for file in kept.iterdir()} == {"advance", "warm_up", "init", "evaluate"}
    before = {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}
    assert trained(cache, tmp_path / "second")[0] == first
    assert trained(cache, tmp_path / "longer", "--steps", 1_600, "--learning-rate", 0.01)[0] != first
    assert {file.name: file.stat().st_mtime_ns for file in kept.iterdir()} == before, "nothing was compiled anew"
    for file in kept.iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    assert trained(cache, tmp_path / "damaged")[0] == first
    assert trained(cache, tmp_path / "wider", "--hidden", 24)[0] != first
    assert len(list((cache / "rollax" / "programs").iterdir())) == 2


RECURRENT = pytest.param(["--recurrence", "gru"], marks=pytest.mark.thorough)


@pytest.mark.parametrize("flags", [[], RECURRENT])
def test_a_loaded_program_needs_nothing_that_only_compiling_makes_ready(tmp_path, flags):
    """`ppo` once crashed in every second run: its weights came from LAPACK, which the loading process had not begun."""
    first, second = (
        trained(tmp_path / "cache", tmp_path / name, "ppo", *ROLLOUTS, *flags)[0] for name in ("first", "second")
    )
    assert first == second
    (kept,) = (tmp_path / "cache" / "rollax" / "programs").iterdir()
    assert {file.name for file in kept.iterdir()} == {"advance", "init", "evaluate"}


def test_a_program_that_calls_another_library_is_not_kept(tmp_path):
    place = shelf.Shelf(tmp_path)
    square = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    place.keep("plain", jax.jit(lambda x: x @ x).lower(square).compile())
    place.keep("qr", jax.jit(jnp.linalg.qr).lower(square).compile())
    assert [file.name for file in tmp_path.iterdir()] == ["plain"]


@pytest.fixture
def command(monkeypatch, tmp_path):
    """As in a process that is a command."""
    monkeypatch.setattr(background, "_command", [True])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    use_compile_cache()


def asked(**values):
    experiment = make_experiment("double", preset="none", **values)
    agent: Any = experiment.choices  # whatever its `repr` tells
    return shelf.shelf_of(experiment, agent, "facts").folder


def test_what_shapes_a_program_is_asked_for_and_nothing_else(command):
    assert asked() is not None
    assert asked(steps=777, seed=3, learning_rate=0.1, checkpoint_seconds=1.0, eval_steps=50) == asked()
    others = [asked(hidden=(3,)), asked(num_envs=3), asked(eval_episodes=3), asked(env="Acrobot-v1")]
    others += [asked(double=False)]
    assert len({asked(), *others}) == 6


def test_code_of_the_users_own_is_never_kept(command):
    assert asked(env="probes:Constant") is None


def test_nothing_is_kept_in_python(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert asked() is None


def test_the_oldest_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf, "MOST", 2)
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "advance").write_text(name)
    shelf.forget_oldest(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
