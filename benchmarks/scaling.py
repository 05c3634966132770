"""Steps per second of CartPole's Double DQN for more and more members, and on more and more devices.

    python benchmarks/scaling.py [--members 1 10 100 1000] [--devices 1] [--steps 640000] [--batch-size 64]

Prints what compiling took, what training took, and steps per second of all members together; with `--devices` above 1,
on a CPU, that many simulated ones.  Compiling is timed cold, and once more from the cache on disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

ONE = """
import sys, time
import jax, numpy as np
import rollax
from rollax.programs.plan import make_plan
from rollax.programs.machine import use_compile_cache
members, devices, steps, batch, evaluated = map(int, sys.argv[1:])
use_compile_cache()
jax.block_until_ready(jax.numpy.zeros(1))
experiment = rollax.make_experiment(
    "double", env="CartPole-v1", seeds=members, steps=steps, devices=devices, batch_size=batch, log_steps=steps,
    eval_steps=steps, learning_rate_steps=float(steps))
plan = make_plan(experiment)
running = plan.program.compile(plan.keys, plan.hparams)


def run():
    state, best = running.begin(plan.keys, plan.hparams)
    state = jax.block_until_ready(running.advance_to(state, plan.schedule.warm_up).state)
    began = time.perf_counter()
    state = jax.block_until_ready(running.advance_to(state, plan.schedule.total).state)
    return state, best, time.perf_counter() - began


run()
state, best, seconds = run()
taken = (plan.schedule.total - plan.schedule.warm_up) * plan.steps_per_iteration * members
line = f"{running.compile_seconds:.2f} {seconds:.3f} {taken / seconds:.0f}"
if evaluated:
    result, _ = running.evaluate(state, best)
    means = np.asarray(result.returns).mean(axis=1)
    line += f" {int((means >= 475).sum())}"
print(line)
"""


def measure(members: int, devices: int, steps: int, batch: int, evaluated: bool, cache: str) -> list[str]:
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    if devices > 1:
        flags = os.environ.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}"
    arguments = [str(number) for number in (members, devices, steps, batch, int(evaluated))]
    command = [sys.executable, "-c", ONE, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--members", type=int, nargs="*", default=[1, 10, 100, 1000])
    parser.add_argument("--devices", type=int, nargs="*", default=[1])
    parser.add_argument("--steps", type=int, default=640_000)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    print("members  devices  compile cold  from cache  training s  steps/s of all  solved")
    for members in options.members:
        for devices in options.devices:
            with tempfile.TemporaryDirectory() as cache:
                size = (members, devices, options.steps, options.batch_size)
                cold = measure(*size, evaluated=False, cache=cache)
                again, seconds, rate, *solved = measure(*size, evaluated=members <= 10, cache=cache)
            row = [f"{members:7}", f"{devices:7}", f"{cold[0]:>12}", f"{again:>10}", f"{seconds:>10}"]
            print("  ".join([*row, f"{int(rate):>14,}", *(f"{count} of {members}" for count in solved)]), flush=True)


if __name__ == "__main__":
    main()
