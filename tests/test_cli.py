"""The command as a person meets it: real processes, exit codes, and kills."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import sys
import time

import jax
import pytest
from process_tools import command, launch, output_of, rollax, run, surroundings, wait_for

from rollax import __version__
from rollax.commands import kept
from rollax.commands.cli import run_command
from rollax.commands.kept import with_kept_answers

SMALL = [
    *("--preset", "none", "--num-envs", "8", "--hidden", "16", "--capacity", "2000", "--batch-size", "16"),
    *("--warm-up-steps", "200", "--eval-episodes", "5"),
]
ENDLESS = ["--steps", 10**9, "--log-steps", 4_000, "--eval-steps", 40_000]  # until it is stopped


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def hashes(folder):
    return [member["params_sha256"] for member in summary(folder)["members"]]


# What no help needs, and what takes the time: devices, environments, pictures, other frameworks.
HEAVY = ("gymnax", "gymnasium", "matplotlib", "scipy", "PIL", "torch", "ray", "optuna")


@pytest.mark.parametrize(
    ("arguments", "unneeded"), [(["--help"], ("jax", "numpy", "tyro", *HEAVY)), (["train", "double", "--help"], HEAVY)]
)
def test_help_answers_at_once(arguments, unneeded):
    """By what it leaves out: nothing heavy is imported, and JAX looks for no device."""
    code = (
        "import sys; from rollax.__main__ import main\n"
        f"try: assert main({arguments}) == 0\n"
        "except SystemExit as end: assert not end.code\n"
        f"found = set({unneeded}) & set(sys.modules); assert not found, found\n"
        "assert 'jax' not in sys.modules or not sys.modules['jax']._src.xla_bridge.backends_are_initialized()\n"
    )
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout


@pytest.mark.parametrize("arguments", [["list"], ["train", "double", "--help"]])
def test_an_answer_is_kept_and_needs_no_jax(arguments, tmp_path):
    code = (
        f"import os, sys; os.environ['XDG_CACHE_HOME'] = {str(tmp_path)!r}\n"
        "from rollax.__main__ import main\n"
        f"try: assert main({arguments}) == 0\n"
        "except SystemExit as end: assert not end.code\n"
        "print('jax' in sys.modules, file=sys.stderr)\n"
    )
    first, second = (run([sys.executable, "-c", code]) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert "double" in first.stdout
    assert (first.stderr.strip(), second.stderr.strip()) == ("True", "False")


def test_answers_of_other_questions_are_others(tmp_path, monkeypatch, capsys):
    """Kept are answers to what was asked, of this source; what names a module of the user's is asked anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[str] = []

    def ask(words, text, code=0, function="train.function"):
        def run():
            asked.append(text)
            print(text)
            if "--help" in words:
                raise SystemExit(code)
            return code

        command, *arguments = words.split()
        try:
            return with_kept_answers(command, function, arguments, run)
        except SystemExit as ended:
            return ended.code

    assert ask("train double --help", "one") == 0
    assert ask("train double --help", "kept") == 0
    assert ask("train double --help", "two", function="another.function") == 0
    assert ask("train dqn --help", "three") == 0
    assert ask("train my.module:AGENT --help", "four") == 0
    assert ask("train my.module:AGENT --help", "five") == 0
    assert ask("train --config a.json --help", "six") == 0
    assert ask("list", "wrong", code=2) == 2
    assert ask("list", "right") == 0
    assert ask("list", "kept") == 0
    monkeypatch.setattr(kept, "source_of", lambda folder: ["another source"])
    assert ask("train double --help", "seven") == 0
    assert asked == ["one", "two", "three", "four", "five", "six", "wrong", "right", "seven"]
    assert capsys.readouterr().out.split() == ["one", "one", *asked[1:-1], "right", "seven"]


