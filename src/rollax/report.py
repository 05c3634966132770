"""Pictures of runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rollax.errors import ConfigError
from rollax.training.result import Result


def plot_runs(run_dirs: Sequence[Path | str], target: Path | str) -> Path:
    """Draws learning curves: each member thin, the mean of a run thick.  Returns the path of the picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    colours = [f"C{index}" for index in range(10)]
    for index, run_dir in enumerate(run_dirs):
        result = Result(Path(run_dir))
        curves, experiment = result.curves, result.experiment
        if not curves:
            raise ConfigError(f"{run_dir} has no rows in metrics.csv yet")
        steps, returns = curves["step"], curves["episode_return_mean"]
        label = f"{experiment.agent} on {experiment.env}"
        label = label if len(run_dirs) == 1 else f"{label} ({Path(run_dir).name})"
        for member in range(len(steps)):
            seen = ~np.isnan(returns[member])
            alone = len(run_dirs) == 1
            colour = colours[member % 10] if alone else colours[index % 10]
            axes.plot(steps[member][seen], returns[member][seen], color=colour, linewidth=0.8, alpha=0.6)
        seen = ~np.all(np.isnan(returns), axis=0)
        mean = np.nanmean(returns[:, seen], axis=0)
        colour = "black" if len(run_dirs) == 1 else colours[index % 10]
        axes.plot(
            np.nanmax(steps[:, seen], axis=0), mean, color=colour, linewidth=2.2, label=f"{label}, mean of {len(steps)}"
        )
    axes.set_xlabel("environment steps of each member")
    axes.set_ylabel("return of training episodes")
    axes.grid(alpha=0.25)
    axes.legend(loc="best", frameon=False)
    target = Path(target)
    aside = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        figure.savefig(aside, dpi=140)
        aside.replace(target)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the picture {target} cannot be written: {error}") from error
    return target
