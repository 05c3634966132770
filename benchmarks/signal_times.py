"""How long a run takes to end after SIGTERM, whatever it is doing.

Each trial starts a run, waits until it compiles, warms up, trains, evaluates or saves, sends SIGTERM at a random
moment from then on, and measures the time until the process has ended.  It must end with 75, and leave a folder that
`rollax resume` would go on with.

    python benchmarks/signal_times.py [--trials 50] [--seed 0] [--only compile evaluation]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

LIMIT = 10.0  # seconds that it may take
PREEMPTED = 75
SMALL = "--preset none --num-envs 8 --hidden 32 --batch-size 32 --eval-episodes 8"
FOR_EVER = "--steps 1000000000 --log-steps 1000000 --eval-steps 1000000000"
COLD = "--no-compile-cache"


class Moment(NamedTuple):
    """What a run is doing when the signal comes."""

    flags: str
    begins: str  # what it has said by then
    spread: float  # seconds from then on, of which one is drawn
    later: float = 0.0  # seconds that it takes to get there after it has said so


MOMENTS = {
    "compile": Moment(f"rainbow {SMALL} {FOR_EVER} --capacity 10000 {COLD}", "Run folder", 4.0),
    "compile HackMatrix": Moment(
        f"ppo --env HackMatrix-v0 --preset none --num-envs 64 --rollout-length 16 --steps 1000000 {COLD}",
        "Run folder",
        30.0,
    ),
    "warm-up": Moment(
        f"double {SMALL} {FOR_EVER} --capacity 100000 --warm-up-steps 900000000", "Compiled", 4.0, later=1.0
    ),
    "training": Moment(f"double {SMALL} {FOR_EVER} --capacity 100000", "Compiled", 4.0, later=1.0),
    "evaluation": Moment(
        f"double --env signal_times:endless {SMALL} --capacity 10000 --steps 20000 --log-steps 8000 --eval-steps 8000 "
        "--max-episode-steps 1000000000",
        "Compiled",
        6.0,
        later=6.0,
    ),
    "compiling the evaluation": Moment(
        f"ppo --env HackMatrix-v0 --preset none --num-envs 64 --rollout-length 16 --steps 1000000 {COLD}",
        "Compiled",
        10.0,
    ),
    "saving": Moment(
        f"double {SMALL} {FOR_EVER} --capacity 4000000 --checkpoint-seconds 0 --chunk-seconds 0.2",
        "Compiled",
        4.0,
        later=1.0,
    ),
    "environments outside JAX": Moment(
        f"double --env gymnasium:CartPole-v1 {SMALL} --capacity 10000 --steps 100000000 --eval-steps 4000",
        "Compiled",
        6.0,
    ),
    "actors": Moment(
        f"apex {SMALL} --rollout-length 4 --capacity 9984 --actors 2 --steps 100000000 --eval-steps 4000",
        "Compiled",
        20.0,
    ),
}


class Endless:
    """Episodes without an end."""

    num_actions = 2
    default_params = None

    def reset(self, key: Any, params: Any) -> Any:
        import jax

        state = jax.random.uniform(key, (4,))
        return state, state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        import jax.numpy as jnp

        state = jnp.sin(3.0 * state + action)
        never = jnp.zeros((), bool)
        return state, state, state[0], never, never, {"final_observation": state}


def endless() -> Endless:
    return Endless()


def time_of(moment: Moment, wait: float, folder: Path) -> tuple[float, int, str]:
    """Seconds from SIGTERM to the end of a run, its exit code, and what its folder says of it."""
    command = [sys.executable, "-u", "-m", "rollax", "train", *moment.flags.split(), "--run-dir", str(folder)]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(moment.begins):
            break
    else:
        raise SystemExit(f"{' '.join(command)} ended with {process.wait()}:\n{''.join(said)}")
    time.sleep(moment.later + wait)
    began = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    code = process.wait()
    seconds = time.perf_counter() - began
    return seconds, code, json.loads((folder / "summary.json").read_text())["status"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(MOMENTS), default=list(MOMENTS))
    options = parser.parse_args()
    draw = random.Random(options.seed)
    found: dict[str, list[float]] = {name: [] for name in options.only}
    wrong = 0
    with tempfile.TemporaryDirectory() as base:
        for trial in range(options.trials):
            name = options.only[trial % len(options.only)]
            wait = draw.uniform(0.0, MOMENTS[name].spread)
            seconds, code, status = time_of(MOMENTS[name], wait, Path(base) / str(trial))
            right = code == PREEMPTED and status == "interrupted" and seconds <= LIMIT
            wrong += not right
            found[name].append(seconds)
            verdict = "" if right else "  WRONG"
            print(f"{trial + 1:3d} {name}, {wait:.1f} s: {seconds:.2f} s, {code}, {status}{verdict}", flush=True)
    print(f"\n{'':26}{'trials':>8}{'median':>8}{'largest':>8}")
    for name, times in ((name, sorted(times)) for name, times in found.items() if times):
        print(f"{name:26}{len(times):8d}{times[len(times) // 2]:8.2f}{times[-1]:8.2f}")
    largest = max(max(times) for times in found.values() if times)
    print(f"largest of {options.trials}: {largest:.2f} s; {wrong} wrong")
    return 0 if wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
