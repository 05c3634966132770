"""Stable-Baselines3's DQN, and SBX's, which is its sister in JAX, with the settings of a comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from rollax.tools.bench.gymnasium_side import greedy_score
from rollax.tools.bench.settings import Course, Settings


def make_model(settings: Settings, side: str, seed: int, device: str = "cpu") -> Any:
    """The model, ready to learn.  Its exploration follows our schedule, which starts after the warm-up."""
    envs = make_vec_env(settings.env, n_envs=settings.num_envs, seed=seed)
    shared: dict[str, Any] = {
        "learning_rate": settings.learning_rate,
        "buffer_size": settings.capacity,
        "learning_starts": settings.warm_up_steps,
        "batch_size": settings.batch_size,
        "tau": 1.0,
        "gamma": settings.discount,
        "train_freq": 1,
        "gradient_steps": settings.gradient_steps,
        "target_update_interval": settings.target_steps,
        "seed": seed,
    }
    if side == "sb3":
        from stable_baselines3 import DQN
        from torch import nn

        policy = {
            "net_arch": list(settings.hidden),
            "activation_fn": nn.ReLU,
            "optimizer_kwargs": {"eps": settings.optimizer_eps},
        }
        norm = settings.max_grad_norm
        model: Any = DQN("MlpPolicy", envs, policy_kwargs=policy, max_grad_norm=norm, device=device, **shared)
    else:
        import optax
        from sbx import DQN as JaxDQN  # noqa: N811 - a class, though its name is an abbreviation

        def optimizer(learning_rate: float) -> optax.GradientTransformation:
            adam = optax.adam(learning_rate, eps=settings.optimizer_eps)
            return optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), adam)

        policy = {"net_arch": list(settings.hidden), "optimizer_class": optimizer}
        model = JaxDQN("MlpPolicy", envs, policy_kwargs=policy, **shared)
    model.exploration_schedule = lambda left: settings.epsilon((1.0 - left) * settings.steps)
    return model


class Watching(BaseCallback):
    """Evaluates when it is time."""

    def __init__(self, course: Course, seed: int) -> None:
        super().__init__()
        self.course, self.seed = course, seed

    def _on_step(self) -> bool:
        if self.course.due(self.num_timesteps):
            self.course.reached(self.num_timesteps, self.scores)
        return True

    def scores(self) -> list[float]:
        def act(obs: np.ndarray) -> np.ndarray:
            return np.asarray(self.model.predict(obs, deterministic=True)[0])

        return [greedy_score(self.course.settings, act, self.seed)]


def train(settings: Settings, side: str, seed: int, device: str = "cpu") -> Course:
    """A whole training.  SBX compiles when it first learns, which its clock sees."""
    model = make_model(settings, side, seed, device)
    course = Course(settings)
    model.learn(settings.steps, callback=Watching(course, seed), log_interval=10**9)
    return course
