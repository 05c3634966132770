"""Lists the files that one transition passes on its way from the environment's `step` to `metrics.csv`.

    python benchmarks/walk.py [CHECKOUT] [--only double ppo] [--functions]

Prints, for a short run of each case, how many files of `src/rollax` have a function that is entered on the way, and
which they are.  CHECKOUT is any source tree of the library, also an older one, by default this one.  Every case is one
`rollax train`.  All of its processes and threads are watched from start to end, so a function counts both when a
program is traced, as compiled code enters no Python any more, and when it is called.

The rule.  All functions in files of `src/rollax` that are entered count, but for those that have nothing to do with
collecting, acting, stepping, remembering, learning and writing rows.  They are told by words, which are the same for
every checkout: a function that has one of the words of `APART` in its qualified name is left out, with everything that
it calls.  So are imports.  The files of the command line and of the experiment's description, and constructors, do not
count, but what they call may.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
APART = {
    "a plan and its checks": "plan problem problems check checks limit shapes bytes nbytes size sizes range warm",
    "settings": "experiment recipe json leaves leaf config parse flags preset parts part coerce resolve population",
    "a start": "init create restore resume load lock cache debug device cores joined surrounded",
    "evaluation": "evaluate evaluation evaluations evaluator best",
    "checkpoints": "checkpoint checkpoints save digest sha256 summary summarize summaries",
    "what a person sees": "console progress announce tell show say standing concern concerns curve plot resources",
    "signals and other processes' troubles": "signal signals agree first watch lost",
    "an end": "finish close",
}
WORDS = {word for words in APART.values() for word in words.split()}
DESCRIPTION = re.compile(r"(__init__|__main__|cli\w*|flags|commands/.*|experiment|experiment/.*)\.py")
SMALL = "--steps 800 --num-envs 4 --hidden 8 --eval-episodes 2"
REPLAY = f"{SMALL} --warm-up-steps 64 --capacity 800 --batch-size 8"
HUNT = "--steps 200 --hidden 8 --shared-hidden 8 --batch-size 16 --capacity 256 --agents 2 --eval-episodes 2"
CASES = {
    "double": f"double --env CartPole-v1 {REPLAY}",
    "ppo": f"ppo --env CartPole-v1 {SMALL} --rollout-length 16 --minibatches 2",
    "host": f"double --env gymnasium:CartPole-v1 {REPLAY}",
    "treasure hunt": f"irainbow --env TreasureHunt-v0 {HUNT}",
    "apex": f"apex --env CartPole-v1 {REPLAY} --preset none --rollout-length 4 --actors 1",
}


def words_of(name: str) -> set[str]:
    """The words of a qualified name: `RunFolder.save_checkpoint` has run, folder, save and checkpoint."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name.replace("__init__", ""))}


def record(package: Path, out: Path) -> None:
    """Watches this process, in all threads that begin later too; each function is written down when first entered."""
    known: dict[Any, bool | None] = {}  # of a code object: does it count?  None: nothing below it does
    state = threading.local()
    lines = open(out / f"{os.getpid()}.txt", "a", buffering=1)  # noqa: SIM115 - open as long as the process

    def judge(frame: FrameType) -> bool | None:
        code = frame.f_code
        if code.co_name == "<module>":  # an import, unless it is the program itself
            return False if frame.f_globals["__name__"] == "__main__" else None
        path = Path(code.co_filename)
        if not path.is_relative_to(package):
            return False
        name = code.co_qualname
        if words_of(name.replace("<locals>", "").replace("<lambda>", "")) & WORDS:
            return None
        file = path.relative_to(package).as_posix()
        if DESCRIPTION.fullmatch(file) or code.co_name == "__init__":
            return False
        lines.write(f"{file} {name}\n")
        return True

    def watch(frame: FrameType, event: str, _: Any) -> None:
        depth = getattr(state, "depth", 0)  # below a function that is left out
        if event == "call":
            if depth:
                state.depth = depth + 1
                return
            code = frame.f_code
            if code not in known:
                known[code] = False  # what is called meanwhile, by this very function, must not ask again
                known[code] = judge(frame)
            if known[code] is None:
                state.depth = 1
        elif event == "return" and depth:
            state.depth = depth - 1

    threading.setprofile(watch)
    sys.setprofile(watch)


def walk(checkout: Path, arguments: str) -> dict[str, list[str]]:
    """The functions that are entered on the way, by their files."""
    with tempfile.TemporaryDirectory() as base:
        folder, out = Path(base, "start"), Path(base, "out")
        folder.mkdir()
        out.mkdir()
        # Python imports a module of this name in every process that it starts, those of Ray included.
        places = (str(checkout / "src" / "rollax"), str(out))
        (folder / "sitecustomize.py").write_text(f"import walk\nwalk.record(*map(walk.Path, {places}))\n")
        path = os.pathsep.join(map(str, (folder, checkout / "src", Path(__file__).parent)))
        command = [sys.executable, "-m", "rollax", "train", *arguments.split(), "--run-dir", str(Path(base, "run"))]
        environment = os.environ | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, env=environment, cwd=base, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
        assert Path(base, "run", "metrics.csv").exists()
        found = {line for file in out.glob("*.txt") for line in file.read_text().splitlines()}
    functions = defaultdict(list)
    for line in sorted(found):
        file, _, name = line.partition(" ")
        functions[file].append(name)
    return dict(functions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT, help="a source tree of the library")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), help="these cases alone")
    parser.add_argument("--functions", action="store_true", help="print the functions of each file too")
    options = parser.parse_args()
    for case in options.only:
        files = walk(options.checkout.resolve(), CASES[case])
        print(f"{case}: {len(files)} files", flush=True)
        for file, names in files.items():
            print(f"    {file}" + (f": {', '.join(names)}" if options.functions else ""), flush=True)


if __name__ == "__main__":
    main()
