"""Do two commits learn the same weights?  Short runs of every agent at both, and the hashes of what they have learnt.

    python benchmarks/fingerprints.py REV               # REV, or the folder of a checkout, against the working tree
    python benchmarks/fingerprints.py REV --only double ppo --json fingerprints.json --workers 2

Every case is one or two commands of `rollax`, run from a checkout of each commit on the same machine; what is compared
is `params_sha256` of each member in `summary.json`.  A change that only moves or renames code keeps every hash.  The
script ends with 1 if any differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL = "--steps 3000 --num-envs 8 --hidden 16 --eval-episodes 4 --seeds 2"
REPLAY = f"{SMALL} --warm-up-steps 400 --capacity 2000 --batch-size 32"
ROLLOUTS = f"{SMALL} --rollout-length 16 --minibatches 4"
HUNT = "--env TreasureHunt-v0 --steps 400 --hidden 24 --eval-episodes 2 --agents 3"
EPOCHS = f"{HUNT} --shared-hidden 24 --batch-size 64 --capacity 512"
SHARED_HUNT = f"{HUNT} --learners shared --num-envs 4 --warm-up-steps 60 --capacity 1200 --batch-size 16"
FRAMES = "--filters 4 --windows 8 --strides 8 --steps 1200 --gradient-steps 2 --eval-episodes 2 --max-frames 900"
FAMILY = (
    "dqn", "double", "dueling", "n_step", "prioritized", "noisy", "c51", "qr", "iqn", "munchausen", "rainbow", "apex",
    "irainbow",
)  # fmt: skip

# The arguments of `rollax`, for one command or for several that follow on one another; `--run-dir` is added.
CASES: dict[str, tuple[str, ...]] = {
    **{agent: (f"train {agent} {REPLAY}",) for agent in FAMILY},
    "pqn": (f"train pqn {ROLLOUTS}",),
    "ppo": (f"train ppo {ROLLOUTS}",),
    "ppo, normalised": (f"train ppo {ROLLOUTS} --observations normalized --rewards normalized --kl-limit 0.01",),
    "settings x seeds": (f"train double {REPLAY} --learning-rate 1e-3 3e-3",),
    "resumed": (f"train rainbow {REPLAY}", "resume --steps 4000"),
    "two devices, one member": (f"train prioritized {REPLAY} --seeds 1 --devices 2",),
    "two devices, ppo": (f"train ppo {ROLLOUTS} --seeds 1 --devices 2",),
    "MinAtar, pqn": (f"train pqn --env Breakout-MinAtar {ROLLOUTS} --channels 4 --seeds 1",),
    "HackMatrix, ppo": (
        f"train ppo --env HackMatrix-v0 {ROLLOUTS} --steps 512 --channels 4 --depth 1 --seeds 1 --max-episode-steps 20",
    ),
    "Gymnasium, double": (f"train double --env gymnasium:CartPole-v1 {REPLAY} --seeds 1",),
    "Gymnasium, ppo": (f"train ppo --env gymnasium:CartPole-v1 {ROLLOUTS} --seeds 1",),
    "Gymnasium, resumed": (f"train n_step --env gymnasium:CartPole-v1 {REPLAY} --seeds 1", "resume --steps 4000"),
    "Atari, prioritised frames": (
        f"train prioritized --env ALE/Pong-v5 {REPLAY} {FRAMES} --seeds 1 --max-episode-steps 60",
    ),
    "treasure hunt, in turn": (f"train irainbow {EPOCHS}",),
    "treasure hunt, at once": (f"train irainbow {EPOCHS} --obs-timing simultaneous",),
    "treasure hunt, reference": (
        f"train irainbow {EPOCHS} --stale-frames 512 --preset irainbow/TreasureHunt-v0/reference",
    ),
    "treasure hunt, one learner": (f"train double {SHARED_HUNT} --obs-timing simultaneous",),
}


def fingerprint(source: Path, commands: tuple[str, ...], folder: Path) -> str:
    """The hashes of all members, joined; the last line of what went wrong where there are none."""
    paths = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    for line in commands:
        command, *flags = line.split()
        place = [str(folder)] if command == "resume" else [*flags[:1], "--run-dir", str(folder)]
        rest = flags if command == "resume" else flags[1:]
        whole = [sys.executable, "-m", "rollax", command, *place, *rest, "--quiet"]
        done = subprocess.run(whole, cwd=folder.parent, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"exit {done.returncode}: {[*done.stderr.strip().splitlines(), ''][-1][:200]}"
    members = json.loads((folder / "summary.json").read_text())["members"]
    return " ".join(member["params_sha256"][:16] for member in members)


def fingerprints(source: Path, names: list[str], workers: int) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(workers) as pool:

        def one(number: int) -> str:
            found = fingerprint(source, CASES[names[number]], Path(base) / f"run_{number}")
            print(f"{source}: {names[number]}: {found}", file=sys.stderr, flush=True)
            return found

        return dict(zip(names, pool.map(one, range(len(names))), strict=True))


def fingerprints_of(rev: str, names: list[str], workers: int) -> dict[str, str]:
    """Those of a commit, from a checkout of it."""
    with tempfile.TemporaryDirectory() as checkout:
        subprocess.run(["git", "worktree", "add", "--detach", checkout, rev], cwd=ROOT, check=True)
        try:
            return fingerprints(Path(checkout) / "src", names, workers)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rev", help="the commit, or a folder with its sources, that the working tree is compared with")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), help="these cases alone")
    parser.add_argument("--workers", type=int, default=1, help="cases that run side by side")
    parser.add_argument(
        "--json", type=Path, help="a file for the hashes of REV, which are taken from it if it has them"
    )
    options = parser.parse_args()
    folder = Path(options.rev) / "src"
    if folder.is_dir():
        rev, before = Path(options.rev).name, fingerprints(folder.resolve(), options.only, options.workers)
    else:
        rev = subprocess.check_output(["git", "rev-parse", options.rev], cwd=ROOT, text=True).strip()
        known = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
        before = known.get(rev, {})
        if missing := [name for name in options.only if name not in before]:
            before |= fingerprints_of(rev, missing, options.workers)
            if options.json:
                options.json.write_text(json.dumps(known | {rev: before}, indent=1) + "\n")
    after = fingerprints(ROOT / "src", options.only, options.workers)
    print(f"| case | {rev[:10]} | working tree | |\n|---|---|---|---|")
    for name in options.only:
        print(
            f"| {name} | {before[name]} | {after[name]} | {'equal' if before[name] == after[name] else 'DIFFERENT'} |"
        )
    differ = [name for name in options.only if before[name] != after[name]]
    print(f"{len(options.only) - len(differ)} of {len(options.only)} equal")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
