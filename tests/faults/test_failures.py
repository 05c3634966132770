"""Whatever is raised, by the machine, by JAX, by Ray or by a mistake of ours: one line, and the right exit code."""

from __future__ import annotations

import errno
import json
import sys
from types import SimpleNamespace

import jax
import pytest
from fault_tools import ask, ask_process, judge, ours

from rollax.commands import cli
from rollax.errors import EnvError, ResourceError
from rollax.programs.processes import start_ray

ray_exceptions = pytest.importorskip("ray.exceptions")


@ours
def too_deep() -> None:
    json.loads("[" * 100_000)


@ours
def endless() -> None:
    endless()


def raising(error: BaseException):
    @ours
    def raise_it() -> None:
        raise error

    return raise_it


def task_error(cause: Exception) -> Exception:
    """As Ray raises what went wrong in one of its processes."""
    return ray_exceptions.RayTaskError("run", "Traceback\nof the actor\n", cause).as_instanceof_cause()


RAISED = {
    "device memory": (
        raising(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore")),
        6,
        ["ran out of memory", "allocating 9 bytes", "rollax plan"],
    ),
    "device": (raising(jax.errors.JaxRuntimeError("INTERNAL: CUDA error 700\nmore")), 6, ["device failed", "700"]),
    "raylet": (raising(ray_exceptions.LocalRayletDiedError()), 6, ["Ray"]),
    "actor": (raising(ray_exceptions.ActorDiedError()), 6, ["Ray"]),
    "actor's environment": (raising(task_error(EnvError("it raises"))), 5, ["it raises"]),
    "actor's bug": (raising(task_error(KeyError("key"))), 1, ["KeyError", "bug"]),
    "nested JSON": (too_deep, 2, ["JSON", "nested"]),
    "recursion": (endless, 1, ["RecursionError", "bug", "--traceback"]),
    "memory": (raising(MemoryError()), 6, ["memory"]),
    "disk": (raising(OSError(errno.ENOSPC, "No space left on device", "runs/x")), 6, ["runs/x", "No space left"]),
    "permission": (raising(PermissionError(errno.EACCES, "Permission denied", "runs/x")), 6, ["runs/x", "denied"]),
    "pipe": (raising(BrokenPipeError(errno.EPIPE, "Broken pipe")), 6, ["Broken pipe"]),
    "bug": (raising(KeyError("key\nand more")), 1, ["bug", "KeyError", "--traceback"]),
    "long bug": (raising(ValueError("x" * 10_000)), 1, ["bug", "ValueError"]),
    "empty bug": (raising(ValueError()), 1, ["bug", "ValueError"]),
    "group": (raising(ExceptionGroup("two", [KeyError("a"), KeyError("b")])), 1, ["bug", "ExceptionGroup"]),
}


@pytest.fixture
def failing(monkeypatch):
    """Has the command `list` run a function that raises."""

    def have(function) -> None:
        monkeypatch.setitem(sys.modules, "rollax.commands.failing", SimpleNamespace(command=ours(lambda _: function())))
        monkeypatch.setitem(cli.COMMANDS, "list", cli.Command("", "", "failing.command"))

    return have


@pytest.mark.parametrize("case", RAISED)
def test_whatever_is_raised_becomes_a_line(request, failing, case):
    function, code, words = RAISED[case]
    failing(function)
    answer = judge(request, ask("list"), code, *words, most=1)
    assert len(answer.err) < 500


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "list"])
def test_every_command_takes_traceback(request, monkeypatch, command):
    @ours
    def fail(arguments: list[str]) -> int:
        assert arguments == ["word"]
        raise KeyError("key")

    monkeypatch.setitem(sys.modules, "rollax.commands.failing", SimpleNamespace(command=fail))
    monkeypatch.setitem(cli.COMMANDS, command, cli.Command("", "", "failing.command"))
    judge(request, ask(command, "word"), 1, "bug")
    shown = ask(command, "word", "--traceback")
    assert shown.code == 1
    assert "Traceback" in shown.err
    assert "in fail" in shown.err


def test_help_names_traceback():
    assert "--traceback" in ask("--help").out
    assert "--traceback" in ask("resume", "--help").out


USERS = {
    "exit": SystemExit(0),
    "file": FileNotFoundError(errno.ENOENT, "No such file", "levels.txt"),
    "key": KeyError("a"),
}


@pytest.mark.parametrize("case", USERS)
def test_a_line_of_the_users_is_named(request, failing, case):
    def of_the_users() -> None:
        raise USERS[case]

    failing(of_the_users)
    judge(request, ask("list"), 2, "test_failures.py:", type(USERS[case]).__name__, most=1)


WRONG_FLAGS = {
    "unknown": "--xla_no_such_flag=1",
    "value": "--xla_backend_optimization_level=much",
    "file": "no_such_file",
}


@pytest.mark.parametrize("case", WRONG_FLAGS)
def test_wrong_flags_of_xla_are_refused_before_jax_starts(request, case):
    answer = ask_process("doctor", XLA_FLAGS=WRONG_FLAGS[case])
    judge(request, answer, 2, "XLA_FLAGS", WRONG_FLAGS[case], most=1)
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("platform", ["cuda", pytest.param("nonsense", marks=pytest.mark.thorough)])
def test_a_platform_that_is_not_there_is_named(request, tmp_path, platform):
    folder = tmp_path / "run"
    answer = ask_process("train", "double", "--run-dir", folder, JAX_PLATFORMS=platform)
    judge(request, answer, 6, f"JAX_PLATFORMS={platform}", most=1)
    assert not folder.exists()


def test_ray_that_cannot_start_is_said():
    def init(**_: object) -> None:
        raise ConnectionError("ray client\nmore")

    with pytest.raises(ResourceError, match=r"Ray cannot start.*ray client$"):
        start_ray(SimpleNamespace(init=init))
