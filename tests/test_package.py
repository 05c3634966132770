"""The package as it is shipped: its wheel, its imports, its layers."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rollax

ROOT = Path(__file__).parent.parent
SOURCE = Path(rollax.__file__).parent

# A module may import only from modules of a lower level.
LEVELS = [
    {"errors", "limits", "types", "aggregates", "phases", "training.console"},
    {"processes", "named"},
    {"targets", "policies", "returns", "sum_tree", "convolution", "shards"},
    {"torsos", "backups", "ring", "weights"},
    {"networks", "replay", "normalization"},
    {"agents.base", "envs.base", "epoch_replay", "acting"},
    {"envs.host", "envs.random_play"},
    {"envs.atari", "envs.gymnasium_envs"},
    {"envs.treasurehunt.world"},
    {"envs.treasurehunt.drawing"},
    {"envs.treasurehunt.environment"},
    {"envs.treasurehunt"},
    {
        "agents.q_learner",
        "agents.rollouts",
        "agents.players",
        "envs.adapters",
        "envs.hackmatrix.board",
        "envs.hackmatrix.packing",
    },
    {"envs.hackmatrix.state"},
    {"envs.hackmatrix.play"},
    {"envs.hackmatrix.programs", "envs.hackmatrix.turns"},
    {"envs.hackmatrix.actions", "envs.hackmatrix.stages", "envs.hackmatrix.rewards"},
    {"envs.hackmatrix.observation", "envs.hackmatrix.scenario"},
    {"envs.hackmatrix.drawing"},
    {"envs.hackmatrix.environment"},
    {"envs.hackmatrix"},
    {"agents.dqn", "agents.pqn", "agents.ppo", "envs.hackmatrix.torso"},
    {"agents.names"},
    {"envs.registry", "envs.pictures"},
    {"envs.check", "presets"},
    {"parts"},
    {"experiment", "training.loop"},
    {"training.evaluate", "training.mesh"},
    {"training.checkpoint", "training.cluster"},
    {"training.program"},
    {"training.jax_program", "training.host_pieces", "training.folder"},
    {"training.far_memory"},
    {"training.host_program"},
    {"training.plan"},
    {"training.records", "training.sizing", "training.debugging"},
    {"training.result", "training.loggers"},
    {"training.session", "exporting", "reporting.scales", "reporting.runs", "watching"},
    {"reporting.figures"},
    {"reporting.drawing", "reporting.tables"},
    {"reporting.page"},
    {"training.run"},
    {"comparison.settings"},
    {"comparison.numpy_world", "comparison.numpy_replay", "comparison.conversion"},
    {"comparison.torch_learner", "comparison.jax_modes"},
    {"comparison.torch_mode"},
    {"comparison.worker"},
    {"comparison.measure"},
    {"bench.settings", "bench.replay_work"},
    {"bench.gymnasium_side", "bench.jax_dqn", "bench.throughput"},
    {"bench.torch_dqn", "bench.sb3_dqn"},
    {"bench.worker"},
    {"bench.against"},
    {"asynchronous.memory"},
    {"asynchronous.actor"},
    {"asynchronous.run"},
    {"search.space"},
    {"search.arena", "search.pictures"},
    {"search.sweep"},
    {"search.tune"},
    {"inspection.memory", "inspection.programs", "inspection.differences"},
    {"inspection.profiling"},
    {"inspection.showing"},
    {"flags"},
    {"cli_search", "cli_report", "cli_bench", "cli_inspect"},
    {"cli"},
    {"__main__"},
]


def imported(path):
    """Modules of the package that a file imports, at any place in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rollax"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}".removeprefix("rollax.")
                known = any(whole in level for level in LEVELS)
                yield whole if known else node.module.removeprefix("rollax.")


def test_imports_point_one_way():
    level_of = {name: number for number, level in enumerate(LEVELS) for name in level}
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if name.endswith("__init__"):
            continue
        for other in imported(path):
            if other in level_of:
                assert level_of[other] < level_of[name], f"{name} imports {other}"


def test_oracles_stay_in_the_tests():
    for path in SOURCE.rglob("*.py"):
        for word in ("rlax", "distrax", "flashbax", "tensorflow"):
            assert f"import {word}" not in path.read_text()


def test_no_file_names_a_registry():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not tracked:
        pytest.skip("this is no git checkout")
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".toml", ".txt", ".lock", ".cfg", ".yml", ""} and path.name != "LICENSE" and path.exists():
            assert "://" not in path.read_text(), name


def test_the_wheel_works_outside_the_clone(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("rollax-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
        assert {"rollax/reporting/page.css", "rollax/reporting/page.js"} <= set(archive.namelist())
    code = (
        "import rollax, sys; assert 'site' in rollax.__file__, rollax.__file__;"
        "e = rollax.make_experiment('dqn', preset='none', steps=400, warm_up_steps=100, capacity=800, num_envs=4,"
        " hidden=(8,), eval_episodes=2); r = rollax.train(e, 'run', quiet=True); print(r.summary['status'])"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "finished", done.stderr
