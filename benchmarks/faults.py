"""Goes on with faults where the tests' matrix ends: random ones, for so many minutes, counted by how they are answered.

    python benchmarks/faults.py --minutes 10 [--seed 0] [--only files words settings environments]

files         a random damage to random files of a run folder, and then a command that reads it
words         a command line with words left out, repeated, exchanged and garbled
settings      several settings with values that cannot be
environments  an environment outside JAX that misbehaves in one of its calls

Verdicts: answered (the right exit code, with a line where there is something to say), silent (a wrong result without a
word), lost (rows, or files that are not ours, are gone), hung, traceback.  The script prints every fault that was not
answered, with what repeats it, and ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "faults")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import faulty_envs  # noqa: E402 - found only now
from fault_tools import TINY, VERDICTS, Answer, Verdict, ask, contents_of, hashes_of  # noqa: E402
from test_settings_refused import BAD as BAD_VALUES  # noqa: E402
from test_settings_refused import NUMBERS, legal, listed, value_for  # noqa: E402

SECONDS = 300.0  # after which a command hangs
LONGER = 1_200  # steps that a damaged run is extended to
COMMANDS = ("resume", "extend", "eval", "plot", "load")


class Finding(NamedTuple):
    """What became of a fault."""

    verdict: Verdict
    fault: str
    answer: Answer


class Undamaged(NamedTuple):
    """A run folder as it was, and what commands say of it."""

    folder: Path
    evaluation: Any
    extended: list[str]  # hashes of the weights of the same run, extended
    rows: list[str]
    extended_rows: list[str]


def undamaged(base: Path) -> Undamaged:
    folder, longer = base / "run", base / "longer"
    assert ask("train", *TINY, "--seeds", 2, "--checkpoint-seconds", 0, "--run-dir", folder, "--quiet").code == 0
    shutil.copytree(folder, longer)
    assert ask("resume", longer, "--steps", LONGER, "--quiet").code == 0
    played = ask("eval", folder, "--episodes", 2, "--json")
    return Undamaged(folder, json.loads(played.out), hashes_of(longer), rows_of(folder), rows_of(longer))


def rows_of(folder: Path) -> list[str]:
    """The rows of the log, without the times, which no two runs share."""
    lines = (folder / "metrics.csv").read_text(errors="replace").splitlines()
    return [",".join(cell for place, cell in enumerate(line.split(",")) if place not in (3, 4)) for line in lines[1:]]


# -- damages to a file


def flipped(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 8))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def cut(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def garbled(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = draw.randrange(len(data))
    data[start : start + draw.randrange(1, 200)] = draw.randbytes(draw.randrange(1, 200))
    path.write_bytes(data)


def blanked(path: Path, draw: random.Random) -> None:
    path.write_bytes(bytes(len(path.read_bytes())) if draw.random() < 0.5 else b"")


def removed(path: Path, draw: random.Random) -> None:
    path.unlink()


def linked(path: Path, draw: random.Random) -> None:
    target = path.parent.parent / f"elsewhere-{path.name}"
    shutil.move(path, target)
    path.symlink_to(target if draw.random() < 0.7 else "/dev/zero")


def piped(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def foldered(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def another_line(path: Path, draw: random.Random) -> None:
    """Text that is still text: a digit is another."""
    data = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    if places:
        data[draw.choice(places)] = ord(draw.choice(string.digits))
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped": flipped,
    "cut": cut,
    "garbled": garbled,
    "blanked": blanked,
    "removed": removed,
    "linked": linked,
    "piped": piped,
    "foldered": foldered,
    "another line": another_line,
}


def damaged_file(draw: random.Random, whole: Undamaged, base: Path) -> Finding:
    """One or two files of a copy are damaged, and then a command reads it."""
    run, beside = base / "copy", base / "beside"
    shutil.copytree(whole.folder, run)
    beside.mkdir()
    (beside / "mine").write_text("not yours")
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock" and path.stat().st_size)
    words = []
    for _ in range(draw.choice((1, 1, 2))):
        path, name = draw.choice(files), draw.choice(list(DAMAGES))
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            DAMAGES[name](path, draw)
            words.append(f"{name} {path.relative_to(run)}")
    command = draw.choice(COMMANDS)
    fault = f"{command} after {' and '.join(words)}"
    kept = contents_of(beside)
    answer, right = read_by(command, run, whole)
    verdict = answer.verdict
    if contents_of(beside) != kept:
        return Finding("lost", fault, answer)
    if verdict == "silent" and right:
        verdict = "answered"
    if answer.code == 0 and command in ("resume", "extend") and not answer.lines and not right:
        verdict = "silent"
    if verdict == "answered" and answer.code not in (0, 2, 3, 5, 6):
        verdict = "silent"
    return Finding(verdict, fault, answer)


def read_by(command: str, run: Path, whole: Undamaged) -> tuple[Answer, bool]:
    """The answer of a command, and whether it is that of an undamaged folder."""
    if command == "eval":
        answer = ask("eval", run, "--episodes", 2, "--json", seconds=SECONDS)
        return answer, answer.code == 0 and json.loads(answer.out) == whole.evaluation
    if command == "plot":
        answer = ask("plot", run, "--out", run.parent / "curve.png", seconds=SECONDS)
        return answer, answer.code == 0 and rows_of(run) == whole.rows
    if command == "load":
        answer = ask("export", run, "--out", run.parent / "export", seconds=SECONDS)
        return answer, answer.code == 0
    if command == "resume":
        answer = ask("resume", run, "--quiet", seconds=SECONDS)
        return answer, answer.code == 0 and rows_of(run) == whole.rows
    answer = ask("resume", run, "--steps", LONGER, "--quiet", seconds=SECONDS)
    good = answer.code == 0 and hashes_of(run) == whole.extended and rows_of(run) == whole.extended_rows
    return answer, good


# -- other faults


def wrong_words(draw: random.Random, whole: Undamaged, base: Path) -> Finding:
    """A command line that somebody has sat upon.  `plan` reads what `train` reads, and trains nothing."""
    words = ["plan", *TINY, "--env", "CartPole-v1", "--learning-rate", "0.001", "--torso.hidden", "8", "--json"]
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(words))
        change = draw.randrange(6)
        if change == 0:
            del words[place]
        elif change == 1:
            words.insert(place, draw.choice(words))
        elif change == 2:
            other = draw.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        elif change == 3:
            words[place] = "".join(draw.choice(string.printable) for _ in range(draw.randrange(1, 12)))
        elif change == 4:
            words[place] += draw.choice("0-=.,:/\n\0")
        else:
            words[place] = words[place][: draw.randrange(len(words[place]) + 1)]
        words = words or ["plan"]
    if words[0] in ("train", "sweep", "tune", "compare", "bench", "play", "watch"):
        words[0] = "plan"
    answer = ask(*words, seconds=SECONDS)
    fine = answer.code == 0 or (answer.code in (2, 3, 5, 6) and answer.lines)
    verdict = answer.verdict if answer.verdict in ("hung", "traceback") else "answered" if fine else "silent"
    return Finding(verdict, repr(words), answer)


def bad_settings(draw: random.Random, whole: Undamaged, base: Path) -> Finding:
    """Several settings of one agent with values that cannot be, in a file: all of them are named."""
    name = draw.choice(list(NUMBERS))
    _, values = NUMBERS[name]
    others = [other for other, (_, theirs) in NUMBERS.items() if theirs == values]
    chosen = {name, *draw.sample(others, min(len(others), draw.randrange(3)))}
    from rollax.experiment.experiment import make_experiment
    from rollax.experiment.tree import to_json

    data = to_json(make_experiment(preset="none", **values))
    bad = {}
    for path in chosen:
        leaf, _ = NUMBERS[path]
        value = value_for(leaf, draw.choice(list(BAD_VALUES)))
        if not legal(leaf, value):
            *steps, last = leaf.path
            branch = data
            for step in steps:
                branch = branch[step]
            branch[last] = [value] if listed(leaf) else value
            bad[last] = value
    config = base / "config.json"
    config.write_text(json.dumps(data))
    answer = ask("plan", "--config", config, seconds=SECONDS)
    said = " ".join(answer.lines)
    verdict = answer.verdict
    if verdict == "answered" and (answer.code != 2 or not all(last in said for last in bad)):
        verdict = "silent"
    return Finding("answered" if not bad and verdict == "silent" else verdict, f"{values} {bad}", answer)


def bad_environment(draw: random.Random, whole: Undamaged, base: Path) -> Finding:
    """One that misbehaves, looked at or trained in."""
    call, bad = draw.choice(faulty_envs.CASES)
    ends = bad in ("quits", "killed", "segfaults")
    how = ["--vectorization", "async"] if ends or draw.random() < 0.3 else []
    name = f"gymnasium:faulty_envs:{call}_{bad}-v0"
    answer = ask("check-env", name, "--env-seconds", 2, *how, seconds=SECONDS)
    verdict = answer.verdict
    if verdict == "answered" and (answer.code not in (2, 4, 5) or name not in " ".join(answer.lines)):
        verdict = "silent"
    return Finding(verdict, f"{name} {how}", answer)


KINDS = {
    "files": damaged_file,
    "words": wrong_words,
    "settings": bad_settings,
    "environments": bad_environment,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long it goes on")
    parser.add_argument("--seed", type=int, default=0, help="of the faults; the same seed makes the same ones")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), help="these kinds alone")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in options.only}
    with tempfile.TemporaryDirectory() as base:
        whole = undamaged(Path(base))
        end, number = time.monotonic() + 60 * options.minutes, 0
        while time.monotonic() < end:
            kind = options.only[number % len(options.only)]
            place = Path(base, str(number))
            place.mkdir()
            found = KINDS[kind](random.Random(f"{options.seed} {number}"), whole, place)
            counts[kind][found.verdict] += 1
            if found.verdict != "answered":
                print(f"{found.verdict}: {kind} {number}: {found.fault}: {found.answer}", flush=True)
            shutil.rmtree(place)
            number += 1
    print("| faults | " + " | ".join(VERDICTS) + " |\n|---|" + "---|" * len(VERDICTS))
    for kind, found in counts.items():
        print(f"| {kind} | " + " | ".join(str(found[verdict]) for verdict in VERDICTS) + " |")
    return int(any(verdict != "answered" for found in counts.values() for verdict in found))


if __name__ == "__main__":
    sys.exit(main())
