"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

import jax
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_toy_loses_its_loss():
    losses = jax.jit(load("00_optax_toy").train)()
    assert losses[-1] < 0.01 * losses[0]


def test_double_dqn_in_one_file_learns(tmp_path):
    """Random play earns 22; seeds are different runs."""
    example = load("double_dqn")
    returns, episodes = example.run(seeds=2, steps=80_000)
    assert returns.shape == (2, 100)
    assert (returns.mean(axis=1) > 150).all(), returns.mean(axis=1)
    assert (episodes[0] != episodes[1]).any()
    example.draw(episodes, str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").stat().st_size > 1_000


@pytest.mark.parametrize(("name", "lines"), [("double_dqn", 200), ("00_optax_toy", 50)])
def test_it_is_short_enough_to_be_read(name, lines):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= lines


@pytest.mark.thorough
def test_ten_seeds_solve_cartpole():
    returns, _ = load("double_dqn").run(seeds=10, steps=413_696)
    assert (returns.mean(axis=1) >= 475).all(), returns.mean(axis=1)


NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
# What makes a notebook short enough for a test.
SHORTER = {
    "01_first_run": {"STEPS = 150_000": "STEPS = 12_000"},
    "02_own_environment": {"STEPS = 60_000": "STEPS = 30_000"},
    "03_compare_agents": {"SEEDS, STEPS = 10, 100_000": "SEEDS, STEPS = 3, 12_000"},
}


def cells_of(path, kind="code"):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == [*SHORTER]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    notebook = json.loads(path.read_text())
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in notebook["cells"])
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.thorough if path.stem[:2] == "03" else ()) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """Its cells one after the other in one namespace, without a kernel."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    code = "\n\n".join(cells_of(path))
    for long, short in SHORTER[path.stem].items():
        assert long in code
        code = code.replace(long, short)
    module = types.ModuleType(f"notebook_{path.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code, str(path), "exec"), module.__dict__)
