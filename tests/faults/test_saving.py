"""Large checkpoints are written beside the run: nothing changes by it, nothing is lost, and what fails is said."""

from __future__ import annotations

import errno
import threading
import time

import numpy as np
import pytest
from fault_tools import TINY, ask, copied, hashes_of, judge, ours

from rollax.runs import checkpoint, saving
from rollax.runs.folder import RunFolder
from rollax.runs.saving import SHARE, Saver

OFTEN = ["--checkpoint-seconds", "0", "--chunk-seconds", "0.001"]


@pytest.fixture
def beside(monkeypatch):
    """Every checkpoint counts as large; returns the threads that wrote one."""
    monkeypatch.setattr(saving, "LARGE", 0)
    writers: list[threading.Thread] = []
    write = RunFolder.write_checkpoint

    def noted(self, *arguments):
        writers.append(threading.current_thread())
        return write(self, *arguments)

    monkeypatch.setattr(RunFolder, "write_checkpoint", noted)
    return writers


def test_a_run_that_is_saved_beside_is_the_same_to_the_bit(tmp_path, finished_run, beside):
    run = tmp_path / "run"
    assert ask("train", *TINY, *OFTEN, "--run-dir", run, "--quiet").code == 0
    assert hashes_of(run) == hashes_of(finished_run)
    assert any(writer is not threading.main_thread() for writer in beside)
    path, _ = RunFolder(run).newest_good_checkpoint()
    assert path is not None
    assert path.name == "800"


def test_what_was_saved_beside_is_gone_on_from_exactly(tmp_path, finished_run, beside, monkeypatch):
    """The arrays of a checkpoint are those of its step, though the run has gone on while it was written."""
    run, write = tmp_path / "run", RunFolder.write_checkpoint

    def slowly(self, step, *arguments):
        time.sleep(0.2)  # the run overwrites its arrays meanwhile
        write(self, step, *arguments)

    monkeypatch.setattr(RunFolder, "write_checkpoint", slowly)
    assert ask("train", *TINY, *OFTEN, "--keep-checkpoints", 50, "--run-dir", run, "--quiet").code == 0
    folder = RunFolder(run)
    steps = folder.checkpoint_steps()
    assert len(steps) > 1
    for step in steps:
        if step != steps[-1]:
            checkpoint.remove(folder.checkpoints / str(step))  # but the oldest
    (run / "summary.json").unlink()
    again = copied(run, tmp_path / "again")
    assert ask("resume", again, "--quiet").code == 0
    assert hashes_of(again) == hashes_of(finished_run)


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_what_fails_beside_the_run_ends_it_in_one_line(request, tmp_path, beside, monkeypatch, kind):
    @ours
    def full(self, *arguments):
        raise OSError(kind, "it cannot be done")

    monkeypatch.setattr(RunFolder, "write_checkpoint", full)
    answer = ask("train", *TINY, *OFTEN, "--run-dir", tmp_path / "run", "--quiet")
    judge(request, answer, 6, "it cannot be done", str(tmp_path / "run"), most=1)


def tree(size: int = 1_000) -> dict[str, np.ndarray]:
    return {"a": np.arange(size)}


def test_one_is_under_way_at_most_and_the_next_waits_by_its_cost(tmp_path, beside, monkeypatch):
    saver, gate = Saver(RunFolder(tmp_path), 1e-9, keep=2), threading.Event()
    write = RunFolder.write_checkpoint

    def held(self, *arguments):
        assert gate.wait(60)
        write(self, *arguments)

    monkeypatch.setattr(RunFolder, "write_checkpoint", held)
    saver.save(10, tree(), {"step": 10}, wait=False)
    assert not saver.is_due()
    assert saver.saved_step is None
    gate.set()
    saver.wait()
    assert saver.saved_step == 10
    saver.cost, saver.ended = 1.0, time.monotonic()
    assert not saver.is_due()
    saver.ended -= 1.0 / SHARE + 1.0
    assert saver.is_due()


def test_nothing_is_written_beside_where_there_is_no_room_for_a_copy(tmp_path, beside, monkeypatch):
    monkeypatch.setattr(saving, "host_bytes", lambda: 1_000)
    Saver(RunFolder(tmp_path), 1.0, keep=2).save(10, tree(), {"step": 10}, wait=False)
    assert beside == [threading.main_thread()]


def test_seconds_of_zero_write_whenever_they_are_asked(tmp_path):
    saver = Saver(RunFolder(tmp_path), 0.0, keep=2)
    saver.cost = 1_000.0
    assert saver.is_due()


@pytest.mark.parametrize("kind", sorted(checkpoint.DTYPES))
def test_every_kind_of_array_comes_back(tmp_path, kind):
    import jax.numpy as jnp

    arrays: dict[str, np.ndarray] = {
        "many": np.arange(6).reshape(2, 3).astype(jnp.dtype(kind)),
        "one": np.ones((), jnp.dtype(kind)),
    }
    arrays |= {"none": np.zeros((0, 4), jnp.dtype(kind)), "odd": np.ones(3, np.int8)}
    checkpoint.write(tmp_path / "1", arrays, {"step": 1})
    checkpoint.verify(tmp_path / "1")
    with checkpoint.opened_arrays(tmp_path / "1") as file:
        assert set(file.keys()) == set(arrays)
        for name, array in arrays.items():
            found = file.get_tensor(name)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)
