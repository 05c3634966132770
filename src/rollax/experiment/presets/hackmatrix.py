"""HackMatrix for PPO: ours, and what the reference game's agent was trained with, which serves anywhere."""

from __future__ import annotations

from rollax.experiment.presets.preset import H200, Preset, Values, falling_rate, rollouts

PPO: Values = {
    **rollouts(50_000_000, num_envs=1_024, length=64, epochs=2, minibatches=16),
    **falling_rate(1e-3, 5e7, end=0.05),
    "hidden": (64, 64),
    "shared": True,
    "discount": 0.995,
    "max_grad_norm": 0.5,
    "entropy_weight": 0.05,
    "entropy_end": 0.2,
    "entropy_steps": 5e7,
    "reward_scale": 0.2,
    "evaluation_draws": True,
    "max_episode_steps": 2_000,
}
REFERENCE: Values = {
    **rollouts(10_000_000, num_envs=256, length=128, epochs=4, minibatches=4),
    "torso": "mlp",
    "hidden": (256, 256),
    "learning_rate": 2.5e-4,
    "discount": 0.99,
    "trace_lambda": 0.95,
    "clip": 0.2,
    "value_weight": 0.5,
    "entropy_weight": 0.1,
    "max_grad_norm": 0.5,
}
PRESETS: dict[str, Preset] = {
    "ppo": Preset(REFERENCE),
    "ppo/HackMatrix-v0": Preset(
        PPO, "101.58 over three seeds; 67.30 with --no-undo-across-stages, as it was trained", H200
    ),
}
ENVIRONMENTS: dict[str, Values] = {"HackMatrix-v0": {"torso": "hackmatrix", "record.max_episode_steps": 2_000}}
