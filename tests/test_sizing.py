"""`--auto-tune`: how many environments are chosen, and why."""

from __future__ import annotations

import pytest

import rollax
from rollax.errors import ConfigError
from rollax.tools import sizes as sizing

MEGABYTE = 2**20


def ppo(**values):
    sizes = {"hidden": (8,), "rollout_length": 32, "eval_episodes": 2, "steps": 1_000_000}
    return rollax.make_experiment("ppo", preset="none", env="probes:constant", **sizes | values)


@pytest.fixture
def memory(monkeypatch):
    """Sets what is free, on a machine that would take at most 32 environments."""
    monkeypatch.setattr(sizing, "ENOUGH", {"cpu": 32})
    return lambda free: monkeypatch.setattr(sizing, "available_bytes", lambda: free)


@pytest.mark.thorough  # compiles four programs to measure them
def test_memory_sets_a_limit(memory):
    """Half of what is free holds the run as the compiler counts it, and would not hold the next larger one."""
    large, small = (sizing.memory_need(sizing.with_envs(ppo(), count), 1e12) for count in (32, 16))
    assert small < large
    for free, chosen, reason in (
        (2 * large, 32, "the most that are chosen for a CPU"),
        (2 * large - 2, 16, "more would not fit into half of it"),
    ):
        memory(free)
        experiment, line = sizing.fit_to_device(ppo(num_envs=8))
        assert experiment.loop.num_envs == chosen
        assert line.startswith(f"auto-tune: num_envs={chosen} (was 8), which takes ")
        assert line.endswith(reason)


def test_a_run_that_is_too_large_anyway_is_told(memory):
    memory(10)
    experiment, line = sizing.fit_to_device(ppo(num_envs=8))
    assert experiment.loop.num_envs == 1
    assert line == "auto-tune: num_envs=1 (was 8); even so few take more than half of the 10 B that are free"


def test_the_length_of_the_run_sets_a_limit(memory):
    memory(1_000 * MEGABYTE)
    experiment, line = sizing.fit_to_device(ppo(steps=100 * 32 * 16))
    assert experiment.loop.num_envs == 16
    assert "fewer than 100 iterations" in line


def test_agents_with_a_replay_are_refused():
    with pytest.raises(ConfigError, match="set --num-envs yourself"):
        sizing.fit_to_device(rollax.make_experiment("double"))
