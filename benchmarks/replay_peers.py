"""rollax's replay beside flashbax's: microseconds of adding a step of eight environments, and of drawing a batch.

Both are asked for the same in a scan inside one compiled program, with the memory in the carry, and every output is
used.  A step holds four float32 of observation, an action, a reward and an end; a batch holds pairs of a step and its
successor.  Rounds of the two take turns.  Drawing is the time of a step that adds and draws, less that of one that only
adds; of a prioritised memory it includes new priorities.  rollax also knows true last observations after a time limit
and n-step sums, and weighs by importance; flashbax leaves these to its user.

    pip install --no-deps flashbax==0.1.3
    python benchmarks/replay_peers.py [--capacities 10000 1000000] [--batches 32 128]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import flashbax  # ty: ignore[import-not-found]
import jax
import jax.numpy as jnp
import numpy as np

from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.uniform import UniformReplay
from rollax.programs.machine import device_name
from rollax.tools.bench.replay_work import SPEC, full, working

KINDS = ("uniform", "prioritised")


class Work(NamedTuple):
    """What is measured: a program from a memory and a key, and a full memory."""

    run: Callable[[Any, Any], tuple[Any, Any]]
    state: Any


def rollax_work(kind: str, capacity: int, batch: int, steps: int) -> Work:
    replay = (UniformReplay if kind == "uniform" else PrioritizedReplay)(capacity)
    return Work(working(replay, batch, steps), full(replay))


def flashbax_work(kind: str, capacity: int, batch: int, steps: int) -> Work:
    sizes = {"max_length": capacity, "min_length": 64, "sample_batch_size": max(batch, 1)}
    if kind == "uniform":
        buffer = flashbax.make_flat_buffer(**sizes, add_batch_size=SPEC.num_envs)
    else:
        where = {"priority_exponent": 0.5, "device": jax.default_backend()}
        buffer = flashbax.make_prioritised_flat_buffer(**sizes, add_batch_size=SPEC.num_envs, **where)

    def rows(number: Any) -> dict[str, Any]:
        """What the environments have done in a step."""
        shape = (SPEC.num_envs,)
        return {
            "obs": jnp.full((*shape, 4), number, jnp.float32) + jnp.arange(4),
            "action": jnp.full(shape, number % 2, jnp.int32),
            "reward": jnp.full(shape, number, jnp.float32),
            "done": jnp.zeros(shape, bool),
        }

    def step(state: Any, inputs: tuple[Any, Any]) -> tuple[Any, Any]:
        number, key = inputs
        state = buffer.add(state, rows(number))
        if not batch:
            return state, jnp.float32(0)
        sample = buffer.sample(state, key)
        total = sum(jnp.sum(leaf, dtype=jnp.float32) for leaf in jax.tree.leaves(sample.experience))
        if kind == "prioritised":
            total += jnp.sum(sample.probabilities)
            priority = jnp.abs(sample.experience.first["obs"][:, 0] % 7) + 1e-6
            state = buffer.set_priorities(state, sample.indices, priority)
        return state, jnp.float32(total)

    def run(state: Any, key: Any) -> tuple[Any, Any]:
        state, totals = jax.lax.scan(step, state, (jnp.arange(steps), jax.random.split(key, steps)))
        return state, jnp.sum(totals)

    def filled(state: Any) -> Any:
        return jax.lax.fori_loop(
            0, capacity // SPEC.num_envs, lambda number, state: buffer.add(state, rows(number)), state
        )

    empty = buffer.init(jax.tree.map(lambda leaf: leaf[0], rows(0)))
    return Work(run, jax.jit(filled, donate_argnums=0)(empty))


MAKERS: dict[str, Callable[..., Work]] = {"rollax": rollax_work, "flashbax": flashbax_work}


def together(works: dict[str, Work], steps: int, rounds: int) -> dict[str, float]:
    """Microseconds of a step of each, the least of rounds that take turns."""
    compiled = {
        name: jax.jit(work.run, donate_argnums=0).lower(work.state, jax.random.key(0)).compile()
        for name, work in works.items()
    }
    states = {name: work.state for name, work in works.items()}
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name, program in compiled.items():
            began = time.perf_counter()
            states[name], total = program(states[name], jax.random.key(number))
            jax.block_until_ready(total)
            taken[name].append((time.perf_counter() - began) / steps * 1e6)
    return {name: float(np.min(seconds)) for name, seconds in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capacities", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--batches", nargs="+", type=int, default=[32, 128])
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{device_name()}, jax {jax.__version__}, flashbax {version('flashbax')}; microseconds")
    print("| replay | capacity | work | rollax | flashbax |\n| --- | ---: | --- | ---: | ---: |")
    for kind in KINDS:
        for capacity in options.capacities:
            cost = partial(costs, kind, capacity, options)
            added = cost(0)
            print(row(kind, capacity, "add", added), flush=True)
            for batch in options.batches:
                both = cost(batch)
                drawn = {side: both[side] - added[side] for side in MAKERS}
                print(row(kind, capacity, f"sample {batch}", drawn), flush=True)


def costs(kind: str, capacity: int, options: Any, batch: int) -> dict[str, float]:
    """Microseconds of each side for a step with that batch, or for adding alone with none."""
    works = {side: make(kind, capacity, batch, options.steps) for side, make in MAKERS.items()}
    return together(works, options.steps, options.rounds)


def row(kind: str, capacity: int, work: str, cost: dict[str, float]) -> str:
    return f"| {kind} | {capacity:,} | {work} | " + " | ".join(f"{cost[side]:.2f}" for side in MAKERS) + " |"


if __name__ == "__main__":
    main()
