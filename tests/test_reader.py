"""The way in: what is no real file, too large, or no JSON of ours, is one line with its path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rollax.errors import CheckpointError, ConfigError
from rollax.runs.reader import check_shape, kind_of, parsed, read_bytes, read_json, read_text, real_folder, sha256_of

WRONG = {
    "empty": (b"", "is no valid JSON"),
    "cut short": (b'{"a": [1, 2', "is no valid JSON"),
    "no UTF-8": (b'{"a": "\xff"}', "is no UTF-8 text: byte 7"),
    "twice": (b'{"a": 1, "a": 2}', "'a' comes twice"),
    "deep": (b"[" * 50 + b"]" * 50, "is nested too deeply"),
    "very deep": (b"[" * 100_000, "is nested too deeply"),
    "long number": (b"1" * 5_000, "is no valid JSON"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("fail", [CheckpointError, ConfigError])
def test_what_is_no_json_of_ours_is_one_line(tmp_path, case, fail):
    content, reason = WRONG[case]
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(fail, match=reason) as caught:
        read_json(path, fail=fail)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_only_real_files_are_opened(tmp_path):
    real, link, fifo = tmp_path / "real", tmp_path / "link", tmp_path / "fifo"
    real.write_text("{}")
    link.symlink_to(real)
    os.mkfifo(fifo)
    assert read_json(real) == read_json(link, links=True) == {}
    for path, reason in ((link, "is a link"), (fifo, "is a FIFO"), (tmp_path, "is a folder")):
        with pytest.raises(CheckpointError, match=f"{reason}, where a (real )?file must be"):
            read_text(path)
        with pytest.raises(CheckpointError, match=reason):
            sha256_of(path)
    with pytest.raises(CheckpointError, match="is a device"):
        read_bytes(Path(os.devnull))
    with pytest.raises(CheckpointError, match="is missing"):
        read_text(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="there is none"):
        read_text(tmp_path / "nothing", missing="there is none")


def test_a_file_is_no_larger_than_it_may_be(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 11)
    assert read_bytes(path, most=11) == b"x" * 11
    with pytest.raises(CheckpointError, match="has 11 bytes; rollax reads at most 10"):
        read_bytes(path, most=10)
    with pytest.raises(CheckpointError, match="it has 11 bytes instead of 12"):
        sha256_of(path, size=12)


def test_a_folder_is_a_real_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert real_folder(tmp_path)
    assert not real_folder(tmp_path / "nothing")
    assert kind_of(tmp_path / "nothing") == ""
    with pytest.raises(CheckpointError, match="is a link, where a real folder must be"):
        real_folder(tmp_path / "link")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"step": 1, "members": [{"seed": 0}]}, ""),
        ({"step": True, "members": []}, "step is True"),
        ({"step": 1.0, "members": []}, "step is 1.0"),
        ({"members": []}, "step is missing"),
        ({"step": 1, "members": [{"seed": 0}, {}]}, r"members\[1\].seed is missing"),
        ({"step": 1, "members": {}}, "members must be a list"),
        ({"step": 1, "members": [], "note": 3}, "note is 3"),
        ([], "it must be an object"),
    ],
)
def test_shapes(data, problem):
    shape = {"step": int, "members": [{"seed": int}], "note?": (str, type(None))}
    if not problem:
        check_shape(data, shape, "file")
        return
    with pytest.raises(CheckpointError, match=f"^file: {problem}"):
        check_shape(data, shape, "file")


def test_ordinary_json_is_as_ever():
    assert parsed('{"a": [1, 2.5, null, "ö"]}', "x") == {"a": [1, 2.5, None, "ö"]}
