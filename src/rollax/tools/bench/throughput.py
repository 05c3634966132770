"""What the installed machine does in a second: environments, agents, replay, updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from rollax.envs import registry
from rollax.envs.protocol import reset_envs
from rollax.envs.random_play import random_play
from rollax.experiment.experiment import make_experiment
from rollax.memory.prioritized import PrioritizedReplay
from rollax.memory.uniform import UniformReplay
from rollax.programs.compiling import FULL, LIGHT, compiler_options
from rollax.programs.machine import machine
from rollax.programs.plan import make_plan
from rollax.runs.console import table
from rollax.tools.bench.replay_work import SPEC, full, working
from rollax.tools.sides import figures

REPEATS = 5
GAMES = {"CartPole-v1": 1_024, "Breakout-MinAtar": 1_024, "HackMatrix-v0": 256, "TreasureHunt-v0": 256}
ON_ACCELERATOR = 16  # times as many games there
TURNS = 32  # of every game in one call
AGENTS = (("double", 1), ("double", 10), ("pqn", 1), ("ppo", 1))  # and seeds
REPLAYS = {"uniform": UniformReplay, "prioritised": PrioritizedReplay}
CAPACITIES = (10_000, 1_000_000)
LESSONS = 200  # additions and samples in one call, and gradient steps
BATCHES = (128, 1_024)


def bench(seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything, each timed for about so many seconds: plain data, with the value of every repeat."""
    began, rows, since = time.perf_counter(), [], time.perf_counter()
    for measure in (environments, agents, replays, updates):
        for row in measure(seconds):
            row["seconds_in_all"], since = time.perf_counter() - since, time.perf_counter()
            rows.append(row)
            say(f"{row['part']}, {row['name']}: {described(row)}")
    facts = machine()
    return {"machine": facts, "seconds": seconds, "measured": rows, "seconds_in_all": time.perf_counter() - began}


def repeated(call: Callable[[], Any], work: float, seconds: float) -> list[float]:
    """Work done in a second, of each repeat: equal numbers of calls that together fill the time.

    The first call is not counted.  What `call` returns is waited for.
    """
    jax.block_until_ready(call())
    began = time.perf_counter()
    jax.block_until_ready(call())
    calls = max(1, round(seconds / REPEATS / (time.perf_counter() - began)))
    rates = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(calls - 1):
            call()
        jax.block_until_ready(call())
        rates.append(calls * work / (time.perf_counter() - began))
    return rates


def row(part: str, name: str, detail: str, unit: str, values: list[float]) -> dict[str, Any]:
    return {"part": part, "name": name, "detail": detail, "unit": unit, **figures(values)}


def compiled(function: Callable, level: dict[str, Any], *arguments: Any) -> Any:
    """With the state, which comes first, given up for the next."""
    return jax.jit(function, donate_argnums=0).lower(*arguments).compile(compiler_options(level))


def chained(function: Callable, state: Any, *rest: Any) -> Callable[[], Any]:
    """A call without arguments that goes on from where the last one left off; it returns all but the state."""

    def call() -> Any:
        nonlocal state
        state, out = function(state, *rest)
        return out

    return call


def environments(seconds: float) -> Iterator[dict[str, Any]]:
    """Random legal play with auto-reset; a step of several players is one step."""
    for name, games in GAMES.items():
        games *= 1 if jax.default_backend() == "cpu" else ON_ACCELERATOR
        task, key = registry.make_inside(name), jax.random.key(0)
        envs = jax.jit(lambda key, task=task, games=games: reset_envs(task, key, games))(key)
        run = compiled(random_play(task, TURNS), FULL if task.costly else LIGHT, envs, key)
        rates = repeated(chained(run, envs, key), games * TURNS, seconds)
        yield row("environments", name, f"{games:,} games", "steps/s", rates)


