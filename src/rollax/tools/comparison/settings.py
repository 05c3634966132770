"""What all modes of the comparison have in common: one experiment, as the numbers that another framework needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rollax.agents.dqn import DQNConfig
from rollax.agents.treasurehunt import QuietActing, ShrinkingEpsilon, SyncedTarget, WeightedLoss
from rollax.envs.treasurehunt import TreasureHunt
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.memory.epochs import EpochReplay
from rollax.networks.heads import ImplicitQuantileHead
from rollax.networks.streams import Streams
from rollax.networks.torsos import MLP
from rollax.networks.weights import TorchWeights

TYPICAL_EPSILON = 0.37  # where a thousand epochs end


@dataclass(frozen=True)
class Settings:
    """The treasure hunt, its learners, and how they remember and act."""

    world: TreasureHunt
    replay: EpochReplay
    width: int  # of the hidden layers
    quantiles: int
    cosines: int
    cosine_start: int
    noise_spread: float  # of noisy weights at first
    act_levels: int
    act_level_choice: Literal["random", "midpoint"]
    batch_size: int
    updates: int  # gradient steps of an epoch
    discount: float
    kappa: float
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


def settings_of(experiment: Experiment) -> Settings:
    """The experiment's numbers.  Raises ConfigError where it is made of parts that only JAX has."""
    config, hp, world = experiment.choices, experiment.hparams, experiment.world
    if not isinstance(world, TreasureHunt) or not isinstance(config, DQNConfig):
        raise ConfigError("the comparison plays TreasureHunt-v0 with irainbow")
    width = config.torso.hidden[0] if isinstance(config.torso, MLP) else 0
    scale = config.streams.noise_scale
    pairs: dict[str, tuple[Any, Any]] = {
        "torso": (config.torso, MLP(hidden=(width,))),
        "streams": (config.streams, Streams(True, shared_hidden=width, noise="independent", noise_scale=scale)),
        "replay": (type(config.replay), EpochReplay),
        "head": (type(config.head), ImplicitQuantileHead),
        "acting": (type(config.acting), QuietActing),
        "exploration": (type(hp.exploration), ShrinkingEpsilon),
        "target": (type(hp.target), SyncedTarget),
        "objective": (type(hp.objective), WeightedLoss),
        "weights": (type(config.weights), TorchWeights),
        "double": (config.double, True),
        "loss": (config.loss, "huber"),
        "optimizer": (config.optimizer, "adam"),
        "target_period": (hp.target.target_period, 1),
        "learning_rate_end": (hp.learning_rate_end, 1.0),
        "learners": (experiment.loop.learners, "independent"),
    }
    problems = [
        f"{name}={found} has no counterpart in PyTorch; it must be {known}"
        for name, (found, known) in pairs.items()
        if found != known
    ]
    if problems:
        raise ConfigError(problems)
    head, acting, replay = config.head, config.acting, config.replay
    assert isinstance(head, ImplicitQuantileHead)
    assert isinstance(acting, QuietActing)
    assert isinstance(replay, EpochReplay)
    return Settings(
        world=world,
        replay=replay,
        width=width,
        quantiles=head.quantiles,
        cosines=head.cosines,
        cosine_start=head.cosine_start,
        noise_spread=0.034 * scale,
        act_levels=acting.act_levels,
        act_level_choice=acting.act_level_choice,
        batch_size=config.batch_size,
        updates=config.gradient_steps,
        discount=hp.discount,
        kappa=hp.huber_kappa,
        loss_weight=hp.objective.loss_weight,
        learning_rate=hp.learning_rate,
        optimizer_eps=hp.optimizer_eps,
        max_grad_norm=hp.max_grad_norm,
        target_step=hp.target.target_step,
        sync_period=hp.target.sync_period,
        epsilon_start=hp.exploration.epsilon_start,
        epsilon_end=hp.exploration.epsilon_end,
        epsilon_decay=hp.exploration.epsilon_decay,
    )
