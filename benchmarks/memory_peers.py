"""Recurrent `pqn` and `ppo` beside memorax 1.0.1: steps/s and seconds to compile, both sides in turns in one run.

    python benchmarks/memory_peers.py --memorax .venv-memorax/bin/python [--work pqn ppo] [--rounds 5]

MemoryChain of length 64, one seed, a dense layer of 64 units and a GRU of 64, 32 environments x 128 steps, 4 epochs of
8 minibatches.  Memorax needs gymnax 0.0.9 and therefore a Python of its own:

    python -m venv .venv-memorax
    .venv-memorax/bin/pip install memorax==1.0.1 jax==0.10.2
    .venv-memorax/bin/pip install gymnax==0.0.9
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from overhead import in_blocks, in_turns, ready
from peers import Side, in_a_process

WORK: dict[str, Any] = {
    "memory_length": 64,
    "num_envs": 32,
    "rollout_length": 128,
    "epochs": 4,
    "minibatches": 8,
    "hidden": 64,
    "units": 64,
}
STEPS = WORK["num_envs"] * WORK["rollout_length"]  # of an iteration


def ours(agent: str) -> Side:
    own = {name: value for name, value in WORK.items() if name != "hidden"}
    return ready(
        agent,
        1,
        env="MemoryChain-bsuite",
        recurrence="gru",
        hidden=(WORK["hidden"],),
        learning_rate=1e-3,
        max_grad_norm=1.0,
        trace_lambda=0.95,
        **own,
        **in_blocks(STEPS),
    )


def theirs(agent: str, iterations: int, python: str) -> Side:
    script = Path(__file__).parent / "memorax_side.py"
    return in_a_process([python, str(script), agent, str(iterations), json.dumps(WORK)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=("pqn", "ppo"), default=["pqn", "ppo"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memorax", required=True, help="the Python that has memorax")
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    iterations = 10 if jax.default_backend() == "cpu" else 64
    for agent in options.work:
        run, compiled = ours(agent)
        other, other_compiled = theirs(agent, iterations, options.memorax)
        times = in_turns({"memorax": other, "rollax": run}, iterations, options.rounds)
        low, middle, high = np.quantile(times["memorax"] / times["rollax"], [0.25, 0.5, 0.75])
        rates = ", ".join(f"{side} {STEPS / np.median(values) * 1e6:,.0f}" for side, values in times.items())
        print(
            f"{agent}: steps/s {rates}; {middle:.2f} times as fast ({low:.2f} to {high:.2f}); "
            f"compiled in {other_compiled:.1f} and {compiled:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
