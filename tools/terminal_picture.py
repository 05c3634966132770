"""A picture of what a program shows in a terminal: `python tools/terminal_picture.py OUT.png KEYS COMMAND ...`.

The command runs in a terminal of its own, the keys are pressed one after the other, and the last screen is drawn.
"""

from __future__ import annotations

import os
import pty
import re
import select
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

GROUND, INK = (18, 21, 28), (220, 224, 232)
SIZE, MARGIN = 15, 14
CLEAR = "\x1b[H\x1b[2J"
STYLE = re.compile(r"\x1b\[([0-9;]*)m")
Colour = tuple[int, int, int]


def screen_of(keys: str, command: list[str], seconds: float = 60.0) -> str:
    """All that the command has written since it last cleared the screen, once it has answered every key."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    shown = read_until_quiet(terminal, seconds)
    for key in keys:
        os.write(terminal, key.encode())
        shown += read_until_quiet(terminal, 5.0)
    shown += read_until_quiet(terminal, 5.0, quiet=5.0)
    os.close(terminal)
    os.waitpid(child, 0)
    return shown.decode("utf-8", "replace").replace("\r\n", "\n").split(CLEAR)[-1].rstrip()


def read_until_quiet(terminal: int, seconds: float, quiet: float = 0.4) -> bytes:
    """What is written, from its first bytes until nothing more comes."""
    found, wait = b"", seconds
    while select.select([terminal], [], [], wait)[0]:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
        if not more:
            break
        found, wait = found + more, quiet if b"\n" in found + more and not found.endswith(b"...\r\n") else seconds
    return found


def draw(text: str) -> Image.Image:
    """A text with its colours as a picture."""
    import matplotlib

    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSansMono.ttf"), SIZE)
    wide, high = round(font.getlength("M")), SIZE + 4
    lines = text.split("\n")
    columns = max(len(STYLE.sub("", line)) for line in lines)
    picture = Image.new("RGB", (2 * MARGIN + columns * wide, 2 * MARGIN + len(lines) * high), GROUND)
    pen = ImageDraw.Draw(picture)
    for row, line in enumerate(lines):
        column, ink, ground = 0, INK, None
        for number, part in enumerate(STYLE.split(line)):
            if number % 2:
                ink, ground = styled(part, ink, ground)
                continue
            for letter in part:
                x, y = MARGIN + column * wide, MARGIN + row * high
                if ground:
                    pen.rectangle((x, y, x + wide - 1, y + high - 1), fill=ground)
                pen.text((x, y), letter, fill=ink, font=font)
                column += 1
    return picture


def styled(codes: str, ink: Colour, ground: Colour | None) -> tuple[Colour, Colour | None]:
    """The colours after a sequence that chooses them."""
    numbers = [int(code or 0) for code in codes.split(";")]
    if numbers[:2] == [38, 2]:
        return (numbers[2], numbers[3], numbers[4]), ground
    if numbers[:2] == [48, 2]:
        return ink, (numbers[2], numbers[3], numbers[4])
    return INK, None


if __name__ == "__main__":
    target, keys, *command = sys.argv[1:]
    draw(screen_of(keys, command)).save(target)
