"""MinAtar's five games, as gymnax has them, for PQN, QR-DQN and PPO."""

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
)

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
PQN: Values = {
    **rollouts(10_000_000, num_envs=128, length=32, epochs=2, minibatches=32),
    **falling_rate(5e-4, 1e7),
    **falling_epsilon(1e6, end=0.01),
    "torso": "minatar",
    "warm_up_steps": 0,
    "trace_lambda": 0.65,
}
# One update of 512 for 128 steps: each transition is seen four times.
QR: Values = {
    **replayed(10_027_008, num_envs=128, warm_up=32_768, capacity=262_144, batch_size=512),
    **falling_rate(8e-4, 1e7, end=0.05),
    **copied_target(100),
    **falling_epsilon(1e6, end=0.02),
    "torso": "minatar",
    "n_step": 3,
    "double": True,
    "quantiles": 32,
}
PPO: Values = {
    **rollouts(10_000_000, num_envs=128, length=64, epochs=4, minibatches=8),
    **falling_rate(2e-3, 1e7),
    "torso": "minatar",
    "hidden": (64, 64),
    "shared": True,
    "max_grad_norm": 10.0,
    "entropy_weight": 0.03,
}
# Mean return over seeds: ten for PQN and QR-DQN, five for PPO.
MEASURED: dict[str, dict[str, float]] = {
    "pqn": {"Asterix": 69.7, "Breakout": 84.4, "Freeway": 66.9, "Seaquest": 72.9, "SpaceInvaders": 161.3},
    "qr": {"Asterix": 67.8, "Breakout": 70.7, "Freeway": 64.6, "Seaquest": 75.7, "SpaceInvaders": 154.0},
    "ppo": {"Asterix": 68.0, "Breakout": 79.6, "SpaceInvaders": 168.4},
}


def measured(agent: str, game: str, values: Values) -> Preset:
    """The preset of an agent in a game, with its score if there is one."""
    if game not in MEASURED[agent]:
        return Preset(values)
    return Preset(values, f"{MEASURED[agent][game]} over {'five' if agent == 'ppo' else 'ten'} seeds", H200)


PRESETS: dict[str, Preset] = {
    f"{agent}/{game}-MinAtar": measured(agent, game, values)
    for agent, values in {"pqn": PQN, "qr": QR, "ppo": PPO}.items()
    for game in GAMES
}
ENVIRONMENTS: dict[str, Values] = {
    f"{game}-MinAtar": {"torso": "minatar", "head.value_min": 0.0, "head.value_max": 20.0} for game in GAMES
}
