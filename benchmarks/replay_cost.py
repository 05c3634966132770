"""Does a larger replay cost more?  Microseconds to add and to sample at 10 thousand and a million places.

Each cost is that of a scan of many steps inside one compiled program, the replay in the carry, alone and
for ten members under vmap; every output is used.  Beside it, what the program needs beyond the ring.

    python benchmarks/replay_cost.py
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.replay import ReplayState, UniformReplay
from rollax.training.jax_program import nbytes
from rollax.types import Array, EnvSpec, Observation, Transition

SPEC = EnvSpec(Observation(jax.ShapeDtypeStruct((4,), jnp.float32)), 2, 8, 1, truncation_interval=500)
STEPS, ROUNDS = 2_000, 9


def rollout(number: Array) -> Transition:
    shape = (SPEC.rollout_length, SPEC.num_envs)
    obs = Observation(jnp.full((*shape, 4), number, jnp.float32) + jnp.arange(4))
    never = jnp.zeros(shape, bool)
    return Transition(
        obs, jnp.full(shape, number % 2, jnp.int32), jnp.full(shape, number, jnp.float32), never, never, obs
    )


def adding(replay: UniformReplay, batch_size: int, state: ReplayState, key: Array) -> tuple[ReplayState, Array]:
    def step(state: ReplayState, number: Array) -> tuple[ReplayState, None]:
        return replay.add(state, rollout(number), SPEC), None

    state, _ = jax.lax.scan(step, state, jnp.arange(STEPS))
    return state, state.steps[0, 0, 0]


def adding_and_sampling(
    replay: UniformReplay, batch_size: int, state: ReplayState, key: Array
) -> tuple[ReplayState, Array]:
    def step(state: ReplayState, number: Array) -> tuple[ReplayState, Array]:
        state = replay.add(state, rollout(number), SPEC)
        batch = replay.sample(state, jax.random.fold_in(key, number), batch_size, 0.99, SPEC)
        return state, jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(batch)]).sum()

    state, sums = jax.lax.scan(step, state, jnp.arange(STEPS))
    return state, jnp.sum(sums)


def measure(function: Any, batch_size: int, capacity: int, members: int) -> tuple[float, float]:
    """Microseconds of a step of one member, and bytes beyond the ring as a share of it."""
    replay = UniformReplay(capacity)
    state = jax.jit(lambda: replay.init(SPEC))()
    state = state._replace(added=jnp.int32(capacity // SPEC.num_envs))  # full, so that sampling reaches everywhere

    def run(state: ReplayState, keys: Array) -> tuple[ReplayState, Array]:
        return function(replay, batch_size, state, keys)

    keys = jax.random.key(0)
    if members > 1:
        axes: Any = jax.tree.map(lambda leaf: 0 if leaf.ndim else None, state)
        run = jax.vmap(run, in_axes=(axes, 0), out_axes=(axes, 0))
        widened = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (members, *leaf.shape)) + 0, state)
        state, keys = widened._replace(added=state.added), jax.random.split(keys, members)
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
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; {SPEC.num_envs} environments")
    print(f"{'members':>7} {'work':>12} {'10 k: us':>10} {'1 M: us':>10} {'ratio':>6} {'beyond the ring, 1 M':>21}")
    for members in (1, 10):
        add = [measure(adding, 0, capacity, members) for capacity in (10_000, 1_000_000)]
        show(members, "add", [cost for cost, _ in add], add[1][1])
        for batch_size in (32, 128, 512):
            both = [measure(adding_and_sampling, batch_size, capacity, members) for capacity in (10_000, 1_000_000)]
            alone = [cost - added for (cost, _), (added, _) in zip(both, add, strict=True)]
            show(members, f"sample {batch_size}", alone, both[1][1])


def show(members: int, work: str, costs: list[float], beyond: float) -> None:
    small, large = costs
    print(f"{members:7d} {work:>12} {small:10.2f} {large:10.2f} {large / small:6.2f} {beyond:21.2%}")


if __name__ == "__main__":
    main()
