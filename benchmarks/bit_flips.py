"""Flips single bits in every file that rollax reads back, and counts how that is answered.

A small run is trained, and its policy exported.  Each trial takes a copy, flips one random bit of one file, and asks
each function that reads the file.  A flip is caught (refused with one line), said (a warning, and what can be trusted
is used), harmless (nothing is said, and what was read is the same), silent (nothing is said, and it is not the same),
or lost in a traceback.

    python benchmarks/bit_flips.py [--flips 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rollax
from rollax.errors import RollaxError
from rollax.reports.export import ExportedPolicy, export
from rollax.runs import checkpoint
from rollax.runs.folder import RunFolder
from rollax.runs.result import Result
from rollax.runs.rows import json_step
from rollax.runs.trackers import known_identity

VERDICTS = ("caught", "said", "harmless", "silent", "traceback")
SETTINGS: Any = {
    "preset": "none",
    "num_envs": 8,
    "hidden": (8,),
    "capacity": 400,
    "batch_size": 8,
    "warm_up_steps": 80,
    "steps": 1_600,
    "log_steps": 160,
    "eval_steps": 400,
    "eval_episodes": 2,
    "checkpoint_seconds": 0.0,
    "chunk_seconds": 0.0,
    "log_to": ("jsonl",),
}


def newest(run: Path) -> Path:
    folder = RunFolder(run)
    return folder.checkpoints / str(folder.checkpoint_steps()[0])


def resumed_rows(run: Path, name: str, **form: Any) -> Any:
    """The rows that a resume goes on with."""
    folder, meta = RunFolder(run), checkpoint.verify(newest(run))
    folder.recorded = meta["tables"]
    return folder.rows_before(run / name, meta["step"], **form).lines


def plain(columns: dict[str, Any]) -> Any:
    return {name: values.tobytes() for name, values in columns.items()}


Reader = Callable[[Path], Any]
# File, who reads it, and how: what comes back is compared with what comes back from the file as it was written.
READERS: list[tuple[str, str, Reader]] = [
    *(
        (f"checkpoints/STEP/{name}", "resume, eval, load, ...", lambda run: checkpoint.verify(newest(run)))
        for name in (checkpoint.ARRAYS, checkpoint.META, checkpoint.MANIFEST, checkpoint.SEAL)
    ),
    ("config.json", "all", lambda run: RunFolder(run).read_config()),
    ("metrics.csv", "plot, report", lambda run: plain(Result(run).curves)),
    ("metrics.csv", "resume", lambda run: resumed_rows(run, "metrics.csv")),
    ("evaluations.csv", "plot, report", lambda run: plain(Result(run).evaluations)),
    ("evaluations.csv", "resume", lambda run: resumed_rows(run, "evaluations.csv")),
    ("summary.json", "report", lambda run: Result(run).summary),
    ("summary.json", "resume", lambda run: RunFolder(run).outcome()),
    ("hashes.json", "plot, report", lambda run: plain(Result(run).curves)),
    ("hashes.json", "resume", lambda run: RunFolder(run).repair()),
    ("log.jsonl", "resume", lambda run: resumed_rows(run, "log.jsonl", header=False, step_of=json_step)),
    ("wandb-id.txt", "resume", lambda run: known_identity(RunFolder(run), run / "wandb-id.txt")),
    *(
        (f"export/{name}", "eval, load", lambda run: ExportedPolicy(run / "export").card)
        for name in ("export.json", "config.json", "weights.safetensors", "policy.jaxexport")
    ),
]


def made_run(folder: Path) -> Path:
    """A run with all the files that are read back."""
    rollax.train(rollax.make_experiment("double", **SETTINGS), folder, quiet=True)
    export(folder, folder / "export")
    RunFolder(folder).seals.write(folder / "wandb-id.txt", "0a1b2c3d\n")
    return folder


def answer(read: Reader, run: Path) -> tuple[Any, str]:
    """What is read, and what is said meanwhile."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        return read(run), said.getvalue()


def verdict_of(read: Reader, run: Path, expected: Any) -> str:
    try:
        found, said = answer(read, run)
    except RollaxError:
        return "caught"
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return "traceback"
    if said:
        return "said"
    return "harmless" if found == expected else "silent"


def flip(path: Path, draw: random.Random) -> None:
    """One bit of a file, anywhere."""
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    counts: dict[tuple[str, str], Counter[str]] = {(name, who): Counter() for name, who, _ in READERS}
    with tempfile.TemporaryDirectory() as base:
        whole = made_run(Path(base) / "run")
        step = newest(whole).name
        calm = [answer(read, whole) for _, _, read in READERS]
        assert not any(said for _, said in calm), calm
        for trial in range(options.flips):
            name, who, read = READERS[trial % len(READERS)]
            hurt = Path(shutil.copytree(whole, Path(base) / "hurt"))
            flip(hurt / name.replace("STEP", step), draw)
            counts[name, who][verdict_of(read, hurt, calm[trial % len(READERS)][0])] += 1
            shutil.rmtree(hurt)
    total: Counter[str] = sum(counts.values(), Counter())
    print(f"| file | read by | flips | {' | '.join(VERDICTS)} |\n|{' --- |' * (3 + len(VERDICTS))}")
    for (name, who), found in counts.items():
        print(f"| `{name}` | {who} | {found.total()} | {' | '.join(str(found[one]) for one in VERDICTS)} |")
    print(f"| all | | {total.total()} | {' | '.join(str(total[one]) for one in VERDICTS)} |")
    return 1 if total["silent"] or total["traceback"] else 0


if __name__ == "__main__":
    sys.exit(main())
