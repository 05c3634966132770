"""What the look for numbers that are not finite costs: compiled chunks with it and without it, in turns in one process.

    python benchmarks/guards.py [--rounds 12]

Without it nothing is examined, and a learner is never held back: what an iteration would be if nobody looked.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import optax
from overhead import in_turns, ready

from rollax.agents import ppo, q_learner
from rollax.agents.base import Descent, make_optimizer
from rollax.programs.loop import Loop

WORK: dict[str, tuple[str, int, int, dict[str, Any]]] = {  # agent, seeds, iterations of one measurement, settings
    "double, one seed": ("double", 1, 4_000, {}),
    "double, ten seeds on one device": ("double", 10, 500, {}),
    "double, batches of 512": ("double", 1, 1_500, {"batch_size": 512}),
    "rainbow, one seed": ("rainbow", 1, 600, {}),
    "ppo, one seed": ("ppo", 1, 40, {}),
    "pqn, one seed": ("pqn", 1, 80, {}),
}


def unexamined(self: Loop, state: Any, *_: Any) -> Any:
    """The health as it was: nothing is looked at."""
    return state.health


def unguarded(self: Loop, well: Any, after: Any, before: Any) -> Any:
    """The new learner, whatever it is."""
    return after


def unchecked(name: Any, hparams: Any, env_steps: Any, grads: Any, opt_state: Any, params: Any) -> Descent:
    """A step down the gradient, whatever that is."""
    updates, opt_state = make_optimizer(name, hparams, env_steps).update(grads, opt_state, params)
    return Descent(optax.apply_updates(params, updates), opt_state, optax.tree.norm(grads))


def side(name: str, *, guarded: bool) -> Any:
    """`run(iterations)` of that work."""
    agent, seeds, _, settings = WORK[name]
    with ExitStack() as stack:
        if not guarded:
            stack.enter_context(patch.multiple(Loop, examine=unexamined, last_well=unguarded))
            for module in (q_learner, ppo):
                stack.enter_context(patch.object(module, "apply_gradients", unchecked))
        return ready(agent, seeds, preset="auto", devices=1, steps=2**30, **settings)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; us of an iteration", flush=True)
    longer = 1 if jax.default_backend() == "cpu" else 5
    for name, (*_, iterations, _) in WORK.items():
        sides = {"with": side(name, guarded=True), "without": side(name, guarded=False)}
        times = in_turns(sides, iterations * longer, rounds)
        low, middle, high = np.quantile(times["with"] / times["without"], [0.25, 0.5, 0.75])
        medians = ", ".join(f"{what} {np.median(values):.1f}" for what, values in times.items())
        print(f"{name:32} {medians}: {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
