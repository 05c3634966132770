"""The scripts that compare source trees read what the others print, and tell functions apart by their names."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
PRINTED = {
    "overhead": f"""cpu, jax 0.10.2
{"seeds":>5} {"program":>10} {"us/iteration":>13} {"compile s":>10} {"ratio to bare":>14}
{1:5d} {"bare":>10} {1234.4:13.0f} {3.14:10.1f} {1:14.2f}
{10:5d} {"rollax":>10} {2345.4:13.0f} {12.3:10.1f} {1.05:14.2f}
10 seeds, 10 environments, batch 128, network 120-84, one update for 10 steps: {123456.0:,.0f} steps/s
""",
    "hackmatrix": f"cpu, jax 0.10.2\n{256:6d} games {123456.7:12,.0f} steps/s, compiled in {12.34:.1f} s\n",
    "pixels": f"""cpu, 2 cores, jax 0.10.2, median of 5
Nature update, batch 32, uint8: nn.Conv {345.6:.1f} ms, rollax {98.7:.1f} ms, ratio {3.5:.1f}
{"agent":>7} {"seeds":>5} {"nn.Conv steps/s":>16} {"rollax steps/s":>15} {"ratio":>6}
{"pqn":>7} {10:5d} {1234.0:16,.0f} {56789.0:15,.0f} {46.0:6.1f}
""",
}


def script(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        (
            "overhead",
            {"1 bare, us": 1234, "1 bare, compile s": 3.1, "10 rollax, us": 2345, "10 rollax, compile s": 12.3,
             "10 seeds, steps/s": 123456},
        ),
        ("hackmatrix", {"256 games, steps/s": 123457, "256 games, compile s": 12.3}),
        (
            "pixels",
            {"Nature update, nn.Conv ms": 345.6, "Nature update, ms": 98.7, "pqn 10, nn.Conv steps/s": 1234,
             "pqn 10, steps/s": 56789},
        ),
    ],
)  # fmt: skip
def test_every_figure_that_a_script_prints_is_read(name, figures):
    found = dict(script("before_and_after").figures(name, PRINTED[name]))
    assert found == {f"{name}, {what}": value for what, value in figures.items()}


def test_more_steps_and_less_time_are_faster():
    module = script("before_and_after")
    assert module.speed_ups("hackmatrix, 32 games, steps/s", [100.0], [150.0]) == [1.5]
    assert module.speed_ups("overhead, 1 rollax, us", [150.0], [100.0]) == [1.5]
    assert module.is_judged("overhead, 1 rollax, us")
    assert not module.is_judged("overhead, 1 bare, us")
    assert not module.is_judged("overhead, 1 rollax, compile s")


def test_the_words_of_a_function_say_whether_it_is_on_the_way():
    module = script("walk")
    assert module.words_of("RunFolder.write_checkpoint") == {"run", "folder", "write", "checkpoint"}
    assert not module.words_of("Table.__init__") & module.WORDS
    for name in ("DQN.init", "make_plan", "Evaluator.__call__", "Console.progress"):
        assert module.words_of(name) & module.WORDS
    for name in ("Loop.iteration", "DQN.remember", "Task.step", "metric_rows", "Table.add"):
        assert not module.words_of(name) & module.WORDS


def test_the_family_is_compared_and_a_run_is_not_trained_twice(tmp_path, monkeypatch, capsys):
    module = script("controlled")
    words = [
        "--envs",
        "CartPole-v1",
        "--agents",
        "dqn",
        "noisy",
        "--seeds",
        "2",
        "--steps",
        "2560",
        "--eval-episodes",
        "2",
    ]
    monkeypatch.setattr("sys.argv", ["controlled.py", *words, "--out", str(tmp_path)])
    monkeypatch.setattr(module, "use_all_cores", lambda: None)
    monkeypatch.setattr(module, "use_compile_cache", lambda: None)
    module.main()
    first = capsys.readouterr().out
    assert "| `noisy` |" in first
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/metrics.csv")}
    assert len(times) == 2
    module.main()
    assert capsys.readouterr().out == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/metrics.csv")} == times
    assert (tmp_path / "controlled.png").stat().st_size > 1_000
    assert (tmp_path / "controlled.md").read_text() in first
