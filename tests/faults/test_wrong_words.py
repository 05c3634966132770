"""Wrong words on the command line: an answer in one line, with the fix."""

from __future__ import annotations

import pytest
from fault_tools import ask, judge

WRONG = {
    "command": (["trian"], "train"),
    "agent": (["train", "dubble"], "double"),
    "environment": (["train", "double", "--env", "CartPol-v1"], "CartPole-v1"),
    "flag": (["train", "double", "--learning-rat", "0.1"], "learning-rate"),
    "value": (["train", "double", "--learning-rate", "fast"], "learning-rate"),
    "folder": (["resume", "no/such/folder"], "no/such/folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_word_is_answered_in_one_line(request, case):
    arguments, right = WRONG[case]
    judge(request, ask(*arguments), 2, right)
