"""How many environments suit a machine: asked for with `--auto-tune`, so that no result depends on it by surprise."""

from __future__ import annotations

import dataclasses

import jax

from rollax.envs import registry
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.programs.machine import available_bytes, memory_size
from rollax.programs.plan import make_plan
from rollax.programs.program import nbytes

# The most environments that are chosen.  HackMatrix makes 68 k steps/s with 256 on two CPU cores and 77 k with 1,024;
# an H200 goes on to gain beyond 4,096, but every environment more is a larger batch and fewer gradient steps as well.
ENOUGH = {"cpu": 256, "gpu": 4_096, "tpu": 4_096}
SHARE_OF_MEMORY = 0.5  # of what is free: a card of 15 GB serves a screen and other programs as well
LEAST_ITERATIONS = 100  # of a run: fewer are too few chances to learn


def fit_to_device(experiment: Experiment) -> tuple[Experiment, str]:
    """The experiment with as many environments as suit this device, and a line that says why so many."""
    if experiment.choices.replay is not None:
        raise ConfigError(
            f"auto_tune is for agents that learn from fresh rollouts; with the replay of {experiment.agent} "
            "another num_envs is another rule of learning: set --num-envs yourself"
        )
    backend, free = jax.default_backend(), available_bytes()
    enough = ENOUGH.get(backend, ENOUGH["cpu"])
    task = registry.make(experiment.env, experiment.world, experiment.view)
    if task.outside:
        raise ConfigError(f"auto_tune is for environments in JAX; of {experiment.env} set --num-envs yourself")
    counts = [2**power for power in range(enough.bit_length())]
    dividing = [n for n in counts if not experiment.choices.problems(task.spec(n, experiment.loop.rollout_length))]
    if not dividing:
        raise ConfigError("auto_tune finds no number of environments; make minibatches a power of two")
    long = [n for n in dividing if n * experiment.loop.rollout_length * LEAST_ITERATIONS <= experiment.steps]
    candidates = long or dividing[:1]
    sizes = ((n, memory_need(with_envs(experiment, n), SHARE_OF_MEMORY * free)) for n in reversed(candidates))
    chosen, size = next(((n, size) for n, size in sizes if size <= SHARE_OF_MEMORY * free), (candidates[0], None))
    if size is None:
        reason = f"even so few take more than half of the {memory_size(free)} that are free"
    elif chosen < candidates[-1]:
        reason = "more would not fit into half of it"
    elif chosen < enough:
        reason = f"more would leave fewer than {LEAST_ITERATIONS} iterations"
    else:
        reason = f"the most that are chosen for a {backend.upper()}"
    taken = f", which takes {memory_size(size)} of the {memory_size(free)} that are free" if size else ""
    line = f"auto-tune: num_envs={chosen} (was {experiment.loop.num_envs}){taken}; {reason}"
    return with_envs(experiment, chosen), line


def with_envs(experiment: Experiment, count: int) -> Experiment:
    return dataclasses.replace(experiment, loop=dataclasses.replace(experiment.loop, num_envs=count))


def memory_need(experiment: Experiment, limit: float) -> int:
    """Bytes that a run takes, by the compiler's count; by that of its state alone where this is over the limit."""
    plan = make_plan(experiment)
    state = nbytes(plan.shapes())
    return state if state > limit else plan.program.compile(plan.keys, plan.hparams).memory_bytes
