"""Is a source tree as fast as an older one?  `overhead.py`, `hackmatrix.py` and `pixels.py` of both, in turns.

    python benchmarks/before_and_after.py OLD_CHECKOUT [--repeats 3] [--quick] [--only overhead] [--json speed.json]

Each side runs its own copy of a script with its own sources, in a new process, on whatever device JAX finds.  In
every repeat both run one after the other, and the next repeat begins with the other side, so that whatever else the
machine does meets both.  Printed are the medians of both sides, and of each figure how many times as fast the newer
side is: the median of the repeats' ratios, and the smallest and largest of them.  What does not depend on the library
(`bare`) shows how far such ratios can be trusted.  The script ends with 1 if the library takes more than `--slack`
longer, compilation apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SIDES = ("before", "after")
NUMBER = r"\s+([\d.,]+)"
RATE, SECONDS = "steps/s", "compile s"


class Script(NamedTuple):
    """A benchmark: its arguments when there is little time, and the lines in which it prints its figures."""

    quick: str
    lines: tuple[tuple[str, tuple[str, ...]], ...]  # a pattern (what is measured, then numbers) and the numbers' units


SCRIPTS = {
    "overhead": Script(
        "--rounds 3",
        (
            (rf"\s*(\d+\s+(?:bare|rollax)){NUMBER}{NUMBER}{NUMBER}$", ("us", SECONDS, "")),
            (rf"(\d+ seeds), 10 environments.*:{NUMBER} steps/s", (RATE,)),
        ),
    ),
    "hackmatrix": Script(
        "--games 32 --seconds 1", ((rf"\s*(\d+ games){NUMBER} steps/s, compiled in{NUMBER} s", (RATE, SECONDS)),)
    ),
    "pixels": Script(
        "nature --rounds 3",
        (
            (rf"(Nature update).*: nn.Conv{NUMBER} ms, rollax{NUMBER} ms, ratio{NUMBER}", ("nn.Conv ms", "ms", "")),
            (rf"\s*((?:pqn|double)\s+\d+){NUMBER}{NUMBER}{NUMBER}$", (f"nn.Conv {RATE}", RATE, "")),
        ),
    ),
}


def figures(name: str, text: str) -> Iterator[tuple[str, float]]:
    """What a script has printed, as `overhead, 1 rollax, us` and a number.  Figures without a unit are left out."""
    for line in text.splitlines():
        for pattern, units in SCRIPTS[name].lines:
            match = re.match(pattern, line)
            if match:
                what, *numbers = match.groups()
                for unit, number in zip(units, numbers, strict=True):
                    if unit:
                        yield f"{name}, {' '.join(what.split())}, {unit}", float(number.replace(",", ""))


def run(checkout: Path, name: str, arguments: str) -> dict[str, float]:
    """The figures of one run of a checkout's own script."""
    command = [sys.executable, str(checkout / "benchmarks" / f"{name}.py"), *arguments.split()]
    paths = [str(checkout / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    values = dict(figures(name, done.stdout))
    if not values:
        raise SystemExit(f"{' '.join(command)} printed no figure that is known here:\n{done.stdout}")
    return values


def speed_ups(figure: str, before: list[float], after: list[float]) -> list[float]:
    """How many times as fast the newer side was, in each repeat."""
    pairs = zip(before, after, strict=True)
    return [new / old if figure.endswith(RATE) else old / new for old, new in pairs]


def is_judged(figure: str) -> bool:
    """Whether the figure says how fast the library's programs run."""
    return not figure.endswith(SECONDS) and "bare" not in figure and "nn.Conv" not in figure


def show(measured: dict[str, dict[str, list[float]]]) -> None:
    print("| figure | before | after | times as fast | of repeats |\n|---|---|---|---|---|")
    for figure, sides in measured.items():
        old, new = (statistics.median(sides[side]) for side in SIDES)
        ups = speed_ups(figure, **sides)
        median, least, most = statistics.median(ups), min(ups), max(ups)
        print(f"| {figure} | {old:,.1f} | {new:,.1f} | {median:.3f} | {least:.3f} .. {most:.3f} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD_CHECKOUT", help="the source tree that is compared with")
    parser.add_argument("--new", type=Path, default=ROOT, help="the newer source tree; by default this one")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each script on each side")
    parser.add_argument("--quick", action="store_true", help="smaller runs, which show that everything works")
    parser.add_argument("--only", nargs="+", choices=list(SCRIPTS), default=list(SCRIPTS), help="these scripts alone")
    parser.add_argument("--slack", type=float, default=0.03, help="how much longer the library may take")
    parser.add_argument("--json", type=Path, help="a file for all figures of all repeats")
    options = parser.parse_args()
    checkouts = dict(zip(SIDES, (options.old.resolve(), options.new.resolve()), strict=True))
    measured: dict[str, dict[str, list[float]]] = {}
    for repeat in range(options.repeats):
        for name in options.only:
            for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
                print(f"repeat {repeat + 1}, {name}, {side}", file=sys.stderr, flush=True)
                for figure, value in run(checkouts[side], name, SCRIPTS[name].quick if options.quick else "").items():
                    measured.setdefault(figure, {side: [] for side in SIDES})[side].append(value)
        if options.json:
            options.json.write_text(json.dumps(measured, indent=1) + "\n")
    show(measured)
    slower = {
        figure: up
        for figure, sides in measured.items()
        if is_judged(figure) and (up := statistics.median(speed_ups(figure, **sides))) < 1 / (1 + options.slack)
    }
    for figure, up in slower.items():
        print(f"{figure} takes {100 * (1 / up - 1):.1f} % longer than before")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
