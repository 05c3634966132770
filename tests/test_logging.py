"""Where rows go, and what a person sees meanwhile: none of it can change a run."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

import rollax
from rollax.commands.cli import run_command
from rollax.runs.console import BLOCKS, Console, Standing, sparkline
from rollax.runs.folder import RunFolder
from rollax.runs.loggers import Loggers
from rollax.runs.trackers import TensorBoard, WeightsAndBiases, means


def small(**values):
    common = {"steps": 1_200, "log_steps": 200, "eval_steps": 600, "eval_episodes": 2, "num_envs": 4, "hidden": (8,)}
    replay = {"seeds": 2, "warm_up_steps": 100, "capacity": 1_000, "batch_size": 8}
    return rollax.make_experiment("double", preset="none", **(common | replay | values))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "run"
    return rollax.train(small(), folder, quiet=True)


def hashes(result):
    return [member["params_sha256"] for member in result.summary["members"]]


@pytest.mark.thorough
def test_every_logger_at_once_and_the_same_bits(plain, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    told = []
    logged = small(log_to=("jsonl", "tensorboard", "wandb"))
    result = rollax.train(logged, tmp_path / "run", quiet=True, on_rows=lambda kind, rows: told.append((kind, rows)))
    assert hashes(result) == hashes(plain)
    curves, evaluations = result.curves, result.evaluations
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines].count("train") == curves["step"].size
    assert [line["kind"] for line in lines].count("eval") == evaluations["step"].size
    losses = [line["loss"] for line in lines if line["kind"] == "train" and line["member"] == 1]
    np.testing.assert_allclose([np.nan if loss is None else loss for loss in losses], curves["loss"][1], rtol=1e-6)
    assert sum(len(rows) for kind, rows in told if kind == "train") == curves["step"].size
    folders = {path.name for path in (tmp_path / "run" / "tensorboard").iterdir()}
    assert folders == {"mean", "member_0", "member_1"}
    returns = scalars(tmp_path / "run" / "tensorboard" / "mean", "eval/return_mean")
    np.testing.assert_allclose(
        [returns[step] for step in (600, 1_200)], evaluations["return_mean"].mean(axis=0), rtol=1e-5
    )
    (offline,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    assert list(offline.glob("*.wandb"))


def events(folder):
    """What TensorBoard would read, in the order in which it was written."""
    from tensorboardX.proto import event_pb2

    read: Any = event_pb2
    for path in sorted(folder.glob("events.*")):
        data, place = path.read_bytes(), 0
        while place < len(data):  # a record: its length, a checksum, itself, a checksum
            length = int.from_bytes(data[place : place + 8], "little")
            yield read.Event.FromString(data[place + 12 : place + 12 + length])
            place += 16 + length


def values(folder, tag):
    return [(event.step, value) for event in events(folder) for value in event.summary.value if value.tag == tag]


def scalars(folder, tag):
    return {step: value.simple_value for step, value in values(folder, tag)}


def test_tensorboard_has_settings_with_scores_and_a_film(tmp_path):
    from PIL import Image
    from tensorboardX.proto import plugin_hparams_pb2

    read: Any = plugin_hparams_pb2

    folder = tmp_path / "run"
    told = {"learning_rate": (1e-3, 1e-4), "seeds": 1, "max_episode_steps": 20, "steps": 600}
    result = rollax.train(small(log_to=("tensorboard",), **told), folder, quiet=True)
    for member, rate in enumerate((1e-3, 1e-4)):
        own = folder / "tensorboard" / f"member_{member}"

        def plugin(tag, own=own):
            ((_, value),) = values(own, f"_hparams_/{tag}")
            assert value.metadata.plugin_data.plugin_name == "hparams"
            return read.HParamsPluginData.FromString(value.metadata.plugin_data.content)

        shown = plugin("session_start_info").session_start_info.hparams
        assert shown["learning_rate"].number_value == rate
        assert (shown["env"].string_value, shown["torso"].string_value) == ("CartPole-v1", "mixed")
        assert "chunk_seconds" not in shown  # it is no property of the method
        assert plugin("session_end_info").HasField("session_end_info")
        (metric,) = plugin("experiment").experiment.metric_infos
        assert scalars(own, metric.name.tag)[600] == pytest.approx(result.evaluations["return_mean"][member][-1])
    ((step, film),) = values(folder / "tensorboard" / "mean", "film")
    assert step == 600
    with Image.open(io.BytesIO(film.image.encoded_image_string)) as picture:
        assert picture.format == "GIF"
        assert picture.size == (film.image.width, film.image.height)
        assert getattr(picture, "n_frames", 1) > 5


def test_an_environment_without_a_picture_has_no_film(tmp_path, capsys):
    folder = tmp_path / "run"
    rollax.train(
        small(log_to=("tensorboard",), env="probes:Choice", steps=400, seeds=1, max_episode_steps=5), folder, quiet=True
    )
    assert not values(folder / "tensorboard" / "mean", "film")
    assert "film" not in capsys.readouterr().err


def test_a_film_that_fails_leaves_tensorboard_alone(tmp_path, capsys):
    loggers = Loggers(["tensorboard"], RunFolder(tmp_path), {}, 0)

    def fail():
        raise ValueError("no colours")

    loggers.show(fail, 100)
    told = capsys.readouterr().err
    assert told.startswith("rollax: tensorboard gets no film: ")
    assert told.endswith("ValueError: no colours\n")
    assert isinstance(loggers.running["tensorboard"], TensorBoard)
    loggers.close("finished")


def history(folder):
    """The rows that Weights & Biases has written below a folder, of all parts of the run."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # its own process writes, and goes on to do so after a run has ended
    read: Any = wandb_internal_pb2
    found = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        data, place, record = path.read_bytes(), 7, b""
        while place + 7 <= len(data):  # blocks of 32 KiB; a chunk: a checksum, its length, its kind, itself
            if 32_768 - place % 32_768 < 7:
                place += 32_768 - place % 32_768
                continue
            length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
            record += data[place + 7 : place + 7 + length]
            place += 7 + length
            if kind in (1, 4):  # whole, or the last of several
                item = read.Record.FromString(record).history.item
                row = {(one.key or one.nested_key[0]): json.loads(one.value_json) for one in item}
                found += [row] if row else []
                record = b""
    return found


