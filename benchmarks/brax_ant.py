"""`ppo` on Brax's ant beside Brax's own PPO: returns of several seeds, and steps/s in training, in one run.

    python benchmarks/brax_ant.py [--steps 10_485_760] [--seeds 3] [--backend spring] [--sides rollax brax]

Brax's side is `brax.training.agents.ppo` with the settings that Brax publishes for its ant.  Both train with 4,096
environments, and both are judged by the mean return of 128 greedy episodes after the last step.  Brax's iterations are
327,680 steps, of which the default is a multiple, so that neither side makes more than the other.  Its steps/s are
the median of its epochs but the first, which compiles; rollax's are those of its training, which is timed apart from
compiling.  Ends with exit code 1 where rollax is slower, or its mean return lies below the interval of Brax's seeds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import rollax

EPISODES = 128
# As in Brax's own notebook for the ant; its networks are the defaults of its PPO.
BRAX: dict[str, Any] = {
    "reward_scaling": 10.0,
    "episode_length": 1_000,
    "normalize_observations": True,
    "unroll_length": 5,
    "num_minibatches": 32,
    "num_updates_per_batch": 4,
    "discounting": 0.97,
    "learning_rate": 3e-4,
    "entropy_cost": 1e-2,
    "num_envs": 4_096,
    "batch_size": 2_048,
}


class Outcome(NamedTuple):
    """What one side reached."""

    returns: list[float]  # of each seed
    speeds: list[float]  # steps/s of each training
    seconds: list[float]  # of each training with all that belongs to it, compiling and evaluations included


def brax_side(steps: int, seeds: int, backend: str, small: bool) -> Outcome:
    import brax.envs
    from brax.training.agents.ppo import train as ppo

    if jax.local_device_count() == 1:  # Brax 0.14.2 still calls it, and jax 0.11 has it no longer

        def replicated(tree: Any, devices: Any) -> Any:
            return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)

        setattr(jax, "device_put_replicated", replicated)  # noqa: B010
    settings: dict[str, Any] = BRAX | ({"num_envs": 64, "batch_size": 64, "num_minibatches": 4} if small else {})
    outcome = Outcome([], [], [])
    for seed in range(seeds):
        speeds, returns, began = [], [], time.perf_counter()

        def progress(step: int, metrics: Any, speeds: list = speeds, returns: list = returns) -> None:
            del step
            returns.append(float(metrics["eval/episode_reward"]))
            if "training/sps" in metrics:
                speeds.append(float(metrics["training/sps"]))

        ppo.train(
            environment=brax.envs.get_environment("ant", backend=backend),
            num_timesteps=steps,
            num_evals=3 if small else 5,
            num_eval_envs=EPISODES,
            deterministic_eval=True,
            progress_fn=progress,
            seed=seed,
            **settings,
        )
        outcome.returns.append(returns[-1])
        outcome.speeds.append(statistics.median(speeds[1:]))
        outcome.seconds.append(time.perf_counter() - began)
        print(f"  brax, seed {seed}: returns {', '.join(f'{value:.0f}' for value in returns)}", flush=True)
    return outcome


def rollax_side(steps: int, seeds: int, backend: str, small: bool, folder: Path) -> Outcome:
    outcome = Outcome([], [], [])
    smallest: dict[str, Any] = {"preset": "none", "num_envs": 64, "rollout_length": 16}
    settings: dict[str, Any] = smallest if small else {"preset": "ppo/brax:ant"}
    for seed in range(seeds):
        began = time.perf_counter()
        experiment = rollax.make_experiment(
            "ppo",
            env="brax:ant",
            backend=backend,
            steps=steps,
            seed=seed,
            eval_episodes=EPISODES,
            eval_steps=steps // 2,
            **settings,
        )
        result = rollax.train(experiment, folder / str(seed), quiet=True)
        returns = result.evaluations["return_mean"][0]
        outcome.returns.append(float(returns[-1]))
        outcome.speeds.append(float(result.summary["steps_per_second"]))
        outcome.seconds.append(time.perf_counter() - began)
        print(f"  rollax, seed {seed}: returns {', '.join(f'{value:.0f}' for value in returns)}", flush=True)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_485_760)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--backend", default="spring")
    parser.add_argument("--sides", nargs="+", choices=["rollax", "brax"], default=["rollax", "brax"])
    parser.add_argument("--small", action="store_true", help="small batches, to try the script on a CPU")
    options = parser.parse_args()
    print(
        f"{jax.devices()[0].device_kind}, jax {jax.__version__}; brax:ant, {options.backend}, {options.steps:,} steps"
    )
    outcomes = {}
    common = (options.steps, options.seeds, options.backend, options.small)
    with tempfile.TemporaryDirectory() as folder:
        for side in options.sides:
            outcomes[side] = rollax_side(*common, Path(folder)) if side == "rollax" else brax_side(*common)
    for side, (returns, speeds, seconds) in outcomes.items():
        mean, half = np.mean(returns), 1.96 * np.std(returns, ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else 0.0
        shown = ", ".join(f"{value:.0f}" for value in returns)
        print(
            f"{side:7} returns {shown}: {mean:.0f} ({mean - half:.0f} to {mean + half:.0f}); "
            f"{statistics.median(speeds):,.0f} steps/s; {statistics.median(seconds):.0f} s with all"
        )
    if len(outcomes) < 2:
        return 0
    ours, theirs = outcomes["rollax"], outcomes["brax"]
    spread = 1.96 * np.std(theirs.returns, ddof=1) / len(theirs.returns) ** 0.5
    slower = statistics.median(ours.speeds) < statistics.median(theirs.speeds)
    return int(slower or np.mean(ours.returns) < np.mean(theirs.returns) - spread)


if __name__ == "__main__":
    sys.exit(main())
