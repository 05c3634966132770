"""The figures of the course "Deep RL by running it", from runs of ours: `python benchmarks/deep_rl.py [NAME ...]`.

Small learners are those of the course's own pages; agents are rollax's.  Each figure prints the numbers that its page
states.  All of them take about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.ticker
import numpy as np

import rollax
from rollax.envs.protocol import reset_envs, step_envs
from rollax.programs.machine import use_all_cores, use_compile_cache
from rollax.programs.plan import make_plan
from rollax.rules.aggregates import bootstrap, interquartile_mean
from rollax.rules.policies import greedy
from rollax.types import Decision

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PAGES = Path(__file__).parent.parent / "docs" / "deep-rl"
IMAGES = PAGES.parent / "images" / "deep-rl"
WORK = Path(tempfile.mkdtemp(prefix="deep-rl-"))
COLOURS = ("#3b6fd4", "#d9662b", "#3d9a57", "#8a56c2", "#777777")


def module_of(name: str) -> Any:
    """The module of that name that a page of the course shows."""
    for page in sorted(PAGES.glob("*.md")):
        if found := re.search(
            rf"^```python\n(# {name}\.py\n.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE
        ):
            (WORK / f"{name}.py").write_text(found[1])
            sys.path[:0] = [str(WORK)] if str(WORK) not in sys.path else []
            return importlib.import_module(name)
    raise SystemExit(f"no page shows {name}.py")


def panels(count: int, height: float = 3.2) -> tuple[Any, Any]:
    figure, axes = plt.subplots(1, count, figsize=(4.6 * count, height), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, axes[0]


def save(figure: Any, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for axis in figure.axes:
        if axis.get_xscale() == "linear" and axis.get_xlim()[1] > 5_000:
            axis.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5))
            axis.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    figure.savefig(IMAGES / f"{name}.png", dpi=110)
    plt.close(figure)


def trained(agent: str, name: str, **settings: Any) -> rollax.Result:
    """A run, in a folder of its own."""
    return rollax.train(rollax.make_experiment(agent, **settings), WORK / name, quiet=True)


def groups(result: rollax.Result, *names: str) -> dict[tuple, list[int]]:
    """The members of each setting, by the values of these hyper-parameters."""
    found: dict[tuple, list[int]] = {}
    for member in result.summary["members"]:
        found.setdefault(tuple(member["hparams"][name] for name in names), []).append(member["member"])
    return found


def draw_band(axis: Any, steps: Any, curves: Any, colour: str, label: str) -> None:
    """The interquartile mean of seeds `[seeds, points]`, and the middle half of them."""
    middle = [interquartile_mean(column) for column in np.asarray(curves).T]
    low, high = np.percentile(curves, [25, 75], axis=0)
    axis.plot(steps, middle, color=colour, label=label)
    axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)


def bandits() -> None:
    page = module_of("bandits")
    rules = {
        "greedy": page.epsilon_greedy(0.0),
        "epsilon 0.01": page.epsilon_greedy(0.01),
        "epsilon 0.1": page.epsilon_greedy(0.1),
        "UCB": page.ucb(2.0),
    }
    figure, axes = panels(2)
    for colour, (label, rule) in zip(COLOURS, rules.items(), strict=False):
        best, reward = page.mean_of_many(rule)
        axes[0].plot(best, color=colour, label=label, linewidth=1)
        axes[1].plot(reward, color=colour, linewidth=1)
        print(
            f"{label}: best arm in {best[-100:].mean():.2f} of the last hundred pulls, "
            f"reward {reward[-100:].mean():.2f}"
        )
    axes[0].set(xlabel="pull", ylabel="share of bandits that take the best arm", ylim=(0, 1))
    axes[1].set(xlabel="pull", ylabel="mean reward of the arm taken")
    axes[0].legend(frameon=False)
    save(figure, "bandits")


def cliff() -> None:
    page = module_of("cliff")
    figure, axes = panels(2)
    keys = jax.random.split(jax.random.key(0), 100)
    for colour, rule, label in zip(COLOURS, ("q_learning", "sarsa"), ("Q-learning", "SARSA"), strict=False):
        tables, rewards, ends = jax.jit(jax.vmap(lambda key, rule=rule: page.learn(key, 20_000, rule)))(keys)
        window = 5
        summed = rewards.reshape(100, -1, window).sum(axis=(0, 2)) / ends.reshape(100, -1, window).sum(axis=(0, 2))
        axes[0].plot((np.arange(len(summed)) + 1) * 100 * window, summed, color=colour, label=label)
        path = page.greedy_path(tables[0])
        rows, columns = np.divmod(np.array(path), page.COLUMNS)
        axes[1].plot(columns, -rows + (0.06 if rule == "sarsa" else -0.06), color=colour, marker=".", label=label)
        print(f"{label}: return {summed[-1]:.1f} while it explores, {len(path) - 1} steps greedily")
    axes[0].set(xlabel="steps", ylabel="return of training episodes", ylim=(-120, 0))
    axes[0].legend(frameon=False)
    axes[1].fill_between([0.5, 10.5], -3.4, -2.6, color="#d9d9d9")
    axes[1].text(5.5, -3.1, "cliff", ha="center")
    axes[1].set(xticks=[], yticks=[], xlim=(-0.5, 11.5), ylim=(-3.5, 0.5), title="greedy path of one seed")
    axes[1].grid(False)
    save(figure, "cliff")


def dqn_parts() -> None:
    result = trained(
        "dqn",
        "parts",
        replay_limit=[0, 64],
        target_period=[1, 25],
        target_step=1.0,
        seeds=10,
        steps=307_200,
        eval_steps=20_480,
        eval_episodes=20,
    )
    labels = {
        (0, 25): "replay and target network",
        (0, 1): "no target network",
        (64, 25): "no replay",
        (64, 1): "neither",
    }
    figure, axes = panels(2)
    evaluations = result.evaluations
    for colour, (setting, label) in zip(COLOURS, labels.items(), strict=False):
        members = groups(result, "replay_limit", "target_period")[setting]
        returns, loss = evaluations["return_mean"][members], result.curves["loss"][members]
        draw_band(axes[0], evaluations["step"][0], returns, colour, label)
        axes[1].plot(result.curves["step"][0], np.median(loss, axis=0), color=colour)
        best = returns.max(axis=1)
        print(
            f"{label}: last IQM {interquartile_mean(returns[:, -1]):.0f}, worst {returns[:, -1].min():.0f}, "
            f"{np.sum(returns[:, -1] >= 475)} of 10 at 475 at the end, {np.sum(best >= 475)} ever; "
            f"mean of the last half {returns[:, len(returns[0]) // 2 :].mean():.0f}"
        )
    axes[0].set(xlabel="environment steps", ylabel="greedy return", ylim=(0, 510))
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].set(xlabel="environment steps", ylabel="loss, median of seeds", yscale="log")
    save(figure, "dqn-parts")


def values_of_starts(agent: Any, task: Any, params: Any, key: Any, *, discount: float, length: int) -> tuple[Any, Any]:
    """What an agent predicts of a hundred starts, and the discounted returns that it then gets greedily."""
    envs = reset_envs(task, key, 100)
    predicted = jnp.max(agent.returns(params, envs.obs).mean(), axis=-1)

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        envs, total, weight = carry
        action = greedy(agent.returns(params, envs.obs).mean(), envs.obs.legal)
        envs, transition, _ = step_envs(task, envs, Decision(action), key)
        total = total + weight * transition.reward
        return (envs, total, weight * discount * ~(transition.terminated | transition.truncated)), None

    start = (envs, jnp.zeros(100), jnp.ones(100))
    (_, total, _), _ = jax.lax.scan(step, start, jax.random.split(key, length))
    return jnp.mean(predicted), jnp.mean(total)


def overestimation() -> None:
    page = module_of("maximisation")
    figure, axes = panels(2)
    for colour, double, label in zip(COLOURS, (False, True), ("Q-learning", "double Q-learning"), strict=False):
        lefts = page.share_of_left(double, runs=5_000)
        axes[0].plot(np.arange(1, len(lefts) + 1), lefts, color=colour, label=label)
        print(
            f"{label}: left in {float(lefts[:20].mean()):.2f} of the first 20 episodes, "
            f"{float(lefts[-1]):.3f} in the last"
        )
    axes[0].axhline(0.05, color="black", linewidth=0.8, linestyle="--")
    axes[0].set(
        xlabel="episode", ylabel="share of runs that go left", title="a table: left is the wrong way", ylim=(0, 1)
    )
    axes[0].legend(frameon=False)
    for colour, double, label in zip(COLOURS, (False, True), ("DQN", "Double DQN"), strict=False):
        experiment = rollax.make_experiment("dqn", env="Acrobot-v1", double=double, seeds=10, **ACROBOT)
        plan = make_plan(experiment)
        running = plan.program.compile(plan.keys, plan.hparams)
        state, _ = running.begin(plan.keys, plan.hparams)
        agent, task = plan.program.loop.agent, plan.program.loop.task
        of_member = partial(values_of_starts, agent, task, discount=0.99, length=500)
        look = jax.jit(jax.vmap(of_member, in_axes=(0, None)))
        points, rows = np.linspace(plan.schedule.warm_up + 50, plan.schedule.total, 12).astype(int), []
        for stop in points:
            state, _, _ = running.advance_to(state, int(stop))
            rows.append(np.asarray(look(state.learner.params, jax.random.key(0))))
        predicted, got = np.moveaxis(np.array(rows), 0, -1)  # [2, seeds, points]
        steps = points * experiment.steps_per_iteration
        draw_band(axes[1], steps, predicted, colour, f"{label}, predicted")
        axes[1].plot(
            steps, [interquartile_mean(column) for column in got.T], "--", color=colour, label=f"{label}, true"
        )
        gap = (predicted - got)[:, -4:].mean(axis=1)
        print(
            f"{label}: predicted less true over the last third {interquartile_mean(gap):+.2f} "
            f"({gap.min():+.2f} to {gap.max():+.2f})"
        )
    axes[1].set(xlabel="environment steps", ylabel="discounted return of a start", title="Acrobot-v1, ten seeds")
    axes[1].legend(frameon=False, fontsize=8)
    save(figure, "overestimation")


ACROBOT: dict[str, Any] = {
    "preset": "none",
    "steps": 204_800,
    "num_envs": 32,
    "warm_up_steps": 4_096,
    "capacity": 102_400,
    "batch_size": 128,
    "hidden": (128, 128),
    "input_scale": (2.0, 2.0, 2.0, 2.0, 1.0, 1.0),
    "learning_rate": 0.002,
    "target_period": 50,
    "target_step": 1.0,
    "discount": 0.99,
    "epsilon_steps": 50_000.0,
    "huber_kappa": 10.0,
}


def distributions() -> None:
    page = module_of("quantiles")
    figure, axes = panels(2)
    learnt, levels = page.learn(jax.random.key(0), quantiles=32, steps=4_000)
    sample = np.sort(np.asarray(page.returns(jax.random.key(1), 20_000)))
    axes[0].plot(sample, np.linspace(0, 1, len(sample)), color="black", linewidth=1, label="true distribution")
    axes[0].step(learnt, levels, color=COLOURS[0], where="mid", label="32 quantiles learnt")
    axes[0].axvline(sample.mean(), color=COLOURS[1], linestyle="--", label="mean: what a value is")
    axes[0].set(xlabel="return", ylabel="share of returns below it", title="a return of two kinds")
    axes[0].legend(frameon=False, fontsize=8)
    result = trained("qr", "lake", env="FrozenLake-misc", seeds=1, **LAKE)
    policy = result.policy(0)
    agent: Any = policy.agent
    task, learner = policy.task, policy.learner
    envs = reset_envs(task, jax.random.key(0), 4_000)
    quantiles = np.asarray(agent.returns(learner.params, envs.obs).values)[0]
    best = int(agent.returns(learner.params, envs.obs).mean()[0].argmax())

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        envs, total, weight = carry
        action = greedy(agent.returns(learner.params, envs.obs).mean(), envs.obs.legal)
        envs, transition, _ = step_envs(task, envs, Decision(action), key)
        total = total + weight * transition.reward
        return (envs, total, weight * 0.99 * ~(transition.terminated | transition.truncated)), None

    start = (envs, jnp.zeros(4_000), jnp.ones(4_000))
    (_, got, _), _ = jax.jit(lambda start: jax.lax.scan(step, start, jax.random.split(jax.random.key(2), 100)))(start)
    got = np.sort(np.asarray(got))
    count = quantiles.shape[-1]
    axes[1].plot(got, np.linspace(0, 1, len(got)), color="black", linewidth=1, label="4,000 games played")
    axes[1].step(
        np.sort(quantiles[best]),
        (np.arange(count) + 0.5) / count,
        color=COLOURS[0],
        where="mid",
        label="predicted at the start",
    )
    axes[1].set(xlabel="discounted return", title="FrozenLake, the `qr` agent")
    axes[1].legend(frameon=False, fontsize=8)
    print(
        f"FrozenLake: won {np.mean(got > 0):.2f} of 4,000 games, mean {got.mean():.3f}; predicted mean "
        f"{quantiles[best].mean():.3f}; share of quantiles below 0.05: {np.mean(quantiles[best] < 0.05):.2f}, of games "
        f"{np.mean(got < 0.05):.2f}"
    )
    save(figure, "distributions")


LAKE: dict[str, Any] = {
    "preset": "none",
    "steps": 409_600,
    "num_envs": 32,
    "warm_up_steps": 4_096,
    "capacity": 102_400,
    "batch_size": 256,
    "hidden": (64, 64),
    "quantiles": 32,
    "learning_rate": 0.002,
    "learning_rate_end": 0.02,
    "learning_rate_steps": 400_000.0,
    "target_period": 50,
    "target_step": 1.0,
    "discount": 0.99,
    "huber_kappa": 0.02,
    "epsilon_steps": 100_000.0,
    "epsilon_end": 0.1,
    "eval_episodes": 200,
}


def policy_gradients() -> None:
    page = module_of("gradients")
    figure, axes = panels(2)
    for colour, baseline, label in zip(COLOURS, (False, True), ("without a baseline", "with a baseline"), strict=False):
        probability = page.learn_many(baseline, runs=500)
        axes[0].plot(probability, color=colour, label=label)
        print(f"{label}: probability of the best arm {float(probability[199]):.2f} after 200 pulls")
    axes[0].set(xlabel="pull", ylabel="probability of the best arm", title="REINFORCE on bandits", ylim=(0, 1))
    axes[0].legend(frameon=False)
    result = trained(
        "ppo",
        "clips",
        clip=[0.02, 0.2, 1e6],
        seeds=10,
        steps=262_144,
        epochs=10,
        eval_steps=16_384,
        eval_episodes=20,
        learning_rate=0.003,
    )
    evaluations = result.evaluations
    for colour, (setting, members) in zip(COLOURS, groups(result, "clip").items(), strict=False):
        returns = evaluations["return_mean"][members]
        label = f"clip {setting[0]:g}" if setting[0] < 1e3 else "no clipping"
        draw_band(axes[1], evaluations["step"][0], returns, colour, label)
        kl = np.nanmean(result.curves["approx_kl"][members])
        print(
            f"{label}: last IQM {interquartile_mean(returns[:, -1]):.0f}, worst {returns[:, -1].min():.0f}, "
            f"mean of all evaluations {returns.mean():.0f}, mean KL {kl:.3g}"
        )
    axes[1].set(
        xlabel="environment steps", ylabel="greedy return", title="PPO on CartPole-v1, ten epochs", ylim=(0, 510)
    )
    axes[1].legend(frameon=False, fontsize=8)
    save(figure, "policy-gradients")


def exploration() -> None:
    page = module_of("deep_sea")
    figure, (axis,) = panels(1)
    rules = {
        "random": "random actions",
        "epsilon": "epsilon-greedy",
        "optimism": "optimistic values",
        "bonus": "bonus for new actions",
    }
    sizes, most = [4, 6, 8, 10], 400
    for colour, (rule, label) in zip(COLOURS, rules.items(), strict=False):
        first = [float(np.median(page.episodes_until_found(rule, size, most=most))) for size in sizes]
        shown = [count for count in first if count < most]
        axis.plot(sizes[: len(shown)], shown, color=colour, marker=".", label=label)
        print(f"{label}: " + ", ".join(f"{size}: {count:.0f}" for size, count in zip(sizes, first, strict=True)))
    axis.set(
        xlabel="size N of the sea", ylabel="dives to the treasure (median)", yscale="log", title="DeepSea in a table"
    )
    axis.legend(frameon=False, fontsize=8)
    save(figure, "deep-sea")


def better() -> None:
    scores = {}
    for name, double in (("one network", False), ("double", True)):
        result = trained(
            "dqn",
            f"better-{double}",
            double=double,
            seeds=50,
            steps=102_400,
            eval_steps=102_400,
            eval_episodes=50,
            learning_rate_steps=102_400.0,
        )
        scores[name] = result.evaluations["return_mean"][:, -1]
        interval = bootstrap(scores[name])
        print(
            f"{name}: mean {scores[name].mean():.1f}, IQM {interval.value:.1f} "
            f"({interval.low:.1f} to {interval.high:.1f})"
        )
        print("   ", [round(float(score)) for score in scores[name]])
    figure, axes = panels(2)
    rng = np.random.default_rng(0)
    for row, values in enumerate(scores.values()):
        axes[0].scatter(values, row + rng.uniform(-0.15, 0.15, len(values)), s=12, color=COLOURS[row], alpha=0.7)
    axes[0].set(yticks=[0, 1], yticklabels=list(scores), xlabel="greedy return after 102,400 steps", ylim=(-0.5, 1.5))
    for row, (name, values) in enumerate(scores.items()):
        counts, low, high = [2, 3, 5, 10, 20, 50], [], []
        for count in counts:
            drawn = [interquartile_mean(rng.choice(values, count)) for _ in range(2_000)]
            low.append(np.percentile(drawn, 2.5))
            high.append(np.percentile(drawn, 97.5))
        axes[1].fill_between(counts, low, high, color=COLOURS[row], alpha=0.3, label=name)
    axes[1].set(xlabel="seeds in the experiment", ylabel="IQM, 95 % of experiments", xscale="log")
    axes[1].set_xticks(counts, [str(count) for count in counts])
    axes[1].minorticks_off()
    axes[1].legend(frameon=False)
    save(figure, "is-it-better")


FIGURES: dict[str, Callable[[], None]] = {
    "bandits": bandits,
    "cliff": cliff,
    "dqn-parts": dqn_parts,
    "overestimation": overestimation,
    "distributions": distributions,
    "policy-gradients": policy_gradients,
    "deep-sea": exploration,
    "is-it-better": better,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*FIGURES, []], help="the figures to draw; without, all of them")
    chosen = parser.parse_args().names or list(FIGURES)
    use_all_cores()
    use_compile_cache()
    for name in chosen:
        began = time.perf_counter()
        print(f"== {name}")
        FIGURES[name]()
        print(f"   {time.perf_counter() - began:.0f} s")
