"""CartPole-v1 for every agent, Acrobot-v1 and MountainCar-v0 for Double DQN, continuous actions for SAC and PPO."""

from __future__ import annotations

from rollax.experiment.presets.preset import (
    TWO_CORES,
    TWO_XEON_CORES,
    Preset,
    Values,
    copied_target,
    falling_epsilon,
    falling_rate,
    replayed,
    rollouts,
    without_epsilon,
)

# Unit-sized inputs matter more than anything else here: angles and velocities are small numbers.
NETWORK: Values = {"hidden": (64, 64), "input_scale": (1.5, 1.0, 12.0, 1.0)}
CARTPOLE: Values = {
    **NETWORK,
    **replayed(413_696, num_envs=64, warm_up=4_096, capacity=102_400, batch_size=64),
    **falling_rate(0.003, 409_600.0),
    **copied_target(25),
    **falling_epsilon(60_000.0, end=0.02),
    "n_step": 3,
    "max_grad_norm": 100.0,
    "huber_kappa": 100.0,
}
ONE_STEP: Values = {
    **CARTPOLE,
    **falling_rate(0.005, 512_000.0),
    "steps": 516_096,
    "n_step": 1,
    "batch_size": 128,
    "epsilon_end": 0.1,
}
# More random actions, and none forgotten: the edges of the track are rarely seen by a good policy.
WIDE: Values = CARTPOLE | {"capacity": 409_600, "epsilon_end": 0.1}
# The noise of the weights must be large at first: nothing else explores.
NOISY: Values = without_epsilon(CARTPOLE) | {
    "hidden": (64,),
    "stream_hidden": 64,
    "noise_scale": 2.0,
    "learning_rate": 0.0044,
}
RANDOM_START: Values = {"epsilon_start": 1.0, **falling_epsilon(60_000.0, end=0.0)}
PRIORITIZED: Values = {"importance_steps": 409_600.0}
# Quantiles are quantiles only with a small kappa; larger batches make up for gradients that are smaller then.
QUANTILE: Values = WIDE | {"huber_kappa": 1.0, "batch_size": 128, "target_period": 50}
SUPPORT: Values = {
    "head.value_min": 0.0,
    "head.value_max": 100.0,
}  # 500 rewards of 1 at a discount of 0.99 are worth 99.3
RAINBOW: Values = {
    **NOISY,
    **PRIORITIZED,
    **SUPPORT,
    **RANDOM_START,
    "noise_scale": 0.5,
    "learning_rate": 0.0045,
    "target_period": 10,
}
IQN_RAINBOW: Values = {
    **NOISY,
    **RANDOM_START,
    "huber_kappa": 1.0,
    "quantiles": 32,
    "noise_scale": 0.5,
    "capacity": 409_600,
    "batch_size": 128,
    "gradient_steps": 2,
    "learning_rate": 0.003,
}
PQN: Values = {
    **NETWORK,
    **rollouts(524_288, num_envs=32, length=32, epochs=4, minibatches=8),
    **falling_rate(0.001, 524_288.0),
    **falling_epsilon(100_000.0, end=0.1),
    "warm_up_steps": 0,
    "trace_lambda": 0.9,
}
PPO: Values = {
    **NETWORK,
    **rollouts(524_288, num_envs=32, length=64, epochs=4, minibatches=4),
    **falling_rate(0.002, 524_288.0),
    "trace_lambda": 0.95,
    "max_grad_norm": 0.5,
    "entropy_weight": 0.01,
}
ACROBOT: Values = {
    **replayed(416_000, num_envs=32, warm_up=4_096, capacity=204_800, batch_size=256),
    **falling_rate(0.002, 410_000.0),
    "hidden": (128, 128),
    "input_scale": (2.0, 2.0, 2.0, 2.0, 1.0, 1.0),
    "optimizer_eps": 1e-4,
    "discount": 0.995,
    "huber_kappa": 10.0,
    "target_step": 0.06,
    "epsilon_steps": 100_000.0,
}
# Sparse: long n-step windows carry the rare goal back, and values that start above every true return explore.
MOUNTAIN_CAR: Values = {
    **replayed(823_296, num_envs=32, warm_up=4_096, capacity=409_600, batch_size=128),
    **falling_rate(0.007, 819_200.0, end=0.02),
    **copied_target(300),
    **falling_epsilon(50_000.0, end=0.02),
    "hidden": (64, 64),
    "input_scale": (2.0, 30.0),
    "n_step": 8,
    "max_grad_norm": 100.0,
    "huber_kappa": 10.0,
}
SOLVED = "500.0 on each of five seeds"
SAC_PENDULUM: Values = {
    **replayed(20_000, num_envs=1, warm_up=1_000, capacity=20_480, batch_size=256),
    **falling_rate(0.001, 20_000.0),
    "hidden": (64, 64),
    "target_step": 0.01,
}
PPO_PENDULUM: Values = {
    **rollouts(100_352, num_envs=16, length=128, epochs=10, minibatches=32),
    **falling_rate(0.001, 100_352.0),
    "reward_scale": 0.1,
    "discount": 0.95,
    "trace_lambda": 0.95,
}
# Independent noise cancels itself out before the car has moved: the goal is found by pushing one way for long.
SAC_CAR: Values = {
    **replayed(50_000, num_envs=8, warm_up=8_000, capacity=51_200, batch_size=256),
    "hidden": (64, 64),
    "input_scale": (1.0, 15.0),
    "learning_rate": 0.001,
    "target_step": 0.01,
    "gradient_steps": 2,
    "noise_correlation": 0.95,
}
PPO_CAR: Values = {
    **rollouts(200_704, num_envs=16, length=128, epochs=10, minibatches=32),
    **falling_rate(0.001, 200_704.0),
    "input_scale": (1.0, 15.0),
    "reward_scale": 0.1,
    "entropy_weight": 0.0,
    "noise_correlation": 0.95,
}