def test_the_first_line_comes_before_jax():
    code = (
        "import sys; sys.modules['jax'] = None\n"  # whoever imports it fails
        "from rollax.__main__ import main\n"
        "main(['train', 'double'])\n"
    )
    assert run([sys.executable, "-c", code]).stdout == f"rollax {__version__}: loading JAX ...\n"


def test_import_is_light():
    code = "import sys, rollax; assert 'jax' not in sys.modules and 'gymnax' not in sys.modules"
    assert run([sys.executable, "-c", code]).returncode == 0


RUN_FLAGS = {
    "train": [("--coordinator", "several processes"), ("--check, --no-check", "name its line")],
    "inspect": [("--diff", "small function")],
}


def test_every_flag_of_a_run_is_explained():
    for name in ("train", "inspect"):
        shown = " ".join(command(name, "double", "--help-all").stdout.split())
        for flag, text in (
            ("--device {auto,cpu,gpu,tpu}", "The device to compute on"),
            *RUN_FLAGS[name],
        ):
            assert text in shown[shown.index(flag) :][:300], flag


def test_help_explains_every_field_with_its_default():
    text, whole = (" ".join(command("train", "double", flag).stdout.split()) for flag in ("--help", "--help-all"))
    flags = "env seeds seed steps run-dir config preset learning-rate n-step capacity num-envs"
    for flag in flags.split():
        assert f"--{flag} " in text
        assert f"--{flag} " in whole
    for flag in ("log-steps", "init-from"):
        assert f"--{flag} " in whole
    assert "(default: 0.003)" in text
    assert command("--version").stdout.startswith("rollax ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "'trian' is no command; did you mean train"),
        (["train", "doubel"], "did you mean double"),
        (["train", "double", "--env", "CartPol-v1"], "did you mean CartPole-v1"),
        (["train", "double", "--env", "Pendulum-v1"], "cannot act in env='Pendulum-v1'"),
        (["train", "double", "--preset", "nothing"], "preset='nothing' is not known"),
        (["train", "--config", "missing.json"], "does not exist"),
        (["train", "--config", "missing.json", "--preset", "none"], "preset does not go with config"),
        (["train", "double", "--init-from", "no_such_folder"], "is no run folder"),
        (["train", "double", "--discount", "2"], "discount=2.0 must be at most 1"),
        (["train", "double", "--learning-rate", "1e-3", "-1"], "learning_rate=-1.0 must be at least 0"),
        (["resume", "no_such_folder"], "is no run folder"),
        (["plot"], "at least one run folder"),
        (["eval", "no_such_folder"], "is no run folder"),
        (["check-env", "CartPole"], "did you mean CartPole-v1"),
    ],
)
def test_a_mistake_costs_one_line(arguments, message, capsys):
    assert run_command(arguments[0], arguments[1:]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_shell_sees_no_traceback():
    done = command("train", "doubel")
    assert done.returncode == 2
    assert done.stdout == f"rollax {__version__}: loading JAX ...\n"
    assert done.stderr.startswith("rollax: agent='doubel' is not known; did you mean double")
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_flag_is_answered_with_its_neighbours():
    done = command("train", "double", "--lerning-rate", "1")
    assert done.returncode == 2
    assert "--learning-rate" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_exit_codes_of_environments_and_resources(capsys):
    assert run_command("check-env", ["probes:nan_observations"]) == 5
    assert run_command("train", ["dqn", "--preset", "none", "--seeds", "1000", "--capacity", "2000000000"]) == 6
    assert "--capacity" in capsys.readouterr().err
    done = command("train", "dqn", "--device", "tpu")
    assert done.returncode == 6
    assert done.stderr.startswith("rollax: device=tpu: JAX finds none here; leave it out")
    assert len(done.stderr.splitlines()) == 1


def test_list_doctor_and_check_env(capsys):
    def answer(*arguments):
        assert run_command(arguments[0], list(arguments[1:])) == 0
        return capsys.readouterr().out

    listed = json.loads(answer("list", "--json"))
    assert {"dqn", "double", "dueling", "n_step"} <= set(listed["agents"])
    assert {"CartPole-v1", "Breakout-MinAtar"} <= set(listed["environments"])
    facts = json.loads(answer("doctor", "--json"))
    assert facts["backend"] == "cpu"
    assert facts["jax"]
    assert answer("check-env", "probes:Constant").splitlines()[-1] == "ok"


def test_a_run_is_trained_evaluated_drawn_and_repeated(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    done = command("train", "double", *SMALL, "--seeds", 2, "--seed", 7, "--steps", 2_000, "--run-dir", first)
    assert done.returncode == 0, done.stderr
    assert "return" in done.stdout
    assert str(first) in done.stdout
    assert "curve.png" in done.stdout
    assert [member["seed"] for member in summary(first)["members"]] == [7, 8]

    repeated = command("train", "--config", first / "config.json", "--run-dir", second, "--quiet")
    assert (repeated.returncode, repeated.stdout) == (0, "")
    assert hashes(first) == hashes(second)

    def answer(*arguments):
        code = run_command(arguments[0], [str(word) for word in arguments[1:]])
        return code, *capsys.readouterr()

    assert "already" in answer("train", "double", *SMALL, "--run-dir", first)[2]
    code, _, error = answer("train", "dqn", "--config", first / "config.json", "--run-dir", tmp_path / "third")
    assert code == 2
    assert "is not that of" in error
    played = [answer("eval", first, "--episodes", 9, "--epsilon", 0.5, "--json")[1] for _ in range(2)]
    assert [row["episodes"] for row in json.loads(played[0])] == [9, 9]
    assert played[0] == played[1]
    picture = tmp_path / "both.png"
    assert answer("plot", first, second, "--out", picture)[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, shown, _ = answer("resume", first)
    assert code == 0
    assert "finished at step 2,000" in shown


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), pytest.param(signal.SIGINT, 130, marks=pytest.mark.thorough)]
)
def test_a_signal_saves_and_exits(tmp_path, number, code):
    folder = tmp_path / "run"
    process = launch("train", "double", *SMALL, *ENDLESS, "--run-dir", folder)
    wait_for(lambda: (folder / "metrics.csv").exists() and len((folder / "metrics.csv").read_text()) > 200, process)
    process.send_signal(number)
    _, error = output_of(process)
    assert process.returncode == code
    assert "saving" in error
    assert summary(folder)["status"] == "interrupted"
    step = summary(folder)["total_steps"]
    assert (folder / "checkpoints" / str(step)).is_dir()


