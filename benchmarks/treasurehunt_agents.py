"""How the treasure hunt's three modes grow with the number of agents, each agent with a learner of its own.

Prints milliseconds of an epoch at epsilon 0.37 for each number of agents and mode, and how many times as fast as
PyTorch each is; every number of agents is measured in all modes one after the other.

    python benchmarks/treasurehunt_agents.py [--agents 1 5 20 50] [--epochs 40] [--modes pytorch jax_parallel]
"""

from __future__ import annotations

import argparse

from rollax.experiment.experiment import make_experiment
from rollax.runs.console import table
from rollax.tools.comparison.measure import SUFFIX, Worker
from rollax.tools.comparison.settings import TYPICAL_EPSILON

WARM_UP = 8  # epochs: all modes learn by then


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 5, 20, 50])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--modes", nargs="+", default=list(SUFFIX), choices=list(SUFFIX))
    parser.add_argument("--obs-timing", default="sequential", choices=["sequential", "simultaneous"])
    options = parser.parse_args()
    rows = []
    for agents in options.agents:
        side = 10 if agents <= 20 else 12  # fifty players fill most of a smaller board
        experiment = make_experiment(
            "irainbow",
            env="TreasureHunt-v0",
            agents=agents,
            height=side,
            width=side,
            obs_timing=options.obs_timing,
        )
        spent = {}
        for mode in options.modes:
            with Worker(mode, experiment) as worker:
                worker.ask("run", epochs=WARM_UP, epsilon=TYPICAL_EPSILON)
                timed = worker.ask("run", epochs=options.epochs, epsilon=TYPICAL_EPSILON)
            spent[mode] = timed["seconds"] / options.epochs
        base = spent.get("pytorch", float("nan"))
        cells = [f"{1e3 * seconds:.1f} ({base / seconds:.2f} x)" for seconds in spent.values()]
        rows.append([str(agents), f"{side} x {side}", *cells])
        print(f"{agents} agents: {', '.join(cells)}", flush=True)
    print(table(["agents", "board", *options.modes], rows))


if __name__ == "__main__":
    main()
