"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
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