PRESETS: dict[str, Preset] = {
    "dqn/CartPole-v1": Preset(ONE_STEP, SOLVED, TWO_CORES),
    "double/CartPole-v1": Preset(CARTPOLE, "500.0 on each of ten seeds", TWO_CORES),
    "dueling/CartPole-v1": Preset(WIDE, SOLVED, TWO_CORES),
    "n_step/CartPole-v1": Preset(CARTPOLE, SOLVED, TWO_CORES),
    "prioritized/CartPole-v1": Preset(
        CARTPOLE | PRIORITIZED, "500.0 on four of five seeds, 499.8 on the other", TWO_CORES
    ),
    "apex/CartPole-v1": Preset(WIDE | PRIORITIZED, SOLVED, TWO_CORES),
    "noisy/CartPole-v1": Preset(NOISY, SOLVED, TWO_CORES),
    "c51/CartPole-v1": Preset(CARTPOLE | SUPPORT | {"epsilon_end": 0.05}, SOLVED, TWO_CORES),
    "qr/CartPole-v1": Preset(QUANTILE | {"learning_rate": 0.0045}, SOLVED, TWO_CORES),
    "iqn/CartPole-v1": Preset(
        QUANTILE | {"quantiles": 8, "learning_rate": 0.003, "max_grad_norm": 10.0},
        "495.3 to 500.0 on five seeds",
        TWO_CORES,
    ),
    "munchausen/CartPole-v1": Preset(
        ONE_STEP | {"temperature": 0.3, "learning_rate": 0.004, "epsilon_end": 0.05}, SOLVED, TWO_CORES
    ),
    "rainbow/CartPole-v1": Preset(RAINBOW, SOLVED, TWO_CORES),
    "irainbow/CartPole-v1": Preset(IQN_RAINBOW, "483.4 to 500.0 on five seeds", TWO_CORES),
    "pqn/CartPole-v1": Preset(PQN, SOLVED, TWO_CORES),
    "ppo/CartPole-v1": Preset(PPO, "500.0 on each of ten seeds", TWO_CORES),
    "double/Acrobot-v1": Preset(ACROBOT, "-78.5 over ten seeds, -81.8 on the worst", TWO_CORES),
    "sac/Pendulum-v1": Preset(SAC_PENDULUM, "-145.6 over ten seeds, -158.9 on the worst", TWO_XEON_CORES),
    "ppo/Pendulum-v1": Preset(PPO_PENDULUM, "-155.1 over ten seeds, -169.0 on the worst", TWO_XEON_CORES),
    "sac/MountainCarContinuous-v0": Preset(SAC_CAR, "94.3 to 95.0 on ten seeds", TWO_XEON_CORES),
    "ppo/MountainCarContinuous-v0": Preset(PPO_CAR, "93.8 to 94.3 on ten seeds", TWO_XEON_CORES),
    "double/MountainCar-v0": Preset(MOUNTAIN_CAR, "-100.9 over ten seeds, -108.3 on the worst", TWO_CORES),
}
ENVIRONMENTS: dict[str, Values] = {
    "CartPole-v1": SUPPORT,
    **{name: {"head.value_min": -100.0, "head.value_max": 0.0} for name in ("Acrobot-v1", "MountainCar-v0")},
}
