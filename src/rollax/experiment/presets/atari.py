"""Atari's games, whichever: these apply to all names that begin with ALE/."""

from __future__ import annotations

from rollax.experiment.presets.preset import (
    H200,
    Preset,
    Values,
    copied_target,
    falling_epsilon,
    falling_rate,
    replayed,
    rollouts,
    without_epsilon,
)

PQN: Values = {
    **rollouts(10_000_000, num_envs=128, length=32, epochs=4, minibatches=32),
    **falling_rate(2.5e-4, 1e7),
    **falling_epsilon(1e6, end=0.01),
    "warm_up_steps": 0,
    "layer_norm": True,
    "optimizer_eps": 1e-5,
    "trace_lambda": 0.65,
}
PPO: Values = {
    **rollouts(10_000_000, num_envs=64, length=64, epochs=4, minibatches=16),
    **falling_rate(2.5e-4, 1e7),
    "shared": True,
    "optimizer_eps": 1e-5,
    "clip": 0.1,
    "entropy_weight": 0.01,
    "max_grad_norm": 0.5,
    "evaluation_draws": True,
}
# One update of 32 for each 4 steps.
DQN: Values = {
    **replayed(10_000_000, num_envs=64, warm_up=80_000, capacity=1_000_000, batch_size=32),
    **copied_target(2_000),
    **falling_epsilon(1e6, end=0.01),
    "gradient_steps": 16,
    "learning_rate": 1e-4,
    "optimizer_eps": 1.5e-4,
    "importance_steps": 1e7,
    "checkpoint_seconds": 600.0,  # a million frames are 7 GB
}
STREAMS: Values = {"stream_hidden": 512, "hidden": ()}
NOISY: Values = without_epsilon(DQN) | STREAMS | {"learning_rate": 6.25e-5}
VALUES: dict[str, Values] = {
    "ppo": PPO,
    **dict.fromkeys(("dqn", "double", "n_step", "prioritized", "c51", "qr", "iqn", "munchausen"), DQN),
    **dict.fromkeys(("dueling", "apex"), DQN | STREAMS),
    **dict.fromkeys(("noisy", "rainbow", "irainbow"), NOISY),
}
PRESETS: dict[str, Preset] = {
    "pqn/ALE": Preset(PQN, "Pong 19.7 after 2.5 M steps, Breakout 436.8 after 9 M with --life-loss, one seed", H200),
    **{f"{agent}/ALE": Preset(values) for agent, values in VALUES.items()},
}
ENVIRONMENTS: dict[str, Values] = {
    "ALE": {
        "torso": "nature",
        "head.value_min": -10.0,
        "head.value_max": 10.0,
        "choices.evaluation_epsilon": 0.01,
        "record.eval_episodes": 30,
        "record.max_episode_steps": 27_000,
    },
}
