"""Settings that were measured to work: the preset of an agent in an environment applies by itself."""

from __future__ import annotations

from typing import Any

from rollax.errors import ConfigError, did_you_mean

# Unit-sized inputs matter more than anything else here: angles and velocities are small numbers.
CARTPOLE: dict[str, Any] = {
    "steps": 413_696,
    "num_envs": 64,
    "warm_up_steps": 4_096,
    "hidden": (64, 64),
    "input_scale": (1.5, 1.0, 12.0, 1.0),
    "capacity": 102_400,
    "n_step": 3,
    "batch_size": 64,
    "learning_rate": 0.003,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 409_600.0,
    "max_grad_norm": 100.0,
    "huber_kappa": 100.0,
    "target_period": 25,
    "target_step": 1.0,
    "epsilon_end": 0.02,
    "epsilon_steps": 60_000.0,
}
ONE_STEP_CARTPOLE = CARTPOLE | {
    "steps": 516_096,
    "n_step": 1,
    "batch_size": 128,
    "learning_rate": 0.005,
    "learning_rate_steps": 512_000.0,
    "epsilon_end": 0.1,
}
# More random actions, and none forgotten: the edges of the track are rarely seen by a good policy.
WIDE_CARTPOLE = CARTPOLE | {"capacity": 409_600, "epsilon_end": 0.1}
# The noise of the weights must be large at first: nothing else explores.
NOISY_CARTPOLE = {name: value for name, value in CARTPOLE.items() if not name.startswith("epsilon")} | {
    "hidden": (64,),
    "stream_hidden": 64,
    "noise_scale": 2.0,
    "learning_rate": 0.0044,
}
RANDOM_START = {"epsilon_start": 1.0, "epsilon_end": 0.0, "epsilon_steps": 60_000.0}
PRIORITIZED_CARTPOLE = {"importance_steps": 409_600.0}
# Quantiles are quantiles only with a small kappa; larger batches make up for gradients that are smaller then.
QUANTILE_CARTPOLE = WIDE_CARTPOLE | {"huber_kappa": 1.0, "batch_size": 128, "target_period": 50}
C51_CARTPOLE = {"value_min": 0.0, "value_max": 100.0}  # 500 rewards of 1 at a discount of 0.99 are worth 99.3
PQN_CARTPOLE: dict[str, Any] = {
    "steps": 524_288,
    "num_envs": 32,
    "rollout_length": 32,
    "warm_up_steps": 0,
    "hidden": (64, 64),
    "input_scale": (1.5, 1.0, 12.0, 1.0),
    "epochs": 4,
    "minibatches": 8,
    "learning_rate": 0.001,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 524_288.0,
    "trace_lambda": 0.9,
    "epsilon_end": 0.1,
    "epsilon_steps": 100_000.0,
}
# What the reference game's own agent was trained with.
PPO: dict[str, Any] = {
    "torso": "mlp",
    "hidden": (256, 256),
    "steps": 10_000_000,
    "num_envs": 256,
    "rollout_length": 128,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 2.5e-4,
    "discount": 0.99,
    "trace_lambda": 0.95,
    "clip": 0.2,
    "value_weight": 0.5,
    "entropy_weight": 0.1,
    "max_grad_norm": 0.5,
}
PPO_CARTPOLE: dict[str, Any] = {
    "steps": 524_288,
    "num_envs": 32,
    "rollout_length": 64,
    "hidden": (64, 64),
    "input_scale": (1.5, 1.0, 12.0, 1.0),
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 0.002,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 524_288.0,
    "trace_lambda": 0.95,
    "max_grad_norm": 0.5,
    "entropy_weight": 0.01,
}
PPO_MINATAR: dict[str, Any] = {
    "torso": "minatar",
    "hidden": (64, 64),
    "shared": True,
    "steps": 10_000_000,
    "num_envs": 128,
    "rollout_length": 64,
    "epochs": 4,
    "minibatches": 8,
    "learning_rate": 2e-3,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 1e7,
    "max_grad_norm": 10.0,
    "entropy_weight": 0.03,
}
PPO_HACKMATRIX: dict[str, Any] = {
    "hidden": (64, 64),
    "steps": 50_000_000,
    "shared": True,
    "num_envs": 1_024,
    "rollout_length": 64,
    "epochs": 2,
    "minibatches": 16,
    "learning_rate": 1e-3,
    "learning_rate_end": 0.05,
    "learning_rate_steps": 5e7,
    "discount": 0.995,
    "max_grad_norm": 0.5,
    "entropy_weight": 0.05,
    "entropy_end": 0.2,
    "entropy_steps": 5e7,
    "reward_scale": 0.2,
    "evaluation_draws": True,
    "max_episode_steps": 2_000,
}
ACROBOT: dict[str, Any] = {
    "steps": 416_000,
    "num_envs": 32,
    "warm_up_steps": 4_096,
    "hidden": (128, 128),
    "input_scale": (2.0, 2.0, 2.0, 2.0, 1.0, 1.0),
    "capacity": 204_800,
    "batch_size": 256,
    "learning_rate": 0.002,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 410_000.0,
    "optimizer_eps": 1e-4,
    "discount": 0.995,
    "huber_kappa": 10.0,
    "target_step": 0.06,
    "epsilon_steps": 100_000.0,
}
# Sparse: long n-step windows carry the rare goal back, and values that start above every true return explore.
MOUNTAIN_CAR: dict[str, Any] = {
    "steps": 823_296,
    "num_envs": 32,
    "warm_up_steps": 4_096,
    "hidden": (64, 64),
    "input_scale": (2.0, 30.0),
    "capacity": 409_600,
    "n_step": 8,
    "batch_size": 128,
    "learning_rate": 0.007,
    "learning_rate_end": 0.02,
    "learning_rate_steps": 819_200.0,
    "max_grad_norm": 100.0,
    "huber_kappa": 10.0,
    "target_period": 300,
    "target_step": 1.0,
    "epsilon_end": 0.02,
    "epsilon_steps": 50_000.0,
}
MINATAR_GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
PQN_MINATAR: dict[str, Any] = {
    "torso": "minatar",
    "steps": 10_000_000,
    "num_envs": 128,
    "rollout_length": 32,
    "warm_up_steps": 0,
    "epochs": 2,
    "minibatches": 32,
    "learning_rate": 5e-4,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 1e7,
    "trace_lambda": 0.65,
    "epsilon_end": 0.01,
    "epsilon_steps": 1e6,
}
# One update of 512 for 128 steps: each transition is seen four times.
QR_MINATAR: dict[str, Any] = {
    "torso": "minatar",
    "steps": 10_027_008,
    "num_envs": 128,
    "warm_up_steps": 32_768,
    "capacity": 262_144,
    "n_step": 3,
    "double": True,
    "batch_size": 512,
    "quantiles": 32,
    "learning_rate": 8e-4,
    "learning_rate_end": 0.05,
    "learning_rate_steps": 1e7,
    "target_period": 100,
    "target_step": 1.0,
    "epsilon_end": 0.02,
    "epsilon_steps": 1e6,
}
# The treasure hunt's benchmark: an epoch of 50 turns is one iteration, after which every player learns once.
TREASURE_HUNT: dict[str, Any] = {
    "torso": "mlp",
    "hidden": (250,),
    "dueling": True,
    "shared_hidden": 250,
    "stream_hidden": 0,
    "noise": "independent",
    "noise_scale": 0.5,
    "quantiles": 12,
    "cosines": 64,
    "cosine_start": 1,
    "double": True,
    "acting": "quiet",
    "act_levels": 32,
    "weights": "torch",
    "replay": "epoch",
    "capacity": 1_024,
    "n_step": 1,
    "steps": 50_000,
    "num_envs": 1,
    "rollout_length": 50,
    "warm_up_steps": 0,
    "batch_size": 256,
    "gradient_steps": 1,
    "learning_rate": 2.5e-4,
    "max_grad_norm": 1.0,
    "objective": "weighted",
    "loss_weight": 1 / 12,  # the mean over quantiles in place of their sum
    "huber_kappa": 1.0,
    "discount": 0.99,
    "target_period": 1,
    "target_step": 0.001,
    "target": "synced",
    "sync_period": 200,
    "exploration": "shrinking",
    "epsilon_start": 1.0,
    "epsilon_end": 0.0,
    "epsilon_decay": 0.001,
}
# The same with what its reference does otherwise.
TREASURE_HUNT_REFERENCE: dict[str, Any] = TREASURE_HUNT | {
    "act_levels": 256,
    "n_step": 3,
    "nstep_mode": "discount_only",
    "gap_fill": "stale",
    "gap_size": 0,
    "episode_end": "never",
    "sample_index": "physical",
    "stale_frames": 1_024,
    "eval_episodes": 20,
}
# The same learner, tuned: four small steps of each epoch in place of a large one, and greedy much sooner.
TREASURE_HUNT_TUNED: dict[str, Any] = TREASURE_HUNT | {
    "steps": 17_500,
    "eval_episodes": 30,
    "capacity": 4_096,
    "batch_size": 64,
    "gradient_steps": 4,
    "learning_rate": 1.5e-3,
    "learning_rate_end": 0.1,
    "learning_rate_steps": 17_500.0,
    "max_grad_norm": 10.0,
    "discount": 0.8,
    "target_step": 0.01,
    "sync_period": 25,
    "epsilon_end": 0.05,
    "epsilon_decay": 0.02,
}
# An Atari game, whichever: these apply to all names that begin with ALE/.
PQN_ATARI: dict[str, Any] = {
    "steps": 10_000_000,
    "num_envs": 128,
    "rollout_length": 32,
    "warm_up_steps": 0,
    "layer_norm": True,
    "epochs": 4,
    "minibatches": 32,
    "learning_rate": 2.5e-4,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 1e7,
    "optimizer_eps": 1e-5,
    "trace_lambda": 0.65,
    "epsilon_end": 0.01,
    "epsilon_steps": 1e6,
}
PPO_ATARI: dict[str, Any] = {
    "steps": 10_000_000,
    "num_envs": 64,
    "rollout_length": 64,
    "shared": True,
    "epochs": 4,
    "minibatches": 16,
    "learning_rate": 2.5e-4,
    "learning_rate_end": 0.0,
    "learning_rate_steps": 1e7,
    "optimizer_eps": 1e-5,
    "clip": 0.1,
    "entropy_weight": 0.01,
    "max_grad_norm": 0.5,
    "evaluation_draws": True,
}
# One update of 32 for each 4 steps.
DQN_ATARI: dict[str, Any] = {
    "steps": 10_000_000,
    "num_envs": 64,
    "warm_up_steps": 80_000,
    "capacity": 1_000_000,
    "batch_size": 32,
    "gradient_steps": 16,
    "learning_rate": 1e-4,
    "optimizer_eps": 1.5e-4,
    "target_period": 2_000,
    "target_step": 1.0,
    "epsilon_end": 0.01,
    "epsilon_steps": 1e6,
    "importance_steps": 1e7,
    "checkpoint_seconds": 600.0,  # a million frames are 7 GB
}
NOISY_ATARI: dict[str, Any] = {name: value for name, value in DQN_ATARI.items() if not name.startswith("epsilon")} | {
    "stream_hidden": 512,
    "hidden": (),
    "learning_rate": 6.25e-5,
}
PRESETS: dict[str, dict[str, Any]] = {
    "pqn/ALE": PQN_ATARI,
    "ppo/ALE": PPO_ATARI,
    **{
        f"{agent}/ALE": DQN_ATARI
        for agent in ("dqn", "double", "n_step", "prioritized", "c51", "qr", "iqn", "munchausen")
    },
    **{f"{agent}/ALE": DQN_ATARI | {"stream_hidden": 512, "hidden": ()} for agent in ("dueling", "apex")},
    **{f"{agent}/ALE": NOISY_ATARI for agent in ("noisy", "rainbow", "irainbow")},
    "irainbow/TreasureHunt-v0": TREASURE_HUNT,
    "irainbow/TreasureHunt-v0/reference": TREASURE_HUNT_REFERENCE,
    "irainbow/TreasureHunt-v0/tuned": TREASURE_HUNT_TUNED,
    "dqn/CartPole-v1": ONE_STEP_CARTPOLE,
    "double/CartPole-v1": CARTPOLE,
    "dueling/CartPole-v1": WIDE_CARTPOLE,
    "n_step/CartPole-v1": CARTPOLE,
    "prioritized/CartPole-v1": CARTPOLE | PRIORITIZED_CARTPOLE,
    "apex/CartPole-v1": WIDE_CARTPOLE | PRIORITIZED_CARTPOLE,
    "noisy/CartPole-v1": NOISY_CARTPOLE,
    "c51/CartPole-v1": CARTPOLE | C51_CARTPOLE | {"epsilon_end": 0.05},
    "qr/CartPole-v1": QUANTILE_CARTPOLE | {"learning_rate": 0.0045},
    "iqn/CartPole-v1": QUANTILE_CARTPOLE | {"quantiles": 8, "learning_rate": 0.003, "max_grad_norm": 10.0},
    "munchausen/CartPole-v1": ONE_STEP_CARTPOLE | {"temperature": 0.3, "learning_rate": 0.004, "epsilon_end": 0.05},
    "rainbow/CartPole-v1": NOISY_CARTPOLE
    | PRIORITIZED_CARTPOLE
    | C51_CARTPOLE
    | RANDOM_START
    | {"noise_scale": 0.5, "learning_rate": 0.0045, "target_period": 10},
    "irainbow/CartPole-v1": NOISY_CARTPOLE
    | RANDOM_START
    | {
        "huber_kappa": 1.0,
        "quantiles": 32,
        "noise_scale": 0.5,
        "capacity": 409_600,
        "batch_size": 128,
        "gradient_steps": 2,
        "learning_rate": 0.003,
    },
    "pqn/CartPole-v1": PQN_CARTPOLE,
    **{f"pqn/{game}-MinAtar": PQN_MINATAR for game in MINATAR_GAMES},
    "ppo": PPO,
    "ppo/CartPole-v1": PPO_CARTPOLE,
    **{f"ppo/{game}-MinAtar": PPO_MINATAR for game in MINATAR_GAMES},
    "ppo/HackMatrix-v0": PPO_HACKMATRIX,
    **{f"qr/{game}-MinAtar": QR_MINATAR for game in MINATAR_GAMES},
    "double/Acrobot-v1": ACROBOT,
    "double/MountainCar-v0": MOUNTAIN_CAR,
}


