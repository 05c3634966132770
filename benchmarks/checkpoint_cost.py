"""What checkpoints cost, side by side with runs without them; `guards.py` measures the look for numbers that are bad.

    python benchmarks/checkpoint_cost.py                      a small run, with the usual settings
    python benchmarks/checkpoint_cost.py --replay-gib 4       one with a replay of 4 GiB

Pairs of runs take turns, so that a machine whose speed moves treats both alike; each is timed over its chunks alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import rollax
from rollax.runs import saving
from rollax.runs.run import train

ROW_BYTES = 24  # of CartPole's replay


def experiment(gib: float, steps: int, seconds: float) -> Any:
    capacity = int(gib * 2**30 / ROW_BYTES) // 64 * 64 if gib else None
    sizes: dict[str, Any] = {"capacity": capacity} if capacity else {}
    return rollax.make_experiment(
        "double", steps=steps, eval_steps=steps, log_steps=steps // 10 // 64 * 64, checkpoint_seconds=seconds, **sizes
    )


def seconds_of(run: Any) -> tuple[float, int]:
    """Seconds of a run from its first chunk to its last, without the checkpoint at the end, and its checkpoints."""
    marks: list[float] = []
    costs: list[float] = []
    count: list[int] = []
    advance, save = rollax_running().advance_to, saving.Saver.save

    def timed(self: Any, state: Any, stop: int) -> Any:
        marks.append(time.perf_counter())
        chunk = advance(self, state, stop)
        marks.append(time.perf_counter())
        return chunk

    def counted(self: Any, step: int, tree: Any, meta: Any, *, wait: bool) -> None:
        if wait:  # the last, whose cost every run has
            self.wait()
            costs.extend([self.cost] * bool(self.saved_step))
        else:
            count.append(step)
        save(self, step, tree, meta, wait=wait)

    with tempfile.TemporaryDirectory() as folder:
        rollax_running().advance_to, saving.Saver.save = timed, counted
        try:
            train(run, Path(folder) / "run", quiet=True)
        finally:
            rollax_running().advance_to, saving.Saver.save = advance, save
    for cost in costs:
        pause = max(run.record.checkpoint_seconds, cost / saving.SHARE)
        print(f"  by its own count a checkpoint cost {cost:.2f} s; the next waits {pause:.0f} s")
    return marks[-1] - marks[2], len(count)  # without the warm-up


def rollax_running() -> Any:
    from rollax.programs.jit import JitRunning

    return JitRunning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replay-gib", type=float, default=0.0, help="size of the replay; 0 takes the preset's")
    parser.add_argument("--steps", type=int, default=12_000_000, help="steps of each run")
    parser.add_argument("--pairs", type=int, default=3, help="how often each is run")
    parser.add_argument("--seconds", type=float, default=30.0, help="checkpoint_seconds")
    options = parser.parse_args()
    often, never = (experiment(options.replay_gib, options.steps, value) for value in (options.seconds, 1e9))
    pairs = []
    for number in range(options.pairs):
        order = (often, never) if number % 2 else (never, often)  # whoever is first may meet a machine that is slower
        found = {one is often: seconds_of(one) for one in order}
        (with_them, count), (without, _) = found[True], found[False]
        pairs.append(100 * (with_them / without - 1))
        print(f"checkpoints: {with_them:.2f} s with {count}, {without:.2f} s without: {pairs[-1]:+.2f} %", flush=True)
    print(f"checkpoints cost {statistics.median(pairs):+.2f} % (median of {len(pairs)})")


if __name__ == "__main__":
    main()
