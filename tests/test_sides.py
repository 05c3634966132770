"""What comparisons have in common: turns, figures, tables, and objects in processes of their own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rollax.errors import ConfigError, ResourceError
from rollax.settings import COUNT, COUNT_OR_NONE, setting
from rollax.tools import sides
from rollax.tools.processes import Remote


@dataclass(frozen=True)
class Protocol:
    repeats: int = setting(3, "How often.", limit=COUNT)
    epochs: int = setting(3, "How long.", limit=COUNT_OR_NONE)
    device: str = "cpu"


def test_every_turn_meets_all_sides():
    order = []
    rows = sides.in_turns("ab", range(3), lambda side, turn: order.append((turn, side)) or f"{side}{turn}")
    assert order == [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert rows == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    assert sides.in_turns("ab", (), lambda side, turn: None) == [[], []]


def test_a_protocol_names_every_mistake():
    sides.check(Protocol(epochs=0))
    with pytest.raises(ConfigError) as error:
        sides.check(Protocol(repeats=0, epochs=-1), "modes is empty")
    assert error.value.problems == [
        "repeats=0 must be at least 1",
        "epochs=-1 must be at least 0",
        "modes is empty",
    ]


def test_figures_as_text_and_ratios():
    known, unknown = sides.figures([2_000.0, 1_000.0, 4_000.0]), sides.figures([1.0, None, None])
    assert sides.with_range(known, 0) == "2,000 (1,000 .. 4,000)"
    assert sides.with_range(known, 1, unit=1e3, between="-") == "2.0 (1.0-4.0)"
    assert sides.with_range(unknown, 1) == "- (1.0 .. -)"
    assert sides.ratio(known, sides.figures([500.0])) == 4.0
    assert sides.ratio(known, unknown) is None


def test_a_table_has_a_row_for_each_side():
    columns = (sides.Column("name", lambda its: its["name"]), sides.Column("twice", lambda its: str(2 * its["n"])))
    lines = sides.side_table(columns, [{"name": "a", "n": 1}, {"name": "b", "n": 20}]).splitlines()
    assert [line.split() for line in lines] == [["name", "twice"], ["----", "-----"], ["a", "2"], ["b", "40"]]


def test_an_object_in_another_process_keeps_its_state():
    with Remote("a queue", "collections:deque", iterable=[1, 2], maxlen=2) as queue:
        assert queue.ask("pop") == 2
        assert queue.ask("pop") == 1
        with pytest.raises(ResourceError, match="a queue ended: IndexError: pop from an empty deque"):
            queue.ask("pop")
    assert queue.process.returncode == 1


def test_an_object_that_cannot_be_made_is_one_line():
    with pytest.raises(ResourceError, match=r"a world ended: .*there is no module 'no_such_module'"):
        Remote("a world", "no_such_module:World")
