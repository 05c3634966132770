"""One training as numbers that every side of a comparison takes its own settings from, and the clock that all share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from rollax.errors import ConfigError

Side = Literal["rollax", "torch", "sb3", "sbx"]


@dataclass(frozen=True)
class Settings:
    """DQN with one-step targets, a uniform replay, Adam and a Huber loss: what all sides train.

    An iteration is one step of each environment and `gradient_steps` gradient steps.
    """

    env: str = "CartPole-v1"
    steps: int = 250_000
    num_envs: int = 10
    warm_up_steps: int = 1_000  # random steps before learning begins
    gradient_steps: int = 1
    batch_size: int = 128
    capacity: int = 100_000
    hidden: tuple[int, ...] = (128, 128)  # ReLU after each; SBX can only have two of one width
    learning_rate: float = 1e-3
    optimizer_eps: float = 1e-8
    max_grad_norm: float = 10.0
    discount: float = 0.99
    target_period: int = 50  # gradient steps between copies of the weights to the target
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 40_000  # after the warm-up
    eval_steps: int = 10_000
    eval_episodes: int = 20
    threshold: float = 475.0  # mean return of the greedy episodes of an evaluation

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Settings:
        made = cls(**values)
        return replace(made, hidden=tuple(made.hidden))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def epsilon(self, step: float) -> float:
        """The share of random actions after so many steps, the warm-up included."""
        share = min(max((step - self.warm_up_steps) / self.epsilon_steps, 0.0), 1.0)
        return self.epsilon_start + (self.epsilon_end - self.epsilon_start) * share

    @property
    def updates_per_step(self) -> float:
        return self.gradient_steps / self.num_envs

    @property
    def target_steps(self) -> int:
        """Environment steps between copies of the weights to the target."""
        return self.target_period * self.num_envs // self.gradient_steps

    def experiment(self, *, seed: int, seeds: int = 1, weights: Literal["torch", "flax"] = "torch") -> Any:
        """The same training as an experiment of the library."""
        from rollax.experiment.experiment import make_experiment

        numbers = asdict(self)
        del numbers["threshold"]  # training knows nothing of it; all others have the names of the library's settings
        return make_experiment(
            "dqn",
            preset="none",
            seed=seed,
            seeds=seeds,
            rollout_length=1,
            weights=weights,
            optimizer="adam",
            huber_kappa=1.0,
            target_step=1.0,
            log_steps=self.eval_steps,
            **numbers,
        )


def with_budget(settings: Settings, steps: int) -> Settings:
    """The settings for about so many steps: whole evaluations, at least two of them, and a warm-up before the first."""
    if steps < 2 * settings.num_envs:
        raise ConfigError(f"steps={steps} must be at least {2 * settings.num_envs}, two of each environment")
    unit = settings.num_envs
    every = min(settings.eval_steps, max(unit, steps // 2 // unit * unit))
    return replace(
        settings,
        steps=math.ceil(steps / every) * every,
        eval_steps=every,
        warm_up_steps=min(settings.warm_up_steps, every // 2 // unit * unit or unit),
    )


@dataclass
class Course:
    """The clock of a training, which stands still during evaluations, and what those found."""

    settings: Settings
    points: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    since: float = field(default_factory=time.perf_counter)
    opened: float = field(default_factory=time.time)  # when it began, for those who read another clock

    def due(self, step: int) -> bool:
        """Whether an evaluation is to happen now."""
        return step >= self.settings.eval_steps * (len(self.points) + 1)

    def reached(self, step: int, evaluate: Callable[[], Sequence[float]]) -> None:
        """Notes the step, the training's seconds so far, and a score for each member, which `evaluate` finds."""
        self.seconds += time.perf_counter() - self.since
        self.points.append({"step": step, "seconds": self.seconds, "scores": [float(score) for score in evaluate()]})
        self.since = time.perf_counter()