def test_weights_and_biases_gets_each_row_once(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")

    def part(step, steps):
        """A part of the run that goes on from a step."""
        loggers = Loggers(["wandb"], RunFolder(tmp_path), {}, step)
        logger = loggers.running["wandb"]
        assert isinstance(logger, WeightsAndBiases)
        for now in steps:
            loggers.add("train", [{"step": now, "member": member, "loss": now / 8} for member in (0, 1)])
            if now % 200 == 0:
                loggers.add("eval", [{"step": now, "member": 0, "return_mean": 2.0}])
        loggers.close("interrupted")
        return logger.run.id

    first = part(0, (100, 200, 300, 400))
    assert part(200, (300, 400, 500, 600)) == first  # its checkpoint was that of step 200
    rows = history(tmp_path)
    assert [row["step"] for row in rows if "train/loss" in row] == [100, 200, 300, 400, 500, 600]
    assert [row["step"] for row in rows if "eval/return_mean" in row] == [200, 400, 600]
    (tmp_path / "wandb-steps.json").write_text("[")
    part(500, (600,))  # what was sent is not known any more
    assert [row["step"] for row in history(tmp_path) if "train/loss" in row][-1] == 600
    assert list(tmp_path.glob("wandb-steps.json.damaged*"))
    (tmp_path / "wandb-id.txt").write_text("no / identity")
    assert part(500, (600,)) != first  # a run of its own, which has no rows
    assert [row["step"] for row in history(tmp_path) if "train/loss" in row].count(600) == 3


def test_a_logger_that_fails_is_said_once_and_the_run_goes_on(plain, tmp_path, capsys):
    calls = []

    def broken(kind, rows):
        calls.append(kind)
        raise OSError("the disk of the logs is full")

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").write_text("a file where a folder should be")
    result = rollax.train(small(log_to=("tensorboard",)), tmp_path / "run", quiet=True, on_rows=broken)
    assert hashes(result) == hashes(plain)
    warnings = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert len(warnings) == 2
    assert sum("on_rows" in line and "the disk of the logs is full" in line for line in warnings) == 1
    assert len(calls) == 1


def test_a_function_of_ones_own_may_end_a_run(plain, tmp_path):
    asked = []

    def at_first_evaluation(kind, rows):
        asked.append((kind, rows[-1]["step"]))
        return rollax.STOP if kind == "eval" else None

    folder = tmp_path / "run"
    stopped = rollax.train(small(), folder, quiet=True, on_rows=at_first_evaluation)
    assert stopped.exit_code == 0
    assert asked[-1] == ("eval", 600)
    summary = stopped.summary
    assert (summary["status"], summary["total_steps"]) == ("stopped", 600)
    assert summary["reason"] == "on_rows returned rollax.STOP at step 600"
    assert stopped.curves["step"].max() == 600
    assert stopped.policy() is not None  # a checkpoint was written
    resumed = rollax.resume(folder, quiet=True)
    assert resumed.summary["status"] == "finished"
    assert "reason" not in resumed.summary
    assert hashes(resumed) == hashes(plain)


def test_only_stop_ends_a_run(tmp_path):
    loggers = Loggers([], RunFolder(tmp_path), {}, 0, lambda kind, rows: kind == "train" or rollax.STOP)
    loggers.add("train", [{"step": 100, "member": 0}])
    assert not loggers.asked_to_stop
    loggers.add("eval", [{"step": 100, "member": 0}])
    assert loggers.asked_to_stop
    assert repr(rollax.STOP) == "rollax.STOP"


def test_json_lines_after_a_resume_hold_each_row_once(tmp_path):
    folder = RunFolder(tmp_path)
    first = Loggers(["jsonl"], folder, {}, 0)
    first.add("train", [{"step": step, "member": 0, "loss": 0.5} for step in (100, 200, 300)])
    first.close("interrupted")
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')  # cut short by a kill
    again = Loggers(["jsonl"], folder, {}, 200)
    again.add("train", [{"step": 300, "member": 0, "loss": 0.25}])
    again.close("finished")
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["step"], row["loss"]) for row in rows] == [(100, 0.5), (200, 0.5), (300, 0.25)]


