"""The treasure hunt: five players with an IQN Rainbow each; the benchmark, tuned, and as the reference does it."""

from __future__ import annotations

from rollax.experiment.presets.preset import H200, TWO_CORES, Preset, Values, falling_rate, replayed

# An epoch of 50 turns is one iteration, after which every player learns once.
BENCHMARK: Values = {
    **replayed(50_000, num_envs=1, warm_up=0, capacity=1_024, batch_size=256),
    "rollout_length": 50,
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
    "n_step": 1,
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
REFERENCE: Values = BENCHMARK | {
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
TUNED: Values = {
    **BENCHMARK,
    **falling_rate(1.5e-3, 17_500.0, end=0.1),
    "steps": 17_500,
    "eval_episodes": 30,
    "capacity": 4_096,
    "batch_size": 64,
    "gradient_steps": 4,
    "max_grad_norm": 10.0,
    "discount": 0.8,
    "target_step": 0.01,
    "sync_period": 25,
    "epsilon_end": 0.05,
    "epsilon_decay": 0.02,
}
PRESETS: dict[str, Preset] = {
    "irainbow/TreasureHunt-v0": Preset(BENCHMARK, "526.1 to 540.4 on three seeds", H200),
    "irainbow/TreasureHunt-v0/reference": Preset(REFERENCE),
    "irainbow/TreasureHunt-v0/tuned": Preset(TUNED, "542.5 to 548.4 on three seeds", TWO_CORES),
}
ENVIRONMENTS: dict[str, Values] = {}
