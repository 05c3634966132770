"""What all modes of the comparison have in common: one experiment, as the numbers that another framework needs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from rollax.agents.dqn import DQNConfig
from rollax.envs.treasurehunt import TreasureHunt
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.experiment.tree import leaves, parts_of
from rollax.memory.epochs import EpochReplay

TYPICAL_EPSILON = 0.37  # where a thousand epochs end
# What PyTorch's mode is written for: the parts of an agent, and the settings that it does not read.
COUNTERPARTS: dict[str, Any] = {
    "torso": "mlp",
    "head": "implicit_quantile",
    "backup": "greedy",
    "replay": "epoch",
    "acting": "quiet",
    "exploration": "shrinking",
    "target": "synced",
    "objective": "weighted",
    "weights": "torch",
    "layer_norm": False,
    "input_scale": (),
    "dueling": True,
    "stream_hidden": 0,
    "noise": "independent",
    "double": True,
    "loss": "huber",
    "optimizer": "adam",
    "target_period": 1,
    "learning_rate_end": 1.0,
    "learners": "independent",
}


@dataclass(frozen=True)
class Settings:
    """The treasure hunt, its learners, and how they remember and act; numbers have the experiment's names."""

    world: TreasureHunt
    replay: EpochReplay
    shared_hidden: int  # width of all hidden layers
    quantiles: int
    cosines: int
    cosine_start: int
    noise_scale: float
    act_levels: int
    act_level_choice: Literal["random", "midpoint"]
    batch_size: int
    gradient_steps: int  # of an epoch
    discount: float
    huber_kappa: float
    loss_weight: float  # of the sum over predicted quantiles
    learning_rate: float
    optimizer_eps: float
    max_grad_norm: float
    target_step: float
    sync_period: int  # epochs
    epsilon_start: float
    epsilon_end: float
    epsilon_decay: float

    @property
    def inputs(self) -> int:
        """Numbers that a network sees: all frames of an observation."""
        return self.world.frames * self.world.rules.observation_size

    @property
    def noise_spread(self) -> float:
        """Of noisy weights at first."""
        return 0.034 * self.noise_scale


def settings_of(experiment: Experiment) -> Settings:
    """The experiment's numbers.  Raises ConfigError where it is made of parts that only JAX has."""
    world, config = experiment.world, experiment.choices
    if not isinstance(world, TreasureHunt) or not isinstance(config, DQNConfig):
        raise ConfigError("the comparison plays TreasureHunt-v0 with irainbow")
    values: dict[str, Any] = {leaf.name: leaf.value for leaf in leaves(experiment)} | parts_of(experiment)
    pairs = COUNTERPARTS | {"hidden": (values.get("shared_hidden"),)}
    problems = [
        f"{name}={values[name]} has no counterpart in PyTorch; it must be {known}"
        for name, known in pairs.items()
        if name in values and values[name] != known
    ]
    if problems:
        raise ConfigError(problems)
    assert isinstance(config.replay, EpochReplay)
    numbers = {field.name: values[field.name] for field in fields(Settings) if field.name not in ("world", "replay")}
    return Settings(world=world, replay=config.replay, **numbers)
