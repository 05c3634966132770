"""What does a replay cost, and does a larger one cost more?  Uniform beside prioritised, at 10 k, 100 k and 1 M places.

Each cost is that of a step in a scan inside one compiled program, the replay in the carry, alone and for ten members
under vmap; every output is used.  `sample` is drawing a batch and, for the prioritised one, giving it new priorities
as well.  Beside it, what the program needs beyond the memory of its state.

    python benchmarks/replay_cost.py [--batches 32 128 512]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.replay import Replay
from rollax.memory.uniform import UniformReplay
from rollax.programs.program import nbytes
from rollax.tools.bench.replay_work import SPEC, full, working

CAPACITIES = (10_000, 100_000, 1_000_000)
STEPS, ROUNDS = 2_000, 7


def shared(leaf: Any) -> bool:
    return leaf.ndim == 0 and jnp.issubdtype(leaf.dtype, jnp.integer)


def measure(replay: Replay, batch_size: int, members: int, state: Any) -> tuple[float, float]:
    """Microseconds of a step of one member, and bytes beyond the state as a share of it."""
    run, keys = working(replay, batch_size, STEPS), jax.random.key(0)
    state = jax.tree.map(jnp.copy, state)
    if members > 1:
        axes: Any = jax.tree.map(lambda leaf: None if shared(leaf) else 0, state)
        run = jax.vmap(run, in_axes=(axes, 0), out_axes=(axes, 0))
        state = jax.tree.map(
            lambda leaf: leaf if shared(leaf) else jnp.broadcast_to(leaf, (members, *leaf.shape)) + 0, state
        )
        keys = jax.random.split(keys, members)
    compiled = jax.jit(run, donate_argnums=0).lower(state, keys).compile()
    analysis: Any = compiled.memory_analysis()
    beyond = analysis.temp_size_in_bytes / nbytes(state)
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        state, total = compiled(state, keys)
        jax.block_until_ready(total)
        taken.append((time.perf_counter() - began) / STEPS / members * 1e6)
    return float(np.min(taken)), beyond


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", nargs="*", type=int, default=[32, 128, 512])
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; {SPEC.num_envs} environments; us for one member")
    columns = "".join(f"{f'{capacity // 1000} k':>9}" for capacity in CAPACITIES)
    print(f"{'members':>7} {'work':>11} {'replay':>12} {columns} {'1 M / 10 k':>11} {'beyond':>7}")
    for members in (1, 10):
        for kind in (UniformReplay, PrioritizedReplay):
            replays = [kind(capacity) for capacity in CAPACITIES]
            states = [full(replay) for replay in replays]
            added = [measure(replay, 0, members, state) for replay, state in zip(replays, states, strict=True)]
            show(members, "add", kind, added)
            for batch_size in options.batches:
                both = [measure(r, batch_size, members, state) for r, state in zip(replays, states, strict=True)]
                alone = [(cost - add, beyond) for (cost, beyond), (add, _) in zip(both, added, strict=True)]
                show(members, f"sample {batch_size}", kind, alone)


def show(members: int, work: str, kind: type, costs: list[tuple[float, float]]) -> None:
    name = "uniform" if kind is UniformReplay else "prioritised"
    columns = "".join(f"{cost:9.2f}" for cost, _ in costs)
    ratio = costs[-1][0] / costs[0][0]
    print(f"{members:7d} {work:>11} {name:>12} {columns} {ratio:11.2f} {costs[-1][1]:7.2%}", flush=True)


if __name__ == "__main__":
    main()
