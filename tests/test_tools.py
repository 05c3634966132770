"""The tools beside the library: a terminal that is recorded."""

from __future__ import annotations

import importlib
import xml.etree.ElementTree
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent.parent / "tools"


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("terminal")


def test_a_terminal_is_recorded_from_a_real_run(terminal, tmp_path):
    lines, seconds = terminal.record(["rollax --version", "rollax trian"], tmp_path)
    texts = [line.text for line in lines]
    assert texts[0] == "$ rollax --version"
    assert texts[1].startswith("rollax 0.")
    assert "did you mean train" in texts[-1]
    assert seconds > 0
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    picture = xml.etree.ElementTree.fromstring(terminal.picture(lines))
    assert sum(text in "".join(picture.itertext()) for text in texts) == len(texts)


def test_a_command_that_does_not_end_is_given_up(terminal, tmp_path):
    with pytest.raises(TimeoutError, match=r"`http\.server 0` has not ended within 2 s"):
        terminal.record(["http.server 0"], tmp_path, limit=2)
