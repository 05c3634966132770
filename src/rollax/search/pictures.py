"""What a search has seen: scores as they came, what mattered, and where the good settings lie."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from rollax.search.space import Dimension, Space


def plot_study(study: optuna.Study, space: Space, target: Path) -> Path:
    """One picture: the history, the importance of each dimension, and parallel coordinates."""
    from matplotlib.figure import Figure

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    draw_history(figure.add_subplot(grid[0, 0]), trials)
    draw_importances(figure.add_subplot(grid[0, 1]), importances(study, space))
    draw_coordinates(figure, figure.add_subplot(grid[1, :]), trials, space)
    figure.savefig(target, dpi=120)
    return target


def score_of(trial: FrozenTrial) -> float:
    """A completed trial's score; of a pruned one its last evaluation."""
    if trial.value is not None:
        return trial.value
    return trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else math.nan


def importances(study: optuna.Study, space: Space) -> dict[str, float]:
    """The share of each dimension in how good a setting is; empty while too few trials have completed."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.value for trial in complete}) < 2 or len(complete) < 4:
        return {}
    found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {dimension.name: found.get(dimension.name, 0.0) for dimension in space.dimensions}


def draw_history(axes, trials: list[FrozenTrial]) -> None:
    numbers, scores = [trial.number for trial in trials], [score_of(trial) for trial in trials]
    pruned = [trial.state == TrialState.PRUNED for trial in trials]
    axes.scatter(numbers, scores, c=["0.7" if cut else "C0" for cut in pruned], s=24)
    if trials:
        best = np.maximum.accumulate([-math.inf if cut else score for cut, score in zip(pruned, scores, strict=True)])
        seen = np.isfinite(best)
        axes.step(np.array(numbers)[seen], best[seen], where="post", color="C3")
    axes.set(xlabel="trial", ylabel="score", title="scores (grey: pruned) and the best so far")


def draw_importances(axes, shares: dict[str, float]) -> None:
    names = sorted(shares, key=lambda name: shares[name])
    axes.barh(names, [shares[name] for name in names], color="C0")
    axes.set(title="importance" if shares else "importance: too few trials have completed")


def draw_coordinates(figure, axes, trials: list[FrozenTrial], space: Space) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scores = np.array([score_of(trial) for trial in trials])
    if not len(scores):
        return
    colours = ScalarMappable(Normalize(np.nanmin(scores), max(np.nanmax(scores), np.nanmin(scores) + 1e-9)), "viridis")
    columns = range(len(space.dimensions))
    for trial, score in sorted(zip(trials, scores, strict=True), key=lambda pair: pair[1]):
        heights = [height(dimension, trial.params[dimension.name]) for dimension in space.dimensions]
        axes.plot(columns, heights, color=colours.to_rgba(score), linewidth=1.4, alpha=0.8)
    axes.set_xticks(list(columns), [label(dimension) for dimension in space.dimensions])
    axes.set(yticks=[], title="settings, coloured by score", ylim=(-0.03, 1.03))
    axes.grid(axis="x", alpha=0.4)
    figure.colorbar(colours, ax=axes, pad=0.01)


def height(dimension: Dimension, value) -> float:
    """Where a value lies in its range, from 0 to 1."""
    if dimension.kind == "choice":
        return dimension.options.index(value) / max(1, len(dimension.options) - 1)
    if dimension.kind == "log":
        return math.log(value / dimension.low) / math.log(dimension.high / dimension.low)
    return (value - dimension.low) / (dimension.high - dimension.low)


def label(dimension: Dimension) -> str:
    if dimension.kind == "choice":
        return f"{dimension.name}\n{', '.join(map(str, dimension.options))}"
    return f"{dimension.name}\n{dimension.low:g} to {dimension.high:g}{' (log)' if dimension.kind == 'log' else ''}"
