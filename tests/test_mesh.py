"""Several devices: what a mesh may change and what it must not, and what is said where it does not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollax.commands.cli import run_command
from rollax.programs.mesh import Grid, grid_of, largest_grid


@pytest.fixture(scope="module")
def laws(tmp_path_factory):
    """What `mesh_laws.py` measured, with four simulated devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("mesh_laws.py"), tmp_path_factory.mktemp("mesh")],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.thorough
def test_one_shard_is_no_mesh(laws):
    assert laws["one_shard"] <= 1e-6


@pytest.mark.thorough
def test_replicas_stay_equal_bit_for_bit(laws):
    assert set(laws["replicas"].values()) == {0}, laws["replicas"]


@pytest.mark.thorough
def test_an_update_is_the_same_whole_and_in_shares(laws):
    assert laws["update"] <= 1e-5


@pytest.mark.thorough
def test_shards_have_keys_of_their_own_and_a_seed_repeats(laws):
    assert not laws["same"]
    assert laws["repeats"]


@pytest.mark.thorough
def test_a_run_goes_on_with_another_number_of_devices(laws):
    assert laws["devices"] == {"moved": True, "memory": [1, 16, 34, 4], "status": "finished", "steps": 2_048}


@pytest.mark.thorough
def test_the_most_devices_that_divide_the_members_are_taken(laws):
    assert laws["automatic"].startswith("3 devices: members on 3, the environments of each member on 1")


def test_members_go_first_and_then_environments():
    assert grid_of(8, 4, lambda shards: 16 % shards == 0) == Grid(4, 2)
    assert grid_of(8, 3, lambda shards: shards <= 4) is None
    assert largest_grid(8, 1, 3, lambda shards: shards <= 2) == Grid(3, 2)
    assert largest_grid(8, 4, 10, lambda shards: shards == 1) is None  # four processes cannot share ten members
    assert largest_grid(8, 2, 10, lambda shards: shards == 1) == Grid(2, 1)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--devices", "3"], "devices=3, but there are only 1"),
        (["--env", "gymnasium:CartPole-v1", "--devices", "2"], "stepped for one device"),
    ],
)
def test_devices_that_are_not_there_are_refused(flags, told, capsys):
    assert run_command("train", ["double", *flags]) == 2
    assert told in capsys.readouterr().err