def test_what_is_not_installed_is_said_before_anything_runs(tmp_path, monkeypatch, capsys):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "wandb" else real(name, *rest))
    assert run_command("train", ["double", "--log-to", "wandb", "--run-dir", str(tmp_path / "run"), "--quiet"]) == 2
    assert capsys.readouterr().err == "rollax: log_to=wandb needs wandb: pip install 'rollax[log]'\n"
    assert not (tmp_path / "run").exists()


def test_means_are_over_those_that_have_a_value():
    rows = [
        {"step": 10, "member": 0, "seed": 5, "loss": 1.0, "episode_return_mean": None},
        {"step": 10, "member": 1, "seed": 6, "loss": 3.0, "episode_return_mean": 7.0},
    ]
    assert means(rows) == [{"step": 10, "loss": 2.0, "episode_return_mean": 7.0}]


def test_sparklines():
    assert sparkline([0.0, 1.0], 0.0, 1.0) == BLOCKS[0] + BLOCKS[-1]
    assert sparkline([5.0, 5.0], 5.0, 5.0) == BLOCKS[-1] * 2
    assert sparkline([], 0.0, 1.0) == ""
    ramp = sparkline([float(value) for value in range(400)], 0.0, 399.0, width=8)
    assert ramp == BLOCKS


STANDING = Standing(
    step=500,
    total=1_000,
    rate=1234.0,
    seconds_left=61.0,
    members=["seed 0", "seed 1"],
    returns=[[1.0, 9.0], []],
    mean=9.0,
)


def test_elsewhere_than_in_a_terminal_there_are_plain_lines():
    out = io.StringIO()
    console = Console(out=out, every=0.0)
    with console.open():
        console.wait("Compiling")
        console.progress(STANDING)
        console.say("done")
    assert out.getvalue().splitlines() == [
        "Compiling ...",
        "step 500 / 1,000 | 1,234 steps/s | return 9.0 | 1 min 01 s left",
        "done",
    ]


def test_quiet_is_quiet():
    out = io.StringIO()
    console = Console(quiet=True, out=out, every=0.0)
    with console.open():
        console.wait("Compiling")
        console.progress(STANDING, last=True)
        console.say("done")
    assert out.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_each_seed_has_a_sparkline(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    out = Terminal()
    console = Console(out=out)
    with console.open():
        console.wait("Compiling")
        console.say("a line above")
        console.progress(STANDING, last=True)
    shown = out.getvalue()
    assert "Compiling" in shown
    assert "a line above" in shown
    assert f"{BLOCKS[0]}{BLOCKS[-1]}" in shown
    assert "50%" in shown
    assert "1,234 steps/s" in shown
    assert shown.endswith("\x1b[?25h")  # the cursor is back


def test_a_terminal_is_given_back_after_an_error(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()

    def fail():
        with Console(out=out).open() as console:
            console.wait("Compiling")
            raise ValueError("whatever")

    with pytest.raises(ValueError, match="whatever"):
        fail()
    assert out.getvalue().endswith("\x1b[?25h")