def test_two_runs_cannot_share_a_folder(tmp_path, capsys):
    folder = tmp_path / "run"
    process = launch("train", "double", *SMALL, *ENDLESS, "--run-dir", folder)
    try:
        wait_for((folder / "summary.json").exists, process)
        assert run_command("resume", [str(folder)]) == 2
        assert f"in use by process {process.pid}" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()


def newest_checkpoint(folder):
    return max((int(entry.name) for entry in folder.glob("checkpoints/[0-9]*") if entry.name.isdigit()), default=0)


@pytest.mark.thorough
def test_kill_nine_loses_nothing(tmp_path):
    """Killed twice while it trains, resumed each time: the same weights and rows as undisturbed."""
    shape = [*SMALL, "--seeds", 2, *ENDLESS, "--checkpoint-seconds", 0.2, "--chunk-seconds", 0.1]
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    draw = random.Random(5)
    for words in (["train", "double", *shape, "--run-dir", rough], ["resume", rough]):
        before = newest_checkpoint(rough)
        process = launch(*words)
        wait_for(lambda before=before: newest_checkpoint(rough) > before, process)
        time.sleep(draw.uniform(0.0, 0.4))
        process.kill()
        process.communicate()
        assert summary(rough)["status"] == "running"
    steps = newest_checkpoint(rough) + 8_000  # its end lies ahead, however far it came
    resumed = command("resume", rough, "--steps", steps)
    assert resumed.returncode == 0, resumed.stderr
    assert command("train", "double", *shape, "--steps", steps, "--run-dir", calm).returncode == 0
    assert hashes(rough) == hashes(calm)
    columns = [0, 1, 2, 5, 6, 7, 8, 9]
    tables = [
        [[line.split(",")[column] for column in columns] for line in (folder / "metrics.csv").read_text().splitlines()]
        for folder in (calm, rough)
    ]
    assert tables[0] == tables[1]


