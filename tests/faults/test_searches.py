"""Searches that are interrupted, damaged, or asked to go on with something else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from fault_tools import Answer, ask, contents_of, judge

from rollax.search.arena import Arena
from rollax.search.journal import JOURNAL, SEAL

pytest.importorskip("optuna", reason="the extra tune is not installed")
SMALL = [
    *("double", "--preset", "none", "--num-envs", "4", "--hidden", "8", "--capacity", "400", "--batch-size", "8"),
    *("--warm-up-steps", "40", "--steps", "1200", "--eval-episodes", "3", "--search", "learning-rate=log:1e-4:1e-2"),
]
METHODS = ["halving", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("pbt", "random"))]


def sweep(folder: Path, *flags: object, method: str = "pbt") -> Answer:
    return ask("sweep", *SMALL, "--method", method, "--settings", 4, "--rungs", 3, "--out", folder, *flags)


def tune(folder: Path, *flags: object) -> Answer:
    return ask("tune", *SMALL, "--trials", 4, "--batch", 4, "--rungs", 2, "--confirm", 1, "--out", folder, *flags)


@contextlib.contextmanager
def at_rung(number: int, happens):
    """Something happens when a search has come to that rung."""
    whole, count = Arena.evaluate, 0

    def evaluate(arena: Arena):
        nonlocal count
        count += 1
        if count == number:
            happens()
        return whole(arena)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arena, "evaluate", evaluate)
        yield


def kill() -> None:
    """As if the process had been killed here: nothing more is written."""
    raise KeyboardInterrupt


def send(number: int):
    return lambda: os.kill(os.getpid(), number)


# -- sweeps


@pytest.fixture(scope="module")
def whole_sweep(tmp_path_factory):
    """Undisturbed sweeps, by method."""
    made: dict[str, Path] = {}

    def get(method: str) -> Path:
        if method not in made:
            made[method] = tmp_path_factory.mktemp("whole") / method
            answer = sweep(made[method], method=method)
            assert answer.code == 0, answer
        return made[method]

    return get


@pytest.fixture(scope="module")
def broken_sweep(tmp_path_factory):
    """One that was killed after two of three rungs."""
    folder = tmp_path_factory.mktemp("broken") / "sweep"
    with at_rung(3, kill):
        assert sweep(folder).code == 130
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_a_sweep_that_is_killed_ends_as_one_that_is_not(request, method, tmp_path, whole_sweep):
    with at_rung(2, kill):
        assert sweep(tmp_path / "sweep", method=method).code == 130
    judge(request, sweep(tmp_path / "sweep", method=method), 0)
    assert contents_of(tmp_path / "sweep") == contents_of(whole_sweep(method))


def test_a_sweep_that_has_finished_says_what_it_found(request, tmp_path, whole_sweep):
    folder = Path(shutil.copytree(whole_sweep("pbt"), tmp_path / "sweep"))
    answer = judge(request, sweep(folder), 0)
    assert "has finished" in answer.out
    assert "has finished" in sweep(Path(shutil.copytree(folder, tmp_path / "again")), "--devices", 1).out
    assert contents_of(folder) == contents_of(whole_sweep("pbt"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)], ids=["sigterm", "ctrl_c"])
def test_a_sweep_that_is_stopped_goes_on(request, number, code, tmp_path, whole_sweep):
    with at_rung(1, send(number)):
        answer = judge(request, sweep(tmp_path / "sweep"), code, number.name, "the same command goes on")
    assert len(answer.lines) <= 2
    judge(request, sweep(tmp_path / "sweep"), 0)
    assert contents_of(tmp_path / "sweep") == contents_of(whole_sweep("pbt"))


OTHERS = {
    "batch": (["--batch-size", 16], "choices.batch_size: 8 -> 16"),
    "seed": (["--seed", 3], "seed: 0 -> 3"),
    "settings": (["--settings", 6], "settings: 4 -> 6"),
    "space": (["--search", "discount=uniform:0.9:0.99"], "discount"),
    "environment": (["--env", "Acrobot-v1"], "env: CartPole-v1 -> Acrobot-v1"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_folder_of_another_sweep_is_refused(request, case, broken_sweep, tmp_path):
    folder = Path(shutil.copytree(broken_sweep, tmp_path / "sweep"))
    flags, words = OTHERS[case]
    judge(request, sweep(folder, *flags), 2, "is of another search", words, most=1)
    assert contents_of(folder) == contents_of(broken_sweep)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 9)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def link(path: Path) -> None:
    aside = path.with_name("elsewhere")
    path.rename(aside)
    path.symlink_to(aside)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = {each.__name__: each for each in (cut, garbage, empty, link, fifo)}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["sweep.json", "checkpoints"])
def test_a_damaged_sweep_is_refused(request, damage, name, broken_sweep, tmp_path):
    """With every checkpoint damaged there is nothing to go on from."""
    folder = Path(shutil.copytree(broken_sweep, tmp_path / "sweep"))
    paths = [folder / name] if name.endswith(".json") else list((folder / name).glob("*/arrays.safetensors"))
    for path in paths:
        DAMAGES[damage](path)
    before = set(folder.rglob("*"))
    judge(request, sweep(folder), 3, str(folder), most=1)
    assert set(folder.rglob("*")) == before


def test_a_sweep_goes_on_from_an_older_rung_where_the_last_is_damaged(request, broken_sweep, tmp_path, whole_sweep):
    folder = Path(shutil.copytree(broken_sweep, tmp_path / "sweep"))
    flip(max((folder / "checkpoints").iterdir(), key=lambda path: int(path.name)) / "arrays.safetensors")
    judge(request, sweep(folder), 0, "is damaged; the checkpoint of step")
    assert contents_of(folder) == contents_of(whole_sweep("pbt"))


def test_rows_without_a_checkpoint_are_refused(request, broken_sweep, tmp_path):
    folder = Path(shutil.copytree(broken_sweep, tmp_path / "sweep"))
    shutil.rmtree(folder / "checkpoints")
    judge(request, sweep(folder), 3, "has rows but no checkpoint", most=1)


def test_a_run_is_not_overwritten_by_a_search(request, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for search in (sweep, tune):
        judge(request, search(tmp_path), 2, "name another folder", most=1)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["config.json"]


@pytest.mark.parametrize("search", [sweep, tune], ids=["sweep", "tune"])
def test_settings_that_all_fail_are_no_result(request, search, tmp_path):
    answer = search(tmp_path / "search", "--env", "probes:nan_rewards")
    judge(request, answer, 4, "met a number that is not finite")
    assert not (tmp_path / "search" / "best.json").exists()


# -- studies


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A search of four trials."""
    folder = tmp_path_factory.mktemp("study") / "tune"
    answer = tune(folder)
    assert answer.code == 0, answer
    return folder


