"""The DQN family under the preset `controlled`, in which only the one idea of each agent differs.

Trains every agent in every environment with ten seeds, and writes a table and a figure: the interquartile mean of the
seeds' last evaluations, with its 95 % interval, and that of the mean over all evaluations of a run, which also says how
soon an agent learns.  What is trained already in the folder is not trained again.

    python benchmarks/controlled.py [--envs CartPole-v1 ...] [--agents dqn ...] [--seeds 10] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rollax
from rollax.agents.dqn import FAMILY
from rollax.errors import RollaxError
from rollax.experiment.presets.controlled import explores_by_noise
from rollax.programs.machine import use_all_cores, use_compile_cache
from rollax.rules.aggregates import Interval, bootstrap

# By the environment, the budget of each seed.
BUDGETS = {"CartPole-v1": 200_000, "Acrobot-v1": 200_000, "Breakout-MinAtar": 1_000_000, "Asterix-MinAtar": 1_000_000}
EXPLORING = 0.1  # the share of the budget over which random actions become few


class Score(NamedTuple):
    """How an agent did in an environment."""

    final: Interval  # of the last evaluations
    whole: Interval  # of the mean over all evaluations
    seeds: int


def experiment_of(agent: str, env: str, seeds: int, steps: int, **values: Any) -> rollax.Experiment:
    """The run of an agent in an environment."""
    if not explores_by_noise(agent):
        values["epsilon_steps"] = EXPLORING * steps
    return rollax.make_experiment(
        agent, env=env, preset="controlled", seeds=seeds, steps=steps, importance_steps=float(steps), **values
    )


def trained(experiment: rollax.Experiment, folder: Path) -> rollax.Result:
    """The run in its folder, which goes on if it is there."""
    if (folder / "config.json").exists():
        return rollax.resume(folder, quiet=True)
    return rollax.train(experiment, folder, quiet=True)


def score_of(result: rollax.Result) -> Score:
    """The score of a run, of which every seed must have ended well."""
    returns = result.evaluations["return_mean"]
    if np.isnan(returns).any():
        raise SystemExit(f"{result.run_dir}: a seed has failed; its table would not be a fair one")
    return Score(bootstrap(returns[:, -1]), bootstrap(returns.mean(axis=1)), len(returns))


def table(scores: dict[str, dict[str, Score]]) -> str:
    """A table in Markdown: an agent in each row, an environment in each pair of columns."""
    envs = list(scores)
    agents = [agent for agent in FAMILY if any(agent in found for found in scores.values())]
    lines = ["| agent | " + " | ".join(f"{env}, last | {env}, all" for env in envs) + " |"]
    lines.append("| --- |" + " ---: |" * (2 * len(envs)))
    for agent in agents:
        cells = []
        for env in envs:
            one = scores[env].get(agent)
            cells += ["", ""] if one is None else [shown(one.final), shown(one.whole)]
        lines.append(f"| `{agent}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shown(interval: Interval) -> str:
    """As in `12.3 (11.0 to 13.1)`."""
    return f"{interval.value:.1f} ({interval.low:.1f} to {interval.high:.1f})"


def draw(scores: dict[str, dict[str, Score]], target: Path) -> None:
    """A panel for each environment: a point with its interval for each agent."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(scores), 3.8), layout="constrained")
    panels = figure.subplots(1, len(scores), squeeze=False, sharey=True)[0]
    agents = [agent for agent in FAMILY if any(agent in found for found in scores.values())][::-1]
    for axis, (env, found) in zip(panels, scores.items(), strict=True):
        for height, agent in enumerate(agents):
            if agent in found:
                interval = found[agent].final
                axis.plot([interval.low, interval.high], [height, height], color="#3b6fd4", linewidth=7, alpha=0.3)
                axis.plot([interval.value], [height], "o", color="#3b6fd4", markersize=6)
        seeds = max(one.seeds for one in found.values())
        axis.set(title=env, xlabel=f"IQM of the last evaluation, {seeds} seeds", yticks=range(len(agents)))
        axis.set_yticklabels(agents)
        axis.grid(alpha=0.25, axis="x")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(BUDGETS))
    parser.add_argument("--agents", nargs="+", choices=list(FAMILY), default=list(FAMILY))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0, help="of each seed; by default the environment's budget")
    parser.add_argument("--eval-episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=None, help="the folder of the runs, the table and the figure")
    options = parser.parse_args()
    use_all_cores()
    use_compile_cache()
    out = options.out or Path(tempfile.mkdtemp(prefix="controlled-"))
    scores: dict[str, dict[str, Score]] = {}
    for env in options.envs:
        for agent in options.agents:
            steps = options.steps or BUDGETS.get(env, 200_000)
            try:
                experiment = experiment_of(agent, env, options.seeds, steps, eval_episodes=options.eval_episodes)
                result = trained(experiment, out / f"{agent}-{env}")
            except RollaxError as error:
                raise SystemExit(f"{agent} in {env}: {error}") from error
            one = scores.setdefault(env, {})[agent] = score_of(result)
            seconds = result.summary["wall_seconds"]
            print(f"{env} {agent}: last {shown(one.final)}, all {shown(one.whole)}; {seconds:.0f} s", flush=True)
    draw(scores, out / "controlled.png")
    (out / "controlled.md").write_text(table(scores) + "\n")
    plain = {env: {agent: one._asdict() for agent, one in found.items()} for env, found in scores.items()}
    (out / "controlled.json").write_text(json.dumps(plain, indent=1) + "\n")
    print(f"\n{table(scores)}\n\n{out}")


if __name__ == "__main__":
    main()
