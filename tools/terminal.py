"""Records commands as a picture of a terminal in which their lines appear one by one: `python tools/terminal.py`.

The commands really run, in a folder of their own, and what they print is shown as they print it.  Waiting is shortened
to at most a second and a half between two lines; the last line of the picture says how long it really took.  A command
that has not ended within the limit is ended with all of its processes, and there is no picture.
"""

from __future__ import annotations

import argparse
import html
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "first-minutes.svg"
NEWCOMER = [
    "rollax train double --seeds 4",
    "rollax eval runs/double_CartPole-v1_1 --episodes 20",
    "rollax watch runs/double_CartPole-v1_1 --quiet",
    "rollax train double --gamma 0.9",
]
LONGEST_WAIT = 1.5  # seconds between two lines in the picture
LIMIT = 300.0  # seconds of a command
COLUMNS, LINE, CHARACTER, EDGE = 92, 19, 8.05, 16
STYLE = """
  rect { fill: #1d2330; } text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d5dae3; white-space: pre; }
  .typed { fill: #8fd18f; } .note { fill: #8a93a6; }
  g { animation: show 0.01s both; } @keyframes show { from { opacity: 0; } to { opacity: 1; } }
"""


class Line(NamedTuple):
    text: str
    kind: str  # typed, said or note
    at: float  # seconds since the beginning, waiting shortened


def record(commands: list[str], folder: Path, limit: float = LIMIT) -> tuple[list[Line], float]:
    """What the commands print, one after the other, and the seconds that all of it took.

    Raises TimeoutError for one that takes longer than so many seconds.
    """
    lines, shown, began = [], 0.0, time.monotonic()
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    cache = str(folder / ".cache")  # empty, as a newcomer's
    own = {"PYTHONUNBUFFERED": "1", "COLUMNS": str(COLUMNS), "PYTHONPATH": paths, "XDG_CACHE_HOME": cache}
    environment = os.environ | own
    for command in commands:
        shown += LONGEST_WAIT
        lines.append(Line(f"$ {command}", "typed", shown))
        words = [sys.executable, "-m", *command.split()]
        with subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            assert running.stdout is not None
            too_long = threading.Event()

            def end(running: subprocess.Popen[str] = running, too_long: threading.Event = too_long) -> None:
                too_long.set()
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)  # what it has started may hold the pipe open

            timer = threading.Timer(limit, end)
            timer.start()
            last = time.monotonic()
            for text in running.stdout:
                now = time.monotonic()
                shown, last = shown + min(now - last, LONGEST_WAIT), now
                lines += [Line(part, "said", shown) for part in wrapped(text.rstrip("\n"))]
            timer.cancel()
        if too_long.is_set():
            raise TimeoutError(f"`{command}` has not ended within {limit:g} s; it had printed {len(lines)} lines")
    return lines, time.monotonic() - began


def wrapped(text: str) -> list[str]:
    """A line as a terminal of so many columns shows it."""
    return [text[start : start + COLUMNS] for start in range(0, max(len(text), 1), COLUMNS)]


def picture(lines: list[Line]) -> str:
    """The lines as an SVG that plays once, and then stays."""
    width, height = COLUMNS * CHARACTER + 2 * EDGE, len(lines) * LINE + 2 * EDGE
    rows = [
        f'<g style="animation-delay: {line.at:.2f}s"><text class="{line.kind}" x="{EDGE}" '
        f'y="{EDGE + (number + 0.75) * LINE:.0f}" xml:space="preserve">{html.escape(line.text)}</text></g>'
        for number, line in enumerate(lines)
    ]
    body = "\n".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'role="img" aria-label="A recorded terminal">\n<style>{STYLE}</style>\n'
        f'<rect width="100%" height="100%" rx="8"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", default=NEWCOMER, help="what is typed; by default a newcomer's way")
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--machine", default="two cores of an AMD EPYC", help="for the last line")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which a command is given up")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, seconds = record(flags.commands, Path(folder), flags.limit)
    end = found[-1].at + LONGEST_WAIT
    found.append(Line(f"# {seconds:.0f} s in all on {flags.machine}; here waiting is shortened", "note", end))
    flags.out.write_text(picture(found))
    print(f"{flags.out}: {len(found)} lines")
