"""`--auto-tune`: how many environments are chosen, and why."""

from __future__ import annotations

import pytest

import rollax
from rollax.errors import ConfigError
from rollax.training import sizing

MEGABYTE = 2**20


def ppo(**values):
    return rollax.make_experiment("ppo", env="CartPole-v1", **{"steps": 50_000_000} | values)


@pytest.fixture
def memory(monkeypatch):
    """Sets what is free."""
    return lambda free: monkeypatch.setattr(sizing, "available_bytes", lambda: free)


def test_a_machine_gets_what_it_can_use(memory):
    memory(1_000 * MEGABYTE)
    experiment, line = sizing.fit_to_device(ppo())
    assert experiment.loop.num_envs == 256
    assert "num_envs=256 (was 32), which takes" in line
    assert "of the 1000 MiB that are free; the most that are chosen for a CPU" in line


def test_memory_sets_a_limit(memory):
    """Half of what is free holds the run as the compiler counts it, and would not hold the next larger one."""
    memory(12 * MEGABYTE)
    experiment, line = sizing.fit_to_device(ppo())
    chosen, limit = experiment.loop.num_envs, 6 * MEGABYTE
    assert 16 <= chosen < 256
    sizes = [sizing.memory_need(sizing.with_envs(experiment, count), limit) for count in (chosen, 2 * chosen)]
    assert sizes[0] <= limit < sizes[1]
    assert "more would not fit" in line


def test_a_run_that_is_too_large_anyway_is_told(memory):
    memory(MEGABYTE // 100)
    experiment, line = sizing.fit_to_device(ppo())
    assert experiment.loop.num_envs == 1
    assert line == "auto-tune: num_envs=1 (was 32); even so few take more than half of the 0 MiB that are free"


def test_the_length_of_the_run_sets_a_limit(memory):
    memory(1_000 * MEGABYTE)
    experiment, line = sizing.fit_to_device(ppo(steps=300_000))
    assert experiment.loop.num_envs == 32
    assert "fewer than 100 iterations" in line


def test_agents_with_a_replay_are_refused():
    with pytest.raises(ConfigError, match="set --num-envs yourself"):
        sizing.fit_to_device(rollax.make_experiment("double"))
