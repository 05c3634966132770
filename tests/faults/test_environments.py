"""Each call of an environment, each way to do it wrong: one line with its name, the right code, no hang, no orphan."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import faulty_envs
import faulty_jax
import pytest
from fault_tools import HANGING, TINY, ask, ask_process, judge, summary_of
from process_tools import launch, output_of, wait_for

from rollax.envs.worker import serve
from rollax.runs.folder import RunFolder

ENDINGS = {"quits", "killed", "segfaults"}  # of the whole process: in ours there is nobody left to answer
SAID = {
    "raises": "faulty_envs.py:{line}: RuntimeError: the joystick came off",
    "hangs": "has not answered for",
    "exits": "SystemExit: 3",
    "quits": "exit code 7",
    "killed": "SIGKILL",
    "segfaults": "SIGSEGV",
    "returns_none": "None",
    "returns_one": "2 values",
    "returns_four": "got 4",
    "none": "None",
    "text": "'a corridor'",
    "shape": "float32[4]",
    "dtype": "complex64[3]",
    "nan": "not finite",
    "outside": "outside the bounds of observation_space",
    "reward_text": "reward, not '1.5'",
    "reward_none": "reward, not None",
    "reward_vector": "reward, not float64[2]",
    "reward_nan": "a reward is not finite",
    "done_two": "terminated, not 2",
    "done_none": "terminated, not None",
    "truncated_text": "truncated, not 'no'",
    "cut_early": "cut before the 100 steps",
    "final_nan": "not finite",
    "cut_nan": "not finite",
}
LINE = 1 + Path(faulty_envs.__file__).read_text().splitlines().index('    raise RuntimeError("the joystick came off")')
SMALL = [*TINY, "--rollout-length", "2", "--warm-up-steps", "160"]


def said(call: str, bad: str) -> str:
    return "Env class" if (call, bad) == ("make", "none") else SAID[bad].format(line=LINE)


def cases(kept: set[str], *, ends: bool) -> list[Any]:
    """All of them; those that are not `kept` are further cases."""
    return [
        pytest.param(call, bad, id=f"{call}_{bad}", marks=[] if f"{call}_{bad}" in kept else [pytest.mark.thorough])
        for call, bad in faulty_envs.CASES
        if ends or bad not in ENDINGS
    ]


def further(case: str) -> Any:
    return pytest.param(case, marks=pytest.mark.thorough)


IN_OURS = {f"{call}_{bad}" for call, bad in faulty_envs.CASES if bad != "hangs"} | {"step_hangs"}


@pytest.mark.parametrize(("call", "bad"), cases(IN_OURS, ends=False))
def test_a_fault_in_our_own_process_is_answered(request, call, bad):
    name = f"gymnasium:faulty_envs:{call}_{bad}-v0"
    judge(request, ask("check-env", name, "--env-seconds", 2), 5, name, said(call, bad), most=2)


@pytest.mark.parametrize(("call", "bad"), cases({"make_quits", "step_killed", "step_raises"}, ends=True))
def test_a_fault_in_a_process_of_its_own_is_answered(request, call, bad):
    name = f"gymnasium:faulty_envs:{call}_{bad}-v0"
    answer = ask("check-env", name, "--env-seconds", 2, "--vectorization", "async")
    judge(request, answer, 5, name, said(call, bad), most=2)
    assert not multiprocessing.active_children()


IMPORTS = {
    "raises": ("raise RuntimeError('no joystick')", "{}.py:1: RuntimeError: no joystick"),
    "hangs": ("import time; time.sleep(3_600)", "has not answered for 3 s in make"),
    "exits": ("import sys; sys.exit(3)", "{}.py:1: SystemExit: 3"),
    "registers nothing": ("", "{}"),
    "quits": ("import os; os._exit(7)", "ended its process with exit code 7 in make"),
}


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("bad", IMPORTS)
def test_a_module_that_fails_on_import_is_answered(request, tmp_path, monkeypatch, bad, how):
    if (bad, how) == ("quits", "sync"):
        pytest.skip("in our own process there is nobody left to answer")
    (text, said), name = IMPORTS[bad], f"faulty_{bad.replace(' ', '_')}"
    (tmp_path / f"{name}.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    answer = ask("check-env", f"gymnasium:{name}:X-v0", "--env-seconds", 2, "--vectorization", how)
    code = 2 if bad == "registers nothing" else 5
    judge(request, answer, code, f"gymnasium:{name}:X-v0", said.format(name), most=1)


@pytest.mark.parametrize("command", [["check-env"], ["train", *TINY, "--env"]], ids=["check", "train"])
@pytest.mark.parametrize("name", faulty_jax.FAULTS)
def test_a_fault_in_jax_is_answered_before_a_run(request, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    judge(request, ask(*command, f"faulty_jax:{name}"), 5, f"faulty_jax:{name}", faulty_jax.FAULTS[name][1], most=2)
    assert not list(tmp_path.iterdir()), "no run was begun"


@pytest.mark.parametrize("name", faulty_jax.NOT_FINITE)
def test_check_env_sees_what_is_not_finite(request, name):
    judge(request, ask("check-env", f"faulty_jax:{name}"), 5, "not finite")


@pytest.mark.parametrize(
    "name", ["final_nan", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("reset_nan", "reward_nan"))]
)
def test_a_run_sees_what_is_not_finite(request, tmp_path, name):
    judge(request, ask("train", *TINY, "--env", f"faulty_jax:{name}", "--run-dir", tmp_path / "run"), 4, "not finite")


def test_a_right_environment_is_called_right():
    """Compiled and not, its observations differ in the last bit."""
    answer = ask("check-env", "faulty_jax:exact")
    assert answer.code == 0, answer
    assert answer.out.endswith("ok\n")


IN_A_RUN = {
    "step_raises": (5, f"faulty_envs.py:{LINE}: RuntimeError"),
    "step_reward_nan": (4, "rewards not finite"),
    "step_nan": (5, "not finite"),
    "step_cut_nan": (5, "cut an episode after 4 steps, but promises 100"),
    "step_final_nan": (5, "not finite"),
    "step_outside": (5, "outside the bounds"),
    "step_reward_text": (5, "reward, not '1.5'"),
    "step_done_two": (5, "terminated, not 2"),
    "step_done_none": (5, "terminated, not None"),
    "step_cut_early": (5, "cut an episode after 4 steps, but promises 100; say so with --least-time 4"),
    "step_hangs": (5, "has not answered for 2 s in step"),
    "reset_shape": (5, "float32[4]"),
}


@pytest.mark.parametrize("name", [name if "reward" in name else further(name) for name in IN_A_RUN])
def test_a_run_refuses_what_check_env_refuses(request, tmp_path, name):
    code, line = IN_A_RUN[name]
    env = f"gymnasium:faulty_envs:{name}-v0"
    answer = ask("train", *SMALL, "--env", env, "--env-seconds", 2, "--run-dir", tmp_path / "run", "--quiet")
    judge(request, answer, code, line, most=2)


def test_bounds_may_be_left_unchecked(tmp_path):
    words = [*SMALL, "--env", "gymnasium:faulty_envs:step_outside-v0", "--run-dir", tmp_path / "run", "--quiet"]
    answer = ask("train", *words, "--no-check-space")
    assert answer.code == 0, answer


@pytest.mark.parametrize(
    "bad",
    ["killed", *(pytest.param(bad, marks=pytest.mark.thorough) for bad in ("raises", "hangs", "segfaults", "exits"))],
)
def test_a_worker_that_dies_is_started_anew(request, tmp_path, monkeypatch, bad):
    """Once, in a run that goes on to its end: what was lost is said and counted."""
    once = tmp_path / "once"
    once.touch()
    monkeypatch.setenv("FAULTY_ONCE", str(once))
    words = ["--env", f"gymnasium:faulty_envs:step_{bad}-v0", "--vectorization", "async", "--env-seconds", 2]
    answer = ask("train", *SMALL, "--num-envs", 2, *words, "--run-dir", tmp_path / "run", "--quiet")
    judge(request, answer, 0, SAID[bad].format(line=LINE), "in step", "its episode is discarded", "(1 of 3)", most=1)
    rows, _ = RunFolder(tmp_path / "run").read_table(tmp_path / "run" / "metrics.csv")
    assert rows[-1]["discarded_episodes"] == "1"
    assert summary_of(tmp_path / "run")["status"] == "finished"
    assert not multiprocessing.active_children()


@pytest.mark.thorough
@pytest.mark.parametrize(("restarts", "said"), [(0, "allows 0 restarts in all"), (2, "allows 2 restarts in all")])
def test_restarts_have_an_end(request, tmp_path, restarts, said):
    words = ["--env", "gymnasium:faulty_envs:step_killed-v0", "--vectorization", "async", "--env-restarts", restarts]
    answer = ask_process("train", *SMALL, "--num-envs", 2, *words, "--run-dir", tmp_path / "run", "--quiet")
    judge(request, answer, 5, "was killed by SIGKILL in step", said, most=1 + restarts)
    assert len(answer.err.splitlines()) == 1 + restarts, "and nothing else is said"


def test_a_worker_whose_answer_nobody_hears_ends_quietly():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=serve, args=(there, "faulty_envs:fine-v0", 0, False, None))
    worker.start()
    there.close()
    assert here.recv() == "started"
    here.send(("make", None))
    here.close()  # before it can have answered
    worker.join()
    assert worker.exitcode == 0, "an exception would end it with 1, and print a traceback"


@pytest.mark.thorough
def test_no_worker_outlives_a_run_that_was_killed(tmp_path):
    words = ["--env", "gymnasium:faulty_envs:fine-v0", "--vectorization", "async", "--num-envs", 2]
    process = launch("train", *SMALL, *words, "--steps", 10_000_000, "--run-dir", tmp_path / "run", "--quiet")

    def workers() -> list[int]:
        children = Path(f"/proc/{process.pid}/task").glob("*/children")
        found = [int(number) for file in children for number in file.read_text().split()]
        return [pid for pid in found if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    wait_for(lambda: len(workers()) >= 2 and any((tmp_path / "run").glob("metrics.csv")), process)
    left = workers()
    rows = (tmp_path / "run" / "metrics.csv").stat().st_size
    for pid in left:
        os.kill(pid, signal.SIGTERM)  # as a scheduler does, which tells all processes
    wait_for(lambda: (tmp_path / "run" / "metrics.csv").stat().st_size > rows, process)
    assert set(left) <= set(workers()), "that is for the run to decide"
    left = workers()
    process.send_signal(signal.SIGKILL)
    assert output_of(process)[1] == ""
    end = time.monotonic() + HANGING
    while any(Path(f"/proc/{pid}").exists() for pid in left):
        assert time.monotonic() < end, "a worker has stayed"
        time.sleep(0.05)
    assert os.WIFSIGNALED(-process.returncode)
