"""The matrix of faults: runs to break, and a count of the verdicts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fault_tools import TINY, VERDICTS, ask


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has finished: two checkpoints, tables, a summary.  Copy it before breaking it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    answer = ask("train", *TINY, "--checkpoint-seconds", "0", "--run-dir", folder, "--quiet")
    assert answer.code == 0, answer
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How faults were answered, in one line."""
    counts = Counter(
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "verdict" and getattr(report, "when", "") == "call"
    )
    if counts:
        terminalreporter.write_line("faults: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS))