def agents(seconds: float) -> Iterator[dict[str, Any]]:
    """Whole training, after its warm-up, with the preset of CartPole-v1; steps are those of all seeds."""
    for name, seeds in AGENTS:
        plan = make_plan(make_experiment(name, env="CartPole-v1", seeds=seeds))
        running = plan.program.compile(plan.keys, plan.hparams)
        state, best = running.begin(plan.keys, plan.hparams)
        # The evaluation's program is compiled behind the others, which must be over before anything is timed.
        jax.block_until_ready(running.evaluate(state, best))
        state = running.advance_to(state, plan.schedule.warm_up).state
        unit, block = plan.steps_per_iteration, plan.program.block
        iterations = -(-8_192 // (unit * block)) * block

        def more(state: Any, running: Any = running, iterations: int = iterations) -> Any:
            chunk = running.advance_to(state, int(state.iteration) + iterations)
            return chunk.state, chunk.reached

        rates = repeated(chained(more, state), iterations * unit * seeds, seconds)
        detail = f"{seeds} seed{'s' if seeds > 1 else ''}, {plan.experiment.loop.num_envs} environments each"
        yield row("agents", name, detail, "steps/s", rates)


def replays(seconds: float) -> Iterator[dict[str, Any]]:
    """Adding a step of eight environments and drawing a batch; the prioritised one gets new priorities too."""
    for name, kind in REPLAYS.items():
        for capacity in CAPACITIES:
            replay, key = kind(capacity), jax.random.key(0)
            memory = full(replay)
            run = compiled(working(replay, BATCHES[0], LESSONS), LIGHT, memory, key)
            rates = repeated(chained(run, memory, key), LESSONS, seconds)
            detail = f"{capacity:,} rows, add {SPEC.num_envs}, sample {BATCHES[0]}"
            yield row("replay", name, detail, "us", [1e6 / rate for rate in rates])


def updates(seconds: float) -> Iterator[dict[str, Any]]:
    """Gradient steps of Double DQN from a batch that is there already."""
    for batch_size in BATCHES:
        plan = make_plan(make_experiment("double", env="CartPole-v1", batch_size=batch_size))
        agent: Any = plan.program.loop.agent
        hparams = jax.tree.map(lambda leaf: leaf[0], plan.hparams)
        key = jax.random.key(0)

        def begin(key: Any, agent: Any = agent, hparams: Any = hparams) -> Any:
            learner, memory = agent.init(key, hparams)
            blank = jax.eval_shape(agent.draw, learner, memory, key)
            return learner, jax.tree.map(lambda leaf: drawn(key, leaf), blank)

        def learn(learner: Any, sample: Any, agent: Any = agent) -> Any:
            keys = jax.random.split(jax.random.key(1), LESSONS)
            learner, _ = jax.lax.scan(lambda own, draw: (agent.improve(own, sample, draw)[0], None), learner, keys)
            return learner, learner.gradient_steps + 0

        learner, sample = jax.jit(begin)(key)
        run = compiled(learn, LIGHT, learner, sample)
        rates = repeated(chained(run, learner, sample), LESSONS, seconds)
        yield row("update", "double", f"batch {batch_size:,}", "us", [1e6 / rate for rate in rates])


def drawn(key: Any, like: Any) -> Any:
    """Random numbers of that shape; whole numbers are 0."""
    whole = not jnp.issubdtype(like.dtype, jnp.floating)
    return jnp.zeros(like.shape, like.dtype) if whole else jax.random.uniform(key, like.shape, like.dtype)


def described(row: dict[str, Any]) -> str:
    return f"{figure(row['median'], row)} {row['unit']} ({figure(row['min'], row)} .. {figure(row['max'], row)})"


def figure(value: float, row: dict[str, Any]) -> str:
    return f"{value:,.0f}" if row["unit"] == "steps/s" else f"{value:,.1f}"


def show(found: dict[str, Any]) -> str:
    """The machine, the figures as a table, and what the replay's size costs."""
    facts = found["machine"]
    lines = [
        f"{facts['device_kind']} ({facts['backend']}), {facts['cores']} cores, jax {facts['jax']}, "
        f"rollax {facts['rollax']}, Python {facts['python']}"
    ]
    header = ["part", "what", "of", "median", "min", "max", "unit"]
    cells = [
        [its["part"], its["name"], its["detail"], *(figure(its[name], its) for name in header[3:6]), its["unit"]]
        for its in found["measured"]
    ]
    lines.append(table(header, cells))
    for name in REPLAYS:
        small, large = (its["median"] for its in found["measured"] if its["part"] == "replay" and its["name"] == name)
        lines.append(f"{name} replay: {CAPACITIES[-1]:,} rows cost {large / small:.1f} times {CAPACITIES[0]:,}")
    lines.append(f"Each the median of {REPEATS} repeats; {found['seconds_in_all']:.0f} s in all.")
    return "\n".join(lines)
