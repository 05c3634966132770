"""rollax beside its peers where programs are small: steps/s and seconds to compile, both sides in turns in one run.

    python benchmarks/peers.py [--work ppo dqn pqn sac "ppo of numbers"] [--seeds 1 256] [--rounds 9] [--rejax PYTHON]

`ppo` and `dqn` stand beside the same work as one hand-written jitted loop (`bare_ppo.py`, `bare_loop.py`), which does
in an iteration what the single-file libraries do.  `pqn`, and `sac` and `ppo` in Pendulum, stand beside rejax 0.1.3,
which needs gymnax 0.0.9 and therefore a Python of its own: `--rejax .venv-rejax/bin/python` after

    python -m venv .venv-rejax
    .venv-rejax/bin/pip install rejax==0.1.3 gymnax==0.0.9 jax==0.10.2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from bare_loop import FEW, make_bare_loop
from bare_ppo import EPOCHS, HIDDEN, LEARNING_RATE, LENGTH, MINIBATCHES, NUM_ENVS, TOTAL_STEPS, make_bare_ppo
from overhead import bare, in_blocks, in_turns, library, ready

Side = tuple[Callable[[int], None], float]  # runs so many iterations; the seconds that it took to compile
PQN = {"num_envs": 16, "num_steps": 128, "num_epochs": 5, "num_minibatches": 16}
SAC: dict[str, Any] = {
    "num_envs": 1,
    "batch_size": 256,
    "buffer_size": 16_384,
    "fill_buffer": 256,  # a sixteenth of its measurement, in which it does not learn
    "learning_rate": 1e-3,
    "polyak": 0.99,
}
NUMBERS: dict[str, Any] = {
    "num_envs": 64,
    "num_steps": 64,
    "num_epochs": 8,
    "num_minibatches": 16,
    "learning_rate": 3e-4,
}


class Contest(NamedTuple):
    """Two sides of the same work."""

    peer: str
    steps: int  # environment steps of an iteration
    iterations: int  # of one measurement, for one seed on a CPU
    on_gpu: int  # likewise, for any number of seeds on a GPU: a multiple of every inner loop's length
    theirs: Callable[[int, int, str], Side]  # of seeds, iterations and the Python that has rejax
    ours: Callable[[int], Side]  # of seeds


def our_ppo(seeds: int) -> Side:
    return ready(
        "ppo",
        seeds,
        num_envs=NUM_ENVS,
        rollout_length=LENGTH,
        epochs=EPOCHS,
        minibatches=MINIBATCHES,
        hidden=HIDDEN,
        learning_rate=LEARNING_RATE,
        learning_rate_end=0.0,
        learning_rate_steps=float(TOTAL_STEPS),
        max_grad_norm=0.5,
        clip_values=True,
        **in_blocks(NUM_ENVS * LENGTH),
    )


def our_dqn(seeds: int) -> Side:
    return library(seeds, FEW, target_step=FEW.target_step, target_period=FEW.target_period)


def our_pqn(seeds: int) -> Side:
    return ready(
        "pqn",
        seeds,
        num_envs=PQN["num_envs"],
        rollout_length=PQN["num_steps"],
        epochs=PQN["num_epochs"],
        minibatches=PQN["num_minibatches"],
        hidden=(64, 64),
        optimizer="adam",
        **in_blocks(PQN["num_envs"] * PQN["num_steps"]),
    )


def in_a_process(command: list[str]) -> Side:
    """A side with a Python of its own: it prints how long it compiled, and trains once for each line that it reads.

    How many iterations that are it knows from its command, whatever it is asked for afterwards.
    """
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    asked, answers = process.stdin, process.stdout
    assert asked is not None
    assert answers is not None
    seconds = json.loads(answers.readline())

    def run(iterations: int) -> None:
        asked.write("train\n")
        asked.flush()
        answers.readline()

    return run, seconds


def our_sac(seeds: int) -> Side:
    return ready(
        "sac",
        seeds,
        env="Pendulum-v1",
        num_envs=SAC["num_envs"],
        batch_size=SAC["batch_size"],
        capacity=SAC["buffer_size"],
        hidden=(64, 64),
        learning_rate=SAC["learning_rate"],
        target_step=1 - SAC["polyak"],
        warm_up_steps=SAC["fill_buffer"],
        **in_blocks(SAC["num_envs"]),
    )


def our_ppo_of_numbers(seeds: int) -> Side:
    return ready(
        "ppo",
        seeds,
        env="Pendulum-v1",
        num_envs=NUMBERS["num_envs"],
        rollout_length=NUMBERS["num_steps"],
        epochs=NUMBERS["num_epochs"],
        minibatches=NUMBERS["num_minibatches"],
        hidden=(64, 64),
        learning_rate=NUMBERS["learning_rate"],
        **in_blocks(NUMBERS["num_envs"] * NUMBERS["num_steps"]),
    )


def rejax(agent: str, env: str, steps: int, settings: dict[str, Any]) -> Callable[[int, int, str], Side]:
    """Rejax's agent of that name, in iterations of so many steps."""
    script = Path(__file__).parent / "rejax_side.py"

    def side(seeds: int, iterations: int, python: str) -> Side:
        return in_a_process(
            [python, str(script), agent, env, str(seeds), str(iterations * steps), json.dumps(settings)]
        )

    return side


