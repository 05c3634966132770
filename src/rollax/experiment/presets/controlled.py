"""The same settings for every agent of the DQN family, so that two of them differ in their ideas alone."""

from __future__ import annotations

from typing import Any

from rollax.agents.dqn import FAMILY
from rollax.experiment.presets.preset import (
    Values,
    copied_target,
    falling_epsilon,
    falling_rate,
    replayed,
    without_epsilon,
)

NAME = "controlled"
# A hidden layer in each stream, as agents with two streams or noisy layers have it by themselves.  What remains to an
# agent is its idea: its head, its backup, its replay, its n-step, noise in place of random actions, two streams.
VALUES: Values = {
    **replayed(200_000, num_envs=16, warm_up=2_048, capacity=51_200, batch_size=64),
    **falling_rate(5e-4, 200_000.0, end=1.0),
    **copied_target(400),
    **falling_epsilon(20_000.0, end=0.05),
    "stream_hidden": 64,
    "gradient_steps": 1,
    "discount": 0.99,
    "huber_kappa": 1.0,
    "max_grad_norm": 10.0,
    "importance_steps": 200_000.0,
}


def values_for(agent: str) -> Values | None:
    """The settings of an agent; None for one that is not of the family."""
    if agent not in FAMILY:
        return None
    return without_epsilon(VALUES) if explores_by_noise(agent) else VALUES


def explores_by_noise(agent: str) -> bool:
    """Whether an agent of the family has noisy layers in place of random actions."""
    choices: Any = FAMILY[agent].choices
    return choices.streams.noise != "none"
