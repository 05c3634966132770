"""Checkpoints: exact, safe, and aware of damage."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rollax
from rollax.errors import CheckpointError, ConfigError, NewerFormatError
from rollax.runs import checkpoint
from rollax.runs.folder import RunFolder
from rollax.runs.lock import Lock

TREE: dict[str, Any] = {
    "scalar": jnp.int32(7),
    "flags": jnp.array([True, False]),
    "bytes": jnp.arange(5, dtype=jnp.uint8),
    "weights": {"kernel": jnp.linspace(-1, 1, 12).reshape(3, 4), "bias": jnp.zeros(4)},
    "key": jax.random.split(jax.random.key(3), 2),
    "empty": (),
}


@pytest.fixture
def saved(tmp_path):
    checkpoint.save(tmp_path / "100", TREE, {"step": 100})
    return tmp_path / "100"


def test_a_tree_comes_back_bit_for_bit(saved):
    assert checkpoint.verify(saved) == {"step": 100}
    restored = checkpoint.restore(saved, jax.eval_shape(lambda: TREE))
    assert jax.tree.structure(restored) == jax.tree.structure(TREE)
    for name, array in checkpoint.flatten(restored).items():
        original = checkpoint.flatten(TREE)[name]
        assert array.dtype == original.dtype
        np.testing.assert_array_equal(array, original)
    assert checkpoint.is_key(restored["key"])


def test_a_part_of_a_tree_can_be_read(saved):
    weights = checkpoint.restore(saved, jax.eval_shape(lambda: TREE["weights"]), "weights")
    np.testing.assert_array_equal(weights["kernel"], TREE["weights"]["kernel"])


def test_two_hundred_flipped_bits_are_two_hundred_found(saved, tmp_path):
    """Any file, any byte, any bit."""
    draw = random.Random(0)
    files = sorted(saved.iterdir())
    for trial in range(200):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(saved, copy)
        victim = copy / files[trial % len(files)].name
        data = bytearray(victim.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        victim.write_bytes(bytes(data))
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.verify(copy)


@pytest.mark.parametrize("name", ["arrays.safetensors", "meta.json", "manifest.json", "manifest.sha256"])
def test_missing_and_shortened_files_are_found(saved, name):
    data = (saved / name).read_bytes()
    (saved / name).write_bytes(data[:-1])
    with pytest.raises(CheckpointError):
        checkpoint.verify(saved)
    (saved / name).unlink()
    with pytest.raises(CheckpointError):
        checkpoint.verify(saved)


def test_a_foreign_tree_is_refused_and_named(saved):
    shapes = jax.eval_shape(lambda: TREE)
    wrong = shapes | {"weights": shapes["weights"] | {"kernel": jax.ShapeDtypeStruct((3, 5), jnp.float32)}}
    with pytest.raises(CheckpointError, match=r"weights/kernel is float32\[3, 4\], but .* float32\[3, 5\]"):
        checkpoint.restore(saved, wrong)
    with pytest.raises(CheckpointError, match="extra is missing"):
        checkpoint.restore(saved, shapes | {"extra": shapes["scalar"]})
    fewer = {name: leaf for name, leaf in shapes.items() if name != "flags"}
    with pytest.raises(CheckpointError, match="flags belongs to another"):
        checkpoint.restore(saved, fewer)


def test_the_newest_whole_checkpoint_is_used(tmp_path, capsys):
    folder = RunFolder(tmp_path)
    assert folder.newest_good_checkpoint() == (None, {})
    for step in (10, 20, 30):
        folder.write_checkpoint(step, checkpoint.flatten(TREE), {"step": step}, keep=3)
    (folder.checkpoints / "30" / "arrays.safetensors").write_bytes(b"")
    path, meta = folder.newest_good_checkpoint()
    assert path is not None
    assert (path.name, meta["step"]) == ("20", 20)
    assert "it has 0 bytes instead of 475; the checkpoint of step 20 is used" in capsys.readouterr().err
    folder.newest_good_checkpoint(aside=True)
    assert folder.checkpoint_steps() == [20, 10]  # and the damaged one is no longer counted
    for step in (10, 20):
        (folder.checkpoints / str(step) / "meta.json").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .+ is whole"):
        folder.newest_good_checkpoint()


def test_only_the_last_are_kept_and_leftovers_of_a_kill_are_swept(tmp_path):
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    (folder.checkpoints / ".25.999").mkdir()
    for step in (10, 20, 30):
        folder.write_checkpoint(step, checkpoint.flatten(TREE), {}, keep=2)
    assert sorted(entry.name for entry in folder.checkpoints.iterdir()) == ["20", "30"]


def test_weights_have_a_fingerprint_of_names_shapes_and_bytes():
    weights = TREE["weights"]
    first = checkpoint.params_sha256(weights)
    assert first == checkpoint.params_sha256(dict(reversed(weights.items())))
    assert first != checkpoint.params_sha256({**weights, "bias": jnp.zeros(4).at[0].set(1e-30)})
    assert first != checkpoint.params_sha256({"kernel": weights["kernel"].reshape(4, 3), "bias": weights["bias"]})
    assert first != checkpoint.params_sha256({"kernel2": weights["kernel"], "bias": weights["bias"]})


def test_nothing_unpickles():
    """No module of the package can run code from a file."""
    for path in Path(rollax.__file__).parent.rglob("*.py"):
        text = path.read_text().replace('"cloudpickle"', "")  # a name
        for word in ("pickle", "marshal", "shelve", r"(?<![\w. ])eval\(", r"\bexec\(", "allow_pickle", "yaml"):
            assert not re.search(word, text), f"{path}: {word}"


def test_a_folder_has_one_writer_and_a_stale_lock_is_seen_through(tmp_path):
    folder = RunFolder(tmp_path)
    folder.lock.write_text("process 1")  # left by a process that died
    with Lock(folder), pytest.raises(ConfigError, match="is in use by process"), Lock(folder):
        pass
    with Lock(folder):
        pass


def test_a_table_keeps_what_the_checkpoint_knows(tmp_path):
    path = tmp_path / "t.csv"
    first = RunFolder(tmp_path).table(path, ("step", "x"), step=0, grid=10, last=25)
    first.add([{"step": step, "x": step / 10} for step in (10, 20, 25)] + [{"step": 30, "x": None}])
    first.write()
    assert path.read_text() == "step,x\n10,1.0\n20,2.0\n25,2.5\n30,\n"
    RunFolder(tmp_path).table(path, ("step", "x"), step=25, grid=10, last=25)
    assert path.read_text() == "step,x\n10,1.0\n20,2.0\n25,2.5\n"
    RunFolder(tmp_path).table(path, ("step", "x"), step=25, grid=10, last=50)  # extended: 25 lies no longer on the way
    assert path.read_text() == "step,x\n10,1.0\n20,2.0\n"


def test_a_deleted_lock_lets_nobody_in(tmp_path):
    folder = RunFolder(tmp_path)
    with Lock(folder):
        folder.lock.unlink()
        with pytest.raises(ConfigError, match="is in use by another process"), Lock(folder):
            pass


def test_only_our_own_leftovers_are_swept(tmp_path):
    folder = RunFolder(tmp_path)
    ours = [".summary.json.12", ".metrics.csv.3456"]
    theirs = [".summary.json", ".summary.json.12x", ".notes.12", "summary.json.12", ".metricsxcsv.3"]
    for name in (*ours, *theirs):
        (tmp_path / name).write_text("kept")
    with Lock(folder):
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*theirs, ".lock"])


def test_what_is_not_ours_stays_in_a_checkpoint_that_is_dropped(tmp_path):
    folder = RunFolder(tmp_path)
    for step in (10, 20):
        folder.write_checkpoint(step, checkpoint.flatten(TREE), {"step": step}, keep=2)
    note = folder.checkpoints / "10" / "note.txt"
    note.write_text("mine")
    folder.write_checkpoint(30, checkpoint.flatten(TREE), {"step": 30}, keep=2)
    (kept,) = folder.checkpoints.rglob("note.txt")
    assert kept.read_text() == "mine"
    assert folder.checkpoint_steps() == [30, 20]


def test_a_link_in_place_of_the_checkpoints_is_never_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "10").mkdir(parents=True)
    (elsewhere / ".10.99").mkdir()
    (elsewhere / ".bashrc").write_text("mine")
    folder = RunFolder(tmp_path / "run")
    folder.make()
    folder.checkpoints.symlink_to(elsewhere)
    for action in (
        lambda: folder.write_checkpoint(20, checkpoint.flatten(TREE), {"step": 20}, keep=1),
        lambda: folder.newest_good_checkpoint(aside=True),
    ):
        with pytest.raises(CheckpointError, match="is a link, where a real folder must be"):
            action()
    assert sorted(path.name for path in elsewhere.iterdir()) == [".10.99", ".bashrc", "10"]


def test_what_is_set_aside_has_a_name_of_its_own(tmp_path):
    folder = RunFolder(tmp_path)
    for _ in range(3):
        folder.write_checkpoint(10, checkpoint.flatten(TREE), {"step": 10}, keep=2)
        (folder.checkpoints / "10" / "meta.json").unlink()
        with pytest.raises(CheckpointError, match="is whole"):
            folder.newest_good_checkpoint(aside=True)
    assert folder.damaged_checkpoints() == ["10.damaged", "10.damaged-2", "10.damaged-3"]


def test_a_checkpoint_under_another_name_or_of_a_newer_format_is_refused(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_checkpoint(10, checkpoint.flatten(TREE), {"step": 10}, keep=2)
    path = (folder.checkpoints / "10").rename(folder.checkpoints / "20")
    with pytest.raises(CheckpointError, match="is the checkpoint of step 10 under another name"):
        checkpoint.verify(path)
    path = path.rename(folder.checkpoints / "10")
    reseal(path, {"format": 999})
    with pytest.raises(NewerFormatError, match="has format 999, and this version reads up to 1"):
        folder.newest_good_checkpoint(aside=True)
    assert folder.checkpoint_steps() == [10]  # it is whole, and stays where it is
    reseal(path, {"format": 1, "../10/note": {"sha256": "0", "bytes": 0}})
    with pytest.raises(CheckpointError, match="and nothing else"):
        checkpoint.verify(path)


def reseal(path, changes):
    """Changes a manifest as somebody would who knows how it is sealed."""
    manifest = json.loads((path / checkpoint.MANIFEST).read_text()) | changes
    (path / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    (path / checkpoint.SEAL).write_text(hashlib.sha256(json.dumps(manifest).encode()).hexdigest())