# What an environment asks of every agent that has the field: pictures, and the range of its discounted returns.
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartPole-v1": C51_CARTPOLE,
    "Acrobot-v1": {"value_min": -100.0, "value_max": 0.0},
    "MountainCar-v0": {"value_min": -100.0, "value_max": 0.0},
    "HackMatrix-v0": {"torso": "hackmatrix", "max_episode_steps": 2_000},
    **{f"{game}-MinAtar": {"torso": "minatar", "value_min": 0.0, "value_max": 20.0} for game in MINATAR_GAMES},
    "ALE": {
        "torso": "nature",
        "value_min": -10.0,
        "value_max": 10.0,
        "evaluation_epsilon": 0.01,
        "eval_episodes": 30,
        "max_episode_steps": 27_000,
    },
}


def known_as(env: str) -> str:
    """The name under which settings for an environment are kept: all games of ALE share theirs."""
    return "ALE" if env.startswith("ALE/") else env.removeprefix("gymnasium:")


def preset_for(agent: str, env: str, preset: str = "auto") -> dict[str, Any]:
    """The values that a preset sets: of its name, of the agent in that environment or anywhere (`auto`), or `none`."""
    if preset == "none":
        return {}
    if preset == "auto":
        names = (f"{agent}/{env}", f"{agent}/{known_as(env)}", agent)
        return next((PRESETS[name] for name in names if name in PRESETS), {})
    if preset not in PRESETS:
        raise ConfigError(f"preset={preset!r} is not known; {did_you_mean(preset, PRESETS)}")
    return PRESETS[preset]