@pytest.mark.thorough
def test_a_reader_that_goes_away_does_not_stop_the_run(tmp_path):
    folder = tmp_path / "run"
    words = rollax("train", "dqn", *SMALL, "--steps", 20_000, "--run-dir", folder)
    assert run(["bash", "-c", f"{shlex.join(words)} | head -1"]).returncode == 0
    assert summary(folder)["status"] == "finished"


@pytest.mark.thorough
def test_a_full_disk_is_one_line(tmp_path):
    words = rollax("train", "dqn", *SMALL, "--hidden", 64, 64, "--steps", 8_000, "--run-dir", tmp_path / "run")
    done = run(["bash", "-c", f"ulimit -f 64; {shlex.join(words)} --no-compile-cache --quiet"])
    assert done.returncode == 6, done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_folder_is_there_before_anything_compiles(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    written = []
    compile_now = jax.stages.Lowered.compile

    def look_and_compile(*arguments, **options):
        written.append(({path.name for path in folder.iterdir()}, summary(folder)["compile_seconds"]))
        return compile_now(*arguments, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", look_and_compile)
    flags = [*SMALL, "--steps", 400, "--run-dir", folder, "--quiet"]
    assert run_command("train", ["double", *map(str, flags)]) == 0
    names, seconds = written[0]
    assert {"config.json", "summary.json"} <= names
    assert seconds == 0
    assert not any("checkpoints" in names for names, _ in written)


FOLDING = """
import jax, jax.numpy as jnp
from probes import Constant


class Folding(Constant):
    def step(self, key, state, action, params):
        big = jax.lax.broadcasted_iota(jnp.float32, (100, 100), 0)
        far = jax.lax.reduce_window(big, -jnp.inf, jax.lax.max, (21, 21), (1, 1), "SAME")  # XLA folds it, for seconds
        obs, state, reward, *rest = super().step(key, state, action, params)
        return obs, state, reward + 0.0 * jnp.sum(far), *rest


class Failing(Constant):
    def step(self, key, state, action, params):
        raise KeyError("att")
"""


def folding(tmp_path, env, **environment):
    """A training in one of these environments, with the log that XLA writes."""
    (tmp_path / "folding.py").write_text(FOLDING)
    flags = [*SMALL, "--steps", 400, "--devices", 1, "--max-episode-steps", 4, "--no-compile-cache"]
    words = ["train", "double", "--env", f"folding:{env}", *flags, "--run-dir", tmp_path / f"run{len(environment)}"]
    paths = os.pathsep.join([str(tmp_path), surroundings()["PYTHONPATH"]])
    return run(rollax(*words), PYTHONPATH=paths, **environment)


@pytest.mark.thorough
def test_the_compilers_log_stays_out_of_a_run(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    shown = folding(tmp_path, "Folding", TF_CPP_MIN_LOG_LEVEL="0")
    assert "Constant folding an instruction is taking" in shown.stderr
    hidden = folding(tmp_path, "Folding")
    assert hidden.returncode == 0, hidden.stderr
    assert hidden.stderr == ""
    assert "Constant folding" not in hidden.stdout


def test_an_error_appears_although_the_compilers_log_does_not(tmp_path):
    done = folding(tmp_path, "Failing")
    assert done.returncode == 5
    assert "folding.py:16: KeyError: 'att'" in done.stderr
    assert done.stderr.count("\n") == 1
