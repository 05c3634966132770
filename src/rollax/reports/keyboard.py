"""Keys as a person presses them at a terminal."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Generator
from typing import TextIO

ARROWS = {"A": "w", "B": "s", "D": "a", "C": "d"}
# What a terminal sends for one key: an escape with its parameters and a last letter, or a character.
KEY = re.compile(r"\x1b\[\[[@-~]|\x1b\[[0-9;?<]*[ -/]*[@-~]|\x1bO[0-9;]*[@-~]|\x1b[^\x1b\[O]|\x1b|.", re.DOTALL)
PLAIN_ARROW = re.compile(r"\x1b(?:\[|O)(?:1;[0-9]+|[0-9]+)?([ABCD])")


def key_presses(keyboard: TextIO) -> Generator[str]:
    """Keys one by one until nobody is there any more; arrows count as w, s, a and d.

    A key without a character, such as Home or F5, comes as what the terminal sends for it, beginning with an escape.
    Without a terminal keys come from lines.
    """
    if not keyboard.isatty():
        for line in keyboard:
            yield from keys_in(line.rstrip("\n"))
        return
    import termios
    import tty

    descriptor = keyboard.fileno()
    before = termios.tcgetattr(descriptor)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        tty.setcbreak(descriptor, termios.TCSADRAIN)  # what was pressed meanwhile counts
        while pressed := os.read(descriptor, 1024):  # all that one key sends comes at once
            yield from keys_in(decoder.decode(pressed))
    except OSError:  # the terminal is gone
        return
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def keys_in(sent: str) -> list[str]:
    """The keys in what a terminal has sent."""
    keys = KEY.findall(sent)
    arrows = [PLAIN_ARROW.fullmatch(key) for key in keys]
    return [ARROWS[arrow[1]] if arrow else key for key, arrow in zip(keys, arrows, strict=True)]
