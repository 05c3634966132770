"""Seconds until a run's programs are compiled, with an empty cache: every agent on CartPole-v1, `sac` on Pendulum-v1.

    python benchmarks/compile_times.py [--agents ppo double ...] [--env NAME] [--repeats 3]

Printed are tracing and compiling all that a run needs before its first step, and how long the first of the agent's runs
in this process took to plan.  Nothing is kept on disk, so every repeat compiles anew.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax

from rollax.agents.names import AGENTS
from rollax.experiment.experiment import make_experiment
from rollax.programs.plan import make_plan


def seconds(agent: str, env: str) -> tuple[float, float]:
    """Of planning a run, and of compiling it."""
    jax.clear_caches()
    began = time.perf_counter()
    plan = make_plan(make_experiment(agent, env=env, devices=1))
    planned = time.perf_counter()
    plan.program.compile(plan.keys, plan.hparams)
    return planned - began, time.perf_counter() - planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--env", default="", help="for all agents; presets apply as usual")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; seconds: planning, compiling (least to most)")
    for agent in options.agents:
        env = options.env or ("Pendulum-v1" if agent == "sac" else "CartPole-v1")
        runs = [seconds(agent, env) for _ in range(options.repeats)]
        planning, compiling = zip(*runs, strict=True)
        spread = f"({min(compiling):.1f} to {max(compiling):.1f})"
        print(f"{agent:14} {statistics.median(planning):5.1f} {statistics.median(compiling):6.1f} {spread}", flush=True)


if __name__ == "__main__":
    main()
