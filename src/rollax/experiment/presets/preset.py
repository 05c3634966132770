"""What a preset is, and the pieces that several share."""

from __future__ import annotations

from typing import Any, NamedTuple

TWO_CORES = "two cores of an AMD EPYC"
TWO_XEON_CORES = "two cores of an Intel Xeon"
H200 = "one NVIDIA H200"
NOT_MEASURED = "not measured"
Values = dict[str, Any]  # of settings, by name


class Preset(NamedTuple):
    """Settings of an agent, and the score that was measured with them."""

    values: Values
    score: str = NOT_MEASURED  # mean return of evaluation episodes
    machine: str = ""  # where it was measured


def falling_rate(start: float, steps: float, end: float = 0.0) -> Values:
    """A learning rate that falls linearly over so many environment steps, to that share of itself."""
    return {"learning_rate": start, "learning_rate_end": end, "learning_rate_steps": steps}


def falling_epsilon(steps: float, end: float) -> Values:
    """Random actions whose share falls linearly over so many environment steps after the warm-up."""
    return {"epsilon_end": end, "epsilon_steps": steps}


def copied_target(period: int) -> Values:
    """A target network that is copied every so many gradient steps."""
    return {"target_period": period, "target_step": 1.0}


def rollouts(steps: int, num_envs: int, length: int, epochs: int, minibatches: int) -> Values:
    """Learning from fresh rollouts, each of them several times."""
    return {
        "steps": steps,
        "num_envs": num_envs,
        "rollout_length": length,
        "epochs": epochs,
        "minibatches": minibatches,
    }


def replayed(steps: int, num_envs: int, warm_up: int, capacity: int, batch_size: int) -> Values:
    """Learning from a replay buffer."""
    return {
        "steps": steps,
        "num_envs": num_envs,
        "warm_up_steps": warm_up,
        "capacity": capacity,
        "batch_size": batch_size,
    }


def without_epsilon(values: Values) -> Values:
    """The same for an agent that explores by the noise of its weights."""
    return {name: value for name, value in values.items() if not name.startswith("epsilon")}
