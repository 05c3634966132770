"""Tasks that need a memory, for recurrent `pqn` and `ppo`, and `r2d2`."""

from __future__ import annotations

from rollax.experiment.presets import minatar
from rollax.experiment.presets.preset import H200, TWO_CORES, Preset, Values, falling_epsilon, falling_rate, rollouts

NETWORK: Values = {"recurrence": "gru", "hidden": (64,), "units": 64}
# A rollout is longer than what must be remembered: gradients go back to its beginning and no further.
CHAIN: Values = {
    **NETWORK,
    **rollouts(524_288, num_envs=32, length=128, epochs=4, minibatches=8),
    **falling_rate(0.001, 524_288.0),
    "memory_length": 64,
    "discount": 0.99,
    "trace_lambda": 0.95,
    "max_grad_norm": 1.0,
}
PQN_CHAIN: Values = CHAIN | falling_epsilon(200_000.0, end=0.02)
# Rewards of 1 in each of 500 steps are values of a hundred, which a recurrent network is slow to reach.
POSITIONS: Values = {
    **NETWORK,
    **rollouts(524_288, num_envs=32, length=64, epochs=4, minibatches=8),
    **falling_rate(0.001, 524_288.0),
    "input_scale": (1.5, 12.0),
    "trace_lambda": 0.9,
    "reward_scale": 0.05,
}
SYMBOLS: Values = {
    **NETWORK,
    **rollouts(262_144, num_envs=32, length=64, epochs=4, minibatches=8),
    **falling_rate(0.001, 262_144.0),
    "trace_lambda": 0.9,
    "discount": 0.9,
}
R2D2_SYMBOLS: Values = {
    "hidden": (64,),
    "units": 64,
    "steps": 102_400,
    "discount": 0.5,  # no action changes what comes later
    "learning_rate": 0.001,
    "gradient_steps": 2,
    **falling_epsilon(50_000.0, end=0.02),
}
# A sequence holds a whole episode, and long windows bring its only reward to all steps that must remember for it.
R2D2_CHAIN: Values = {
    "hidden": (64,),
    "units": 64,
    "steps": 262_144,
    "num_envs": 32,
    "rollout_length": 64,
    "memory_length": 64,
    "sequence": 128,
    "burn_in": 0,
    "stride": 64,
    "n_step": 16,
    "capacity": 65_536,
    "warm_up_steps": 8_192,
    "batch_size": 16,
    "gradient_steps": 16,
    "max_grad_norm": 1.0,
    **falling_rate(0.001, 262_144.0),
    **falling_epsilon(65_536.0, end=0.02),
}
BREAKOUT: Values = minatar.PQN | {"recurrence": "gru", "units": 128, "minibatches": 16}
PRESETS: dict[str, Preset] = {
    "pqn/TraillessBreakout-v0": Preset(BREAKOUT, "95 to 104 on five seeds; 13 to 21 without a memory", H200),
    "r2d2/RepeatFirst-v0": Preset(R2D2_SYMBOLS, "0.997 to 1.0 on ten seeds", TWO_CORES),
    "r2d2/MemoryChain-bsuite": Preset(R2D2_CHAIN, "1.0 on each of ten seeds, memory_length=64", TWO_CORES),
    "pqn/MemoryChain-bsuite": Preset(PQN_CHAIN, "1.0 on each of ten seeds, memory_length=64 and 100", TWO_CORES),
    "ppo/MemoryChain-bsuite": Preset(
        CHAIN | {"entropy_weight": 0.02}, "1.0 on each of ten seeds, memory_length=64 and 100", TWO_CORES
    ),
    "pqn/PositionOnlyCartPole-v0": Preset(
        POSITIONS | falling_epsilon(100_000.0, end=0.05), "485 to 500.0 on ten seeds", TWO_CORES
    ),
    "ppo/PositionOnlyCartPole-v0": Preset(
        POSITIONS | {"trace_lambda": 0.95, "max_grad_norm": 0.5}, "500.0 on each of ten seeds", TWO_CORES
    ),
    "pqn/RepeatFirst-v0": Preset(SYMBOLS | falling_epsilon(100_000.0, end=0.02), "1.0 on each of ten seeds", TWO_CORES),
    "ppo/RepeatFirst-v0": Preset(SYMBOLS, "1.0 on each of ten seeds", TWO_CORES),
}
ENVIRONMENTS: dict[str, Values] = {"TraillessBreakout-v0": minatar.ENVIRONMENTS["Breakout-MinAtar"]}
