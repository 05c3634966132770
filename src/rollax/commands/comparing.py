"""The command that runs one experiment in PyTorch and in JAX: `compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from rollax.commands.flags import parse
from rollax.errors import demand
from rollax.settings import COUNT, COUNT_OR_NONE, setting

Mode = Literal["pytorch", "jax_sequential", "jax_parallel"]


@dataclass(frozen=True)
class Compare:
    what: Annotated[Literal["treasurehunt"], tyro.conf.Positional] = setting(help="The experiment that all modes run.")
    epochs: int = setting(
        1_000, "Number of epochs of the run from the beginning, whose returns are shown.", limit=COUNT_OR_NONE
    )
    agents: int = setting(5, "Number of players, each with a learner of its own.", limit=COUNT)
    profile: Literal["corrected", "reference"] = setting(
        "corrected", "Whether the learner is the corrected one or the reference's with all its quirks."
    )
    obs_timing: Literal["sequential", "simultaneous"] = setting(
        "sequential", "Whether players decide in turn, after others' moves, or all at once."
    )
    seed: int = setting(0, "The first random seed.", limit=COUNT_OR_NONE)
    seeds: int = setting(1, "Number of runs from the beginning, in each mode.", limit=COUNT)
    timed_epochs: int = setting(
        200, "Number of epochs of each timing at a fixed epsilon; 0 times none.", limit=COUNT_OR_NONE
    )
    repeats: int = setting(3, "Number of repeats of each timing.", limit=COUNT)
    modes: tuple[Mode, ...] = setting(("pytorch", "jax_sequential", "jax_parallel"), "The modes that run.")
    act_levels: int = setting(32, "Number of quantile levels that agents act by, the same in every mode.", limit=COUNT)
    torch_device: Literal["cpu", "cuda"] = setting("cpu", "Where PyTorch's networks are.")
    out: str = setting("", "The folder for bench.json and its picture; by default a new one below runs/.")


def compare_command(arguments: list[str]) -> int:
    options = parse(
        Compare,
        arguments,
        "rollax compare",
        "One experiment in PyTorch, in JAX one agent after the other, and in JAX all at once, measured side by side.",
    )
    if "pytorch" in options.modes:
        demand("torch", "the mode pytorch", ", or leave it out of --modes")
    from rollax.experiment.experiment import make_experiment
    from rollax.runs.folder import unused_folder
    from rollax.tools.comparison.measure import Protocol, compare

    preset = "irainbow/TreasureHunt-v0" + ("/reference" if options.profile == "reference" else "")
    experiment = make_experiment(
        "irainbow",
        env="TreasureHunt-v0",
        preset=preset,
        agents=options.agents,
        obs_timing=options.obs_timing,
        act_levels=options.act_levels,
        seed=options.seed,
    )
    protocol = Protocol(options.epochs, options.timed_epochs, options.repeats, options.seeds)
    folder = Path(options.out) if options.out else unused_folder("compare_treasurehunt")
    compare(experiment, folder, protocol, options.modes, options.torch_device, lambda line: print(line, flush=True))
    return 0