def copy_of(study: Path, to: Path) -> Path:
    return Path(shutil.copytree(study, to / "tune", symlinks=True))


FOREIGN = {
    "batch": (["--batch-size", 16], "choices.batch_size: 8 -> 16"),
    "steps": (["--steps", 2400], "steps: 1200 -> 2400"),
    "seeds": (["--seeds", 2], "seeds: 1 -> 2"),
    "rungs": (["--rungs", 3], "rungs: 2 -> 3"),
    "space": (["--search", "discount=uniform:0.9:0.99"], "discount: None ->"),
    "part": (["--head", "quantile"], "choices.head.part: scalar -> quantile"),
    "environment": (["--env", "Acrobot-v1"], "'double on CartPole-v1'"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_study_of_something_else_is_refused(request, case, study, tmp_path):
    folder = copy_of(study, tmp_path)
    flags, words = FOREIGN[case]
    judge(request, tune(folder, *flags), 2, words, most=1)
    assert contents_of(folder) == contents_of(study)


def test_a_study_elsewhere_is_refused_too(request, tmp_path):
    place = ("--storage", f"sqlite:///{tmp_path / 'study.db'}", "--trials", 1, "--batch", 1)
    judge(request, tune(tmp_path / "first", *place), 0)
    judge(request, tune(tmp_path / "second", *place, "--batch-size", 16), 2, "choices.batch_size: 8 -> 16", most=1)
    garbage(tmp_path / "study.db")
    judge(request, tune(tmp_path / "third", *place), 3, "study.db is damaged", most=1)


def test_what_no_score_depends_on_may_differ(request, study, tmp_path):
    folder = copy_of(study, tmp_path)
    flags = ["--devices", 1, "--batch", 2, "--confirm", 0, "--prune-from", 1, "--log-steps", 400, "--trials", 4]
    answer = judge(request, tune(folder, *flags), 0)
    assert "4 trials in " in answer.out


@pytest.mark.parametrize("damage", [*DAMAGES.values(), flip, remove], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", [JOURNAL, SEAL])
def test_a_damaged_study_is_refused(request, name, damage, study, tmp_path):
    folder = copy_of(study, tmp_path)
    damage(folder / name)
    if name == SEAL and damage is remove:  # the journal itself is whole
        judge(request, tune(folder), 0)
        return
    judge(request, tune(folder), 3, str(folder), most=1)
    assert not list(folder.glob("*.damaged*"))


def test_whole_lines_that_are_missing_are_noticed(request, study, tmp_path):
    folder = copy_of(study, tmp_path)
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(b"".join(lines[:-3]))
    judge(request, tune(folder), 3, "does not begin as it was written", most=1)


def test_a_line_that_was_never_finished_is_left_out(request, study, tmp_path):
    folder = copy_of(study, tmp_path)
    with (folder / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 5, "wor')
    judge(request, tune(folder, "--trials", 5), 0, "was never finished")


@pytest.mark.parametrize("line", ["null", "[]", '{"op_code": "x"}', '{"op_code": 1, "op_code": 2}', "[" * 100_000])
def test_a_line_of_another_kind_is_noticed(request, line, study, tmp_path):
    folder = copy_of(study, tmp_path)
    with (folder / JOURNAL).open("a") as file:
        file.write(f"{line}\n")
    judge(request, tune(folder), 3, "is damaged in line", most=1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)], ids=["sigterm", "ctrl_c"])
def test_a_study_that_is_stopped_goes_on(request, number, code, tmp_path):
    with at_rung(1, send(number)):
        judge(request, tune(tmp_path / "tune"), code, number.name, "the same command goes on", most=2)
    assert json.loads((tmp_path / "tune" / SEAL).read_text())["bytes"] == (tmp_path / "tune" / JOURNAL).stat().st_size
    answer = judge(request, tune(tmp_path / "tune"), 0)
    assert "4 trials in " in answer.out
