"""What the library costs over a bare hand-written loop: microseconds of an iteration and seconds to compile.

The work: 64 environments, one step and one update of batch 512 in each iteration, a network of 64 and
128 units, CartPole; for 1 and for 10 seeds.  Both programs run in turns in one process, so that
whatever else the machine does meets both.  Then the library alone in the set-up of another whole-loop
DQN: 10 environments, batch 128, one update for 10 steps.

    python benchmarks/overhead.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bare_loop import FEW, MANY, Work, make_bare_loop

from rollax.experiment.experiment import make_experiment
from rollax.programs.plan import make_plan

WARM_UP = 32  # iterations


def library(seeds: int, work: Work, **more: Any):
    """Returns `run(iterations)`, and the seconds until it could start: three programs, and one more behind them."""
    return ready(
        "double" if work.double else "dqn",
        seeds,
        num_envs=work.num_envs,
        batch_size=work.batch,
        hidden=work.hidden,
        capacity=work.capacity,
        warm_up_steps=WARM_UP * work.num_envs,
        **in_blocks(work.num_envs),
        **more,
    )


def in_blocks(steps: int) -> dict[str, int]:
    """One row and one evaluation, far away, so that the inner loop is as long as may be; of steps an iteration."""
    return dict.fromkeys(("steps", "log_steps", "eval_steps"), steps * 2**18)


def ready(agent: str, seeds: int, **settings: Any):
    """The same for any agent, without a preset unless one is named."""
    plan = make_plan(make_experiment(agent, seeds=seeds, **{"preset": "none", **settings}))
    running = plan.program.compile(plan.keys, plan.hparams)
    state, _ = running.begin(plan.keys, plan.hparams)
    reached = max(plan.program.block, plan.schedule.warm_up)
    state = running.advance_to(state, reached).state

    def run(iterations: int) -> None:
        nonlocal state, reached
        assert iterations % plan.program.block == 0
        reached += iterations
        state = running.advance_to(state, reached).state

    return run, running.compile_seconds


def bare(seeds: int, make: Callable[[], Any] = make_bare_loop):
    """Likewise: two programs."""
    begin, loop = make()
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    # Not vmapped: batches of LAPACK's decompositions may stand still for ever on two cores.
    init = (lambda keys: jax.lax.map(begin, keys)) if seeds > 1 else begin
    if seeds > 1:
        loop = jax.vmap(loop, (0, None))
    began = time.perf_counter()
    state = jax.jit(init)(keys if seeds > 1 else keys[0])
    compiled = jax.jit(loop, donate_argnums=0).lower(state, jnp.int32(1)).compile()
    seconds = time.perf_counter() - began

    def run(iterations: int) -> None:
        nonlocal state
        state = jax.block_until_ready(compiled(state, jnp.int32(iterations)))

    return run, seconds


def in_turns(contenders: dict[str, Callable[[int], None]], iterations: int, rounds: int) -> dict[str, np.ndarray]:
    """Microseconds of an iteration, `[rounds]` for each contender."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run(iterations)
    for _ in range(rounds):
        for name, run in contenders.items():
            began = time.perf_counter()
            run(iterations)
            times[name].append((time.perf_counter() - began) / iterations * 1e6)
    return {name: np.array(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"{'seeds':>5} {'program':>10} {'us/iteration':>13} {'compile s':>10} {'ratio to bare':>14}")
    longer = 1 if jax.default_backend() == "cpu" else 20  # calls that last: each one's own cost is not what is asked
    for seeds, iterations in ((1, 400 * longer), (10, 64 * longer)):
        ours, ours_compile = library(seeds, MANY)
        yardstick, bare_compile = bare(seeds)
        times = in_turns({"bare": yardstick, "rollax": ours}, iterations, rounds)
        ratio = np.median(times["rollax"] / times["bare"])
        print(f"{seeds:5d} {'bare':>10} {np.median(times['bare']):13.0f} {bare_compile:10.1f} {1:14.2f}")
        print(f"{seeds:5d} {'rollax':>10} {np.median(times['rollax']):13.0f} {ours_compile:10.1f} {ratio:14.2f}")
    for seeds in (1, 10):
        run, _ = library(seeds, FEW._replace(double=True))
        times = in_turns({"rollax": run}, 1_024, rounds)["rollax"]
        rate = seeds * 10 / np.median(times) * 1e6
        print(
            f"{seeds} seeds, 10 environments, batch 128, network 120-84, one update for 10 steps: {rate:,.0f} steps/s"
        )


if __name__ == "__main__":
    main()
