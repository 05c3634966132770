"""Two processes on one machine: they learn the same, and miss one another."""

from __future__ import annotations

import json
import re
import socket
import subprocess

import pytest
from process_tools import launch, output_of, wait_for

from rollax.commands.cli import run_command
from rollax.errors import ConfigError, NumericError, ResourceError
from rollax.experiment.experiment import make_experiment
from rollax.experiment.tree import to_json
from rollax.programs import cluster
from rollax.programs.agreement import check_weights, disagreements
from rollax.programs.cluster import Place, joined
from rollax.runs.folder import RunFolder


def free_port() -> int:
    """A port that is free, and so is the next."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def start(*arguments: str, second: tuple[str, ...] = ()) -> list[subprocess.Popen[str]]:
    """The same command as two processes, of which the second may have other flags as well."""
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2]
    return [launch(*arguments, *own, *place, "--process-id", index) for index, own in enumerate(((), second))]


@pytest.mark.thorough
def test_a_lost_process_is_named_and_two_learn_the_same(tmp_path):
    folder = RunFolder(tmp_path / "run")
    flags = ["--preset", "none", "--num-envs", "4", "--hidden", "8", "--capacity", "400", "--batch-size", "8"]
    grids = ["--checkpoint-seconds", "0", "--chunk-seconds", "0.2"]
    endless = ["--steps", str(10**9), "--eval-steps", str(10**9)]
    first, second = start("train", "double", *flags, *grids, *endless, "--run-dir", str(folder.path))
    wait_for(lambda: bool(folder.checkpoint_steps()), first)
    second.kill()
    _, error = output_of(first)
    assert first.returncode == 6, error
    # "is gone": it hung up, and was missed at once, not after it had been silent for a while.
    assert any(line.startswith("rollax: process 1 is gone;") for line in error.splitlines()), error
    reached = max(folder.checkpoint_steps())
    config = folder.config.read_text()
    folder.config.write_text(re.sub(r'"steps": \d+', f'"steps": {reached + 400}', config, count=1))
    both = start("resume", str(folder.path))
    outputs = [output_of(process) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    hashes = [out.splitlines()[-1].rpartition(" ")[2] for out, _ in outputs]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 64
    assert folder.read_summary()["status"] == "finished"


SMALL = ("--preset", "none", "--num-envs", "4", "--hidden", "8", "--capacity", "400", "--batch-size", "8")


def test_processes_with_other_settings_do_not_begin(tmp_path):
    """Neither of them, and before anything compiles.  What they tell one another is longer than 1,000 bytes."""
    assert len(json.dumps(to_json(make_experiment("double", preset="none")))) > 1_000
    flags = (*SMALL, "--run-dir", str(tmp_path / "run"))
    both = start("train", "double", *flags, second=("--learning-rate", "0.1", "--seed", "3"))
    outputs = [output_of(process) for process in both]
    assert [process.returncode for process in both] == [2, 2], outputs
    for out, err in outputs:
        assert "rollax: process 1 differs from process 0 in hparams.learning_rate: 0.0005 -> 0.1" in err
        assert "rollax: process 1 differs from process 0 in seed: 0 -> 3" in err
        assert "Traceback" not in err
        assert "Compil" not in out
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_processes_that_drift_apart_are_noticed_at_the_next_checkpoint(tmp_path):
    flags = (
        *SMALL,
        "--steps",
        "4000",
        "--warm-up-steps",
        "40",
        "--checkpoint-seconds",
        "0",
        "--run-dir",
        str(tmp_path / "run"),
    )
    both = start("train", "drifting_agent:recipe", *flags)
    outputs = [output_of(process) for process in both]
    assert [process.returncode for process in both] == [4, 4], outputs
    for _, err in outputs:
        assert "rollax: process 1 has other weights than process 0 at step" in err
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "interrupted"


def test_disagreements_name_process_and_field():
    told = [{"steps": 1, "versions": {"jax": "1"}}, {"steps": 1, "versions": {"jax": "2"}}, {"steps": 3, "x": 4}]
    lines = disagreements(told)
    assert lines[0].startswith("process 1 differs from process 0 in versions.jax: 1 -> 2 ")
    assert [line.split()[1] for line in lines] == ["1", "2", "2", "2"]
    assert disagreements([told[0], told[0]]) == []


def test_other_weights_are_an_error(monkeypatch):
    monkeypatch.setattr(cluster, "gathered", lambda own: [own, own])
    check_weights("a", 8)
    monkeypatch.setattr(cluster, "gathered", lambda own: [own, own, "b"])
    with pytest.raises(NumericError, match="process 2 has other weights than process 0 at step 8"):
        check_weights("a", 8)


@pytest.mark.thorough
def test_doctor_takes_a_mean_over_processes():
    both = start("doctor", "--distributed")
    for process in both:
        out, err = output_of(process)
        assert "1.5 over 2 devices, right" in out, err


@pytest.mark.parametrize("index", [0, 1])
def test_a_process_that_never_starts_is_named(index):
    place = Place(f"127.0.0.1:{free_port()}", 2, index)
    with pytest.raises(ResourceError, match=f"process {1 - index} .*did not start"), joined(place, 0.5):
        pytest.fail("nobody else is there")


def test_a_place_that_cannot_be_is_refused(capsys):
    assert run_command("train", ["double", "--coordinator", "here", "--num-processes", "2", "--process-id", "0"]) == 2
    assert "must be HOST:PORT" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="process_id=2 below it"), joined(Place("a:1", 2, 2)):
        pytest.fail("there is no third")
