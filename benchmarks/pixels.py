"""Are pixels fast?  Our convolution beside flax's `nn.Conv`, in the same agents, in one run.

Steps/s of MinAtar training (`pqn` at its public configuration, and `double`), one seed and ten, and milliseconds of a
Double DQN update of the Nature network on 32 stacks of bytes inside a scan.  Both forms have the same weights.  Rounds
alternate between the two, the median counts.

    python benchmarks/pixels.py [nature] [minatar] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from rollax.agents.base import make_optimizer
from rollax.agents.dqn import DQNConfig, DQNHParams, DQNLearner
from rollax.experiment.experiment import make_experiment
from rollax.memory.ring import Batch
from rollax.networks import torsos
from rollax.programs.compiling import LIGHT, compiler_options
from rollax.programs.plan import make_plan
from rollax.types import Discrete, EnvSpec, Observation

FORMS = ("nn.Conv", "rollax")
LOG = jnp.int32(10**6)
# The public PQN configuration for MinAtar, and a usual one for a replay agent.
PQN = {"num_envs": 128, "rollout_length": 32, "epochs": 2, "minibatches": 32, "warm_up_steps": 0, "layer_norm": True}
DOUBLE = {"num_envs": 32, "batch_size": 128, "capacity": 96_000, "warm_up_steps": 3_200}


class FlaxConv(nn.Module):
    """The same layer as others write it."""

    features: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: str = "VALID"
    scale: float = 1.0
    dtype: Any = None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        layer = nn.Conv(self.features, self.kernel_size, self.strides, self.padding, dtype=self.dtype)
        return layer(x.astype(jnp.float32) * self.scale)


@contextmanager
def convolution(form: str) -> Generator[None]:
    """Torsos that are traced inside have the named convolution."""
    ours = torsos.Conv
    torsos.Conv = ours if form == "rollax" else FlaxConv  # ty: ignore[invalid-assignment]
    try:
        yield
    finally:
        torsos.Conv = ours


def nature_update(form: str, length: int) -> Callable[[], Any]:
    """A scan of Double DQN updates on random frames, compiled."""
    obs = Observation(jax.ShapeDtypeStruct((84, 84, 4), jnp.uint8))
    agent = DQNConfig(torso=torsos.NatureTorso(), double=True).build(EnvSpec(obs, Discrete(4), 1, 1))

    def frames(key: Any) -> Observation:
        return Observation(jax.random.randint(key, (length, 32, 84, 84, 4), 0, 256, jnp.int32).astype(jnp.uint8))

    now, later = map(frames, jax.random.split(jax.random.key(0)))
    rows = (length, 32)
    batches = Batch(now, jnp.zeros(rows, jnp.int32), jnp.ones(rows), jnp.full(rows, 0.99), later)

    def run(learner: DQNLearner, batches: Batch) -> tuple[DQNLearner, Any]:
        def step(learner: DQNLearner, batch: Batch) -> tuple[DQNLearner, Any]:
            loss, grads = jax.value_and_grad(
                lambda params: jnp.mean(agent.bellman_error(params, learner, batch, jax.random.key(0)).loss)
            )(learner.params)
            rule = make_optimizer("adam", learner.hparams)
            updates, opt_state = rule.update(grads, learner.opt_state, learner.params)
            params = jax.tree.map(jnp.add, learner.params, updates)
            return learner._replace(params=params, opt_state=opt_state), loss

        return jax.lax.scan(step, learner, batches)

    with convolution(form):
        learner, _ = jax.jit(lambda key: agent.init(key, DQNHParams()))(jax.random.key(1))
        compiled = jax.jit(run).lower(learner, batches).compile(compiler_options(LIGHT))
    return lambda: compiled(learner, batches)


def minatar_training(agent: str, form: str, seeds: int, iterations: int, values: dict[str, Any]) -> Callable[[], Any]:
    """So many iterations of a real training program, compiled, from a state that has learnt already."""
    experiment = make_experiment(
        agent,
        env="Breakout-MinAtar",
        preset="none",
        torso="minatar",
        seeds=seeds,
        steps=10**7,
        log_steps=2**30,  # one window for all
        **values,
    )
    plan = make_plan(experiment)
    with convolution(form):
        running = plan.program.compile(plan.keys, plan.hparams)
    state, _ = running.begin(plan.keys, plan.hparams)
    state = running.advance_to(state, plan.schedule.warm_up).state

    def run() -> Any:
        nonlocal state
        chunk = running.advance_to(state, int(state.iteration) + iterations)
        state = chunk.state
        return chunk.reached

    return run


def race(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each, in turns."""
    taken: dict[str, list[float]] = {form: [] for form in runs}
    for number in range(rounds + 1):
        for form, run in runs.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            if number:
                taken[form].append(time.perf_counter() - began)
    return {form: statistics.median(times) for form, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["nature", "minatar"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, jax {jax.__version__}, median of {options.rounds}")
    if "nature" in options.parts:
        length = 8
        taken = race({form: nature_update(form, length) for form in FORMS}, options.rounds)
        theirs, ours = (taken[form] / length * 1e3 for form in FORMS)
        print(
            f"Nature update, batch 32, uint8: nn.Conv {theirs:.1f} ms, rollax {ours:.1f} ms, ratio {theirs / ours:.1f}"
        )
    if "minatar" not in options.parts:
        return
    print(f"{'agent':>7} {'seeds':>5} {'nn.Conv steps/s':>16} {'rollax steps/s':>15} {'ratio':>6}")
    for agent, values, iterations in (("pqn", PQN, 2), ("double", DOUBLE, 100)):
        for seeds in (1, 10):
            some = max(1, iterations // (seeds // 5 or 1))
            runs = {form: minatar_training(agent, form, seeds, some, values) for form in FORMS}
            taken = race(runs, options.rounds)
            steps = seeds * some * values["num_envs"] * values.get("rollout_length", 1)
            theirs, ours = (steps / taken[form] for form in FORMS)
            print(f"{agent:>7} {seeds:5d} {theirs:16,.0f} {ours:15,.0f} {ours / theirs:6.1f}")


if __name__ == "__main__":
    main()
