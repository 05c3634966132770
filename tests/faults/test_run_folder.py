"""Every file of a run folder, damaged in every way, under every command that reads it: one line, and nothing lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_tools import Answer, ask, contents_of, copied, judge, note, recast, summary_of
from safetensors.numpy import load_file

import rollax
from rollax.errors import CheckpointError
from rollax.runs import checkpoint, seals
from rollax.runs.files import write_text
from rollax.runs.folder import RunFolder
from rollax.runs.lock import Lock

PARTS = (checkpoint.ARRAYS, checkpoint.META, checkpoint.MANIFEST, checkpoint.SEAL)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def move_and_link(path: Path) -> None:
    """The same content, but elsewhere."""
    there = path.parent.parent / f"elsewhere-{path.name}"
    path.rename(there)
    path.symlink_to(there)


def become(kind: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        kind(path)

    return change


def insert(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\xff\xfe" + data[len(data) // 2 :])


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a flipped bit": flip,
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "a link": move_and_link,
    "a FIFO": become(os.mkfifo),
    "a folder": become(Path.mkdir),
    "no UTF-8": insert,
    "deep JSON": lambda path: path.write_bytes(b"[" * 100_000),
    "a huge number": lambda path: path.write_text('{"step": 1' + "0" * 9_000 + "}"),
    "names twice": lambda path: path.write_text('{"step": 1, "step": 2}'),
}
PARTIAL = ("cut short", "a flipped bit", "no UTF-8")  # of a table, most rows stay


def words(command: str, run: Path) -> list[str]:
    """A command about a run whose files, if any, go elsewhere."""
    out = str(run.parent / "out")
    return {
        "resume": ["resume", str(run), "--quiet"],
        "extend": ["resume", str(run), "--steps", "1600", "--quiet"],
        "eval": ["eval", str(run), "--episodes", "1"],
        "export": ["export", str(run), "--out", out],
        "watch": ["watch", str(run), "--out", f"{out}.gif", "--quiet"],
        "plot": ["plot", str(run), "--out", f"{out}.png"],
        "report": ["report", str(run), "--out", f"{out}.html", "--no-film"],
    }[command]


def nothing_lost(before: dict[str, bytes], run: Path) -> None:
    """Every content is still in the folder, under some name, and nothing has changed under its own but what is said."""
    after = list(contents_of(run).values())
    for name, content in before.items():
        assert content in after or name.split("/")[-1] == ".lock", f"{name} is lost"


def hurt(run: Path, name: str, damage: str) -> None:
    """Damages a file, or one of every checkpoint."""
    paths = run.glob(f"checkpoints/*/{name}") if name in PARTS else [run / name]
    for path in list(paths):
        DAMAGES[damage](path)


def asked(request: pytest.FixtureRequest, run: Path, command: str, code: int, *said: str) -> Answer:
    before = contents_of(run)
    answer = judge(request, ask(*words(command, run)), code, *said)
    nothing_lost(before, run)
    return answer


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("command", ["extend", "eval", pytest.param("export", marks=pytest.mark.thorough)])
def test_damaged_checkpoints_are_refused(request, finished_run, tmp_path, command, name, damage):
    run = copied(finished_run, tmp_path)
    hurt(run, name, damage)
    answer = asked(request, run, command, 3, "checkpoints")
    assert (name in answer.err) or "manifest" in name
    if command == "extend":  # as often as one asks
        assert not RunFolder(run).checkpoint_steps()
        assert ask(*words(command, run)).code == 3
        assert (run / "metrics.csv").read_bytes() == (finished_run / "metrics.csv").read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["resume", "eval", "export", "watch", "plot", "report"])
def test_a_damaged_configuration_is_refused(request, finished_run, tmp_path, command, damage):
    run = copied(finished_run, tmp_path)
    hurt(run, "config.json", damage)
    said = asked(request, run, command, 3, "config.json")
    assert len(said.lines) <= 2


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["resume", "plot", "report"])
def test_a_damaged_table_is_said_and_its_good_rows_are_shown(request, finished_run, tmp_path, command, damage):
    run = copied(finished_run, tmp_path)
    hurt(run, "metrics.csv", damage)
    whole = damage in PARTIAL or command == "resume"
    asked(request, run, command, 0 if whole else 3, "metrics.csv")
    assert contents_of(run).keys() - {".lock"} == contents_of(finished_run).keys() - {"metrics.csv", ".lock"} | (
        set() if damage in ("missing", "a FIFO", "a folder") else {"metrics.csv"}
    )


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["evaluations.csv", "summary.json", "hashes.json"])
def test_what_a_report_cannot_trust_is_left_out(request, finished_run, tmp_path, name, damage):
    run = copied(finished_run, tmp_path)
    hurt(run, name, damage)
    before = contents_of(run)
    asked(request, run, "report", 0, name)
    assert contents_of(run) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_hashes_are_written_anew(request, finished_run, tmp_path, damage):
    run = copied(finished_run, tmp_path)
    hurt(run, "hashes.json", damage)
    asked(request, run, "resume", 0, "hashes.json")


@pytest.mark.parametrize(
    "damage", ["a flipped bit", *(pytest.param(one, marks=pytest.mark.thorough) for one in DAMAGES if "bit" not in one)]
)
def test_a_resume_keeps_the_rows_that_it_can_trust(request, finished_run, tmp_path, damage):
    """Tables and summary damaged at once: the run goes on from its checkpoint, and what was there is kept beside."""
    run = copied(finished_run, tmp_path)
    rows = (run / "metrics.csv").read_text().splitlines()
    for name in ("metrics.csv", "evaluations.csv", "summary.json"):
        hurt(run, name, damage)
    hurt_ones = {name: content for name, content in contents_of(run).items() if name.endswith(("csv", "summary.json"))}
    answer = judge(request, ask(*words("extend", run)), 0, "metrics.csv", "evaluations.csv", "summary.json")
    assert len(answer.lines) == 3
    nothing_lost(hurt_ones, run)
    now = (run / "metrics.csv").read_text().splitlines()
    assert sum(row in now for row in rows) >= (len(rows) - 2 if damage == "a flipped bit" else 1)
    assert summary_of(run)["status"] == "finished"
    assert ask(*words("plot", run)).lines == []  # and all is whole again


PLACES = {"a link": lambda path, to: path.symlink_to(to), "a FIFO": lambda path, _: os.mkfifo(path)}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("command", ["extend", "eval", "export", "watch"])
def test_checkpoints_that_are_no_folder_are_refused(request, finished_run, tmp_path, command, kind):
    """Also in the folder that a link leads to nothing is deleted, renamed or read."""
    run = copied(finished_run, tmp_path)
    theirs = (run / "checkpoints").rename(tmp_path / "theirs")
    (theirs / ".profile").write_text("mine")
    (theirs / ".10.20").mkdir()
    PLACES[kind](run / "checkpoints", theirs)
    before = contents_of(theirs)
    judge(request, ask(*words(command, run)), 3, f"checkpoints is {kind}")
    assert contents_of(theirs) == before
    assert (theirs / ".10.20").is_dir()


@pytest.mark.parametrize("kind", PLACES)
def test_a_lock_that_is_no_file_is_refused(request, finished_run, tmp_path, kind):
    run = copied(finished_run, tmp_path)
    (run / ".lock").unlink()
    target = tmp_path / "target"
    target.write_text("mine")
    PLACES[kind](run / ".lock", target)
    judge(request, ask("resume", run), 3, f".lock is {kind}")
    assert target.read_text() == "mine"


@pytest.mark.parametrize("command", ["extend", "eval", "export", "watch"])
def test_a_renamed_checkpoint_is_refused(request, finished_run, tmp_path, command):
    run = copied(finished_run, tmp_path)
    steps = RunFolder(run).checkpoint_steps()
    for number, step in enumerate(steps):
        (run / "checkpoints" / str(step)).rename(run / "checkpoints" / str(90_000 + number))
    asked(request, run, command, 3, f"is the checkpoint of step {steps[0]} under another name")


@pytest.mark.parametrize("command", ["extend", "eval", "export", "watch"])
def test_the_weights_of_another_experiment_are_refused(request, finished_run, tmp_path, command):
    run = copied(finished_run, tmp_path)
    config = json.loads((run / "config.json").read_text())
    recast(run, config | {"seed": 77})
    RunFolder(run).write_config(config)
    asked(request, run, command, 3, "is of another experiment", "seed: 77 -> 0")


@pytest.mark.parametrize("command", ["extend", "eval", "export", "watch"])
def test_a_newer_format_is_named_and_left_where_it_is(request, finished_run, tmp_path, monkeypatch, command):
    run = copied(finished_run, tmp_path)
    monkeypatch.setattr(checkpoint, "FORMAT", 999)
    for step in RunFolder(run).checkpoint_steps():
        path = run / "checkpoints" / str(step)
        checkpoint.write(path, load_file(path / checkpoint.ARRAYS), checkpoint.verify(path))
    before = contents_of(run)
    judge(request, ask(*words(command, run)), 3, "has format 999", "use a newer rollax")
    assert contents_of(run) == before


def test_a_changed_setting_is_never_silent(request, finished_run, tmp_path):
    """Of the settings that a resume may change: others are refused."""
    run = copied(finished_run, tmp_path)
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"keep_checkpoints": 2', '"keep_checkpoints": 3'))
    asked(request, run, "resume", 0, "config.json is not as rollax wrote it")
    (run / "config.json").write_text(text.replace('"discount": 0.99', '"discount": 0.98'))
    asked(request, run, "eval", 3, "discount: 0.99 -> 0.98")


@pytest.mark.parametrize("name", ["metrics.csv", "evaluations.csv", "summary.json", "checkpoints", "config.json"])
def test_a_folder_with_files_of_those_names_is_no_place_for_a_run(request, tmp_path, name):
    (tmp_path / name).write_text("mine")
    judge(request, ask("train", "double", "--preset", "none", "--run-dir", tmp_path, "--quiet"), 2, "holds")
    assert (tmp_path / name).read_text() == "mine"


def test_a_run_folder_may_be_named_by_a_link(request, finished_run, tmp_path):
    (tmp_path / "link").symlink_to(copied(finished_run, tmp_path))
    judge(request, ask("resume", tmp_path / "link", "--quiet"), 0)


def test_load_refuses_as_eval_does(request, finished_run, tmp_path):
    run = copied(finished_run, tmp_path)
    hurt(run, checkpoint.META, "a flipped bit")
    with pytest.raises(CheckpointError, match=r"meta\.json is damaged"):
        rollax.load(run)
    note(request, "answered")


def test_a_deleted_lock_lets_no_second_writer_in(request, finished_run, tmp_path):
    run = copied(finished_run, tmp_path)
    with Lock(RunFolder(run)):
        (run / ".lock").unlink()
        judge(request, ask("resume", run), 2, "is in use")


def test_a_kill_between_a_hash_and_its_file_is_no_damage(request, finished_run, tmp_path, monkeypatch):
    run = copied(finished_run, tmp_path)
    folder, before = RunFolder(run), contents_of(run)
    header, *rows = folder.metrics.read_text().splitlines()
    table = folder.table(folder.metrics, header.split(","), 800, 160, 800)
    table.add([dict(zip(table.columns, rows[-1].split(","), strict=True))])

    def killed(path: Path, text: str) -> None:
        assert path.name == "hashes.json"
        monkeypatch.undo()
        write_text(path, text)
        raise KeyboardInterrupt

    monkeypatch.setattr(seals, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        table.write()
    assert contents_of(run)["metrics.csv"] == before["metrics.csv"]
    assert contents_of(run)["hashes.json"] != before["hashes.json"]
    assert judge(request, ask(*words("plot", run)), 0).lines == []
    table.write()
    assert contents_of(run)["metrics.csv"] != before["metrics.csv"]
    assert ask(*words("plot", run)).lines == []


def test_a_restart_keeps_all_that_was_there_beside(request, finished_run, tmp_path):
    run = copied(finished_run, tmp_path)
    hurt(run, checkpoint.META, "a flipped bit")
    before = {name: content for name, content in contents_of(run).items() if name not in (".lock", "curve.png")}
    asked(request, run, "resume", 0)  # it is finished: nothing but its summary is needed
    asked(request, run, "extend", 3, "--restart", "keeps the old rows beside")
    answer = judge(request, ask(*words("extend", run), "--restart"), 0, "metrics.1.csv", "checkpoints.1", most=1)
    assert "evaluations.1.csv" in answer.err
    del before["config.json"]  # with its new number of steps
    nothing_lost(before, run)
    assert summary_of(run)["status"] == "finished"
    assert summary_of(run)["total_steps"] == 1600


@pytest.mark.parametrize("name", ["watch.gif", "export", "export/weights.safetensors"])
def test_nothing_is_written_through_a_link(request, finished_run, tmp_path, name):
    """What commands leave in a run folder by default."""
    run = copied(finished_run, tmp_path)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("mine")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(theirs if name == "export" else theirs / "file")
    judge(request, ask("watch" if name == "watch.gif" else "export", run), 3, f"{name} is a link")
    assert contents_of(theirs) == {"file": b"mine"}


def test_no_log_is_written_through_a_link(request, finished_run, tmp_path):
    pytest.importorskip("tensorboardX")
    run = copied(finished_run, tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["record"]["log_to"] = ["jsonl", "tensorboard"]
    recast(run, config)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "log").write_text("mine")
    (run / "tensorboard").symlink_to(tmp_path / "theirs")
    (run / "log.jsonl").symlink_to(tmp_path / "theirs" / "log")
    judge(request, ask(*words("extend", run)), 0, "tensorboard is a link", "log.jsonl is a link")
    assert contents_of(tmp_path / "theirs") == {"log": b"mine"}
