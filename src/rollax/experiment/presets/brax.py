"""Brax's bodies, for PPO."""

from __future__ import annotations

from rollax.experiment.presets.preset import H200, Preset, Values, falling_rate, rollouts

# A GPU steps thousands of bodies in the time of one, and what short rollouts teach is fresh.
ANT: Values = {
    **rollouts(10_485_760, num_envs=4_096, length=10, epochs=2, minibatches=4),
    **falling_rate(1e-3, 10_485_760.0),
    "hidden": (256, 256),
    "observations": "normalized",
    "rewards": "normalized",
    "discount": 0.97,
    "clip": 0.3,
    "entropy_weight": 0.0,
    "max_grad_norm": 1.0,
    "initial_deviation": 0.6,
}
PRESETS: dict[str, Preset] = {"ppo/brax:ant": Preset(ANT, "4,456 to 10,569 on three seeds, backend spring", H200)}
ENVIRONMENTS: dict[str, Values] = {}