def beside_rejax(
    agent: str,
    env: str,
    steps: int,
    settings: dict[str, Any],
    iterations: int,
    on_gpu: int,
    ours: Callable[[int], Side],
) -> Contest:
    return Contest("rejax", steps, iterations, on_gpu, rejax(agent, env, steps, settings), ours)


CONTESTS = {
    "ppo": Contest("hand-written", NUM_ENVS * LENGTH, 150, 192, lambda seeds, *_: bare(seeds, make_bare_ppo), our_ppo),
    "dqn": Contest(
        "hand-written", FEW.num_envs, 3_000, 6_400, lambda seeds, *_: bare(seeds, lambda: make_bare_loop(FEW)), our_dqn
    ),
    "pqn": beside_rejax("pqn", "CartPole-v1", PQN["num_envs"] * PQN["num_steps"], PQN, 40, 64, our_pqn),
    "sac": beside_rejax("sac", "Pendulum-v1", SAC["num_envs"], SAC, 4_096, 8_192, our_sac),
    "ppo of numbers": beside_rejax(
        "ppo", "Pendulum-v1", NUMBERS["num_envs"] * NUMBERS["num_steps"], NUMBERS, 20, 64, our_ppo_of_numbers
    ),
}


def measured(name: str, seeds: int, rounds: int, python: str) -> dict[str, Any]:
    """A row of the table: both sides' medians, and the ratio of rounds in which both ran in turn."""
    contest = CONTESTS[name]
    on_cpu = jax.default_backend() == "cpu"
    iterations = max(1, contest.iterations // max(1, seeds // 2)) if on_cpu else contest.on_gpu
    theirs, their_compile = contest.theirs(seeds, iterations, python)
    ours, our_compile = contest.ours(seeds)
    times = in_turns({"peer": theirs, "rollax": ours}, iterations, rounds)
    rates = {side: seeds * contest.steps / np.median(values) * 1e6 for side, values in times.items()}
    low, middle, high = np.quantile(times["peer"] / times["rollax"], [0.25, 0.5, 0.75])
    return {
        "work": name,
        "seeds": seeds,
        "peer": contest.peer,
        "peer steps/s": round(rates["peer"]),
        "rollax steps/s": round(rates["rollax"]),
        "times as fast": f"{middle:.2f} ({low:.2f} to {high:.2f})",
        "compile s": f"{their_compile:.1f}, {our_compile:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rejax", default="", help="the Python that has rejax; without it `pqn` is left out")
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    for name in options.work:
        if CONTESTS[name].peer == "rejax" and not options.rejax:
            print(f"{name} is left out: --rejax names no Python that has rejax", file=sys.stderr)
            continue
        for seeds in options.seeds:
            print(json.dumps(measured(name, seeds, options.rounds, options.rejax)), flush=True)


if __name__ == "__main__":
    main()
