"""What other libraries call our settings: Stable-Baselines3, CleanRL, RLlib, Dopamine and papers."""

from __future__ import annotations

from collections.abc import Callable, Collection

# By our names, those of others.  A name that is also one of ours is asked for only where an agent has it not.
FOREIGN: dict[str, tuple[str, ...]] = {
    "steps": ("total_timesteps", "timesteps", "total_steps", "num_frames", "max_steps"),
    "env": ("env_id", "env_name", "gym_id", "environment", "game"),
    "seeds": ("num_seeds", "n_seeds"),
    "num_envs": ("n_envs", "num_workers", "num_actors"),
    "rollout_length": ("n_steps", "num_steps", "unroll_length", "train_freq", "train_frequency"),
    "warm_up_steps": ("learning_starts", "min_replay_size", "start_steps", "min_replay_history"),
    "discount": ("gamma", "discount_factor"),
    "learning_rate": ("lr", "step_size"),
    "learning_rate_schedule": ("lr_schedule", "lr_scheduler", "learning_rate_scheduler"),
    "learning_rate_end": ("anneal_lr", "lr_end"),
    "optimizer_eps": ("adam_eps", "adam_epsilon", "opt_eps"),
    "max_grad_norm": ("grad_clip", "clip_grad_norm", "max_gradient_norm", "grad_norm_clip"),
    "batch_size": ("minibatch_size", "train_batch_size", "mini_batch_size"),
    "gradient_steps": ("utd_ratio", "updates_per_step", "num_updates"),
    "capacity": ("buffer_size", "replay_size", "replay_capacity", "buffer_capacity", "memory_size"),
    "target_step": ("tau", "polyak"),
    "target_period": ("target_update_interval", "target_network_frequency", "target_update_period"),
    "n_step": ("nstep", "n_step_returns", "update_horizon", "multi_step"),
    "double": ("double_q", "double_dqn", "use_double"),
    "dueling": ("dueling_dqn", "use_dueling"),
    "epsilon_start": ("exploration_initial_eps", "start_e", "eps_start", "epsilon_initial"),
    "epsilon_end": ("exploration_final_eps", "end_e", "eps_end", "epsilon_final", "epsilon_train"),
    "epsilon_steps": ("exploration_fraction", "epsilon_timesteps", "epsilon_decay_period", "eps_decay"),
    "evaluation_epsilon": ("epsilon_eval", "eval_epsilon"),
    "priority_exponent": ("prioritized_replay_alpha", "per_alpha", "alpha", "priority_alpha"),
    "importance_start": ("prioritized_replay_beta", "prioritized_replay_beta0", "per_beta", "beta"),
    "atoms": ("n_atoms", "num_atoms"),
    "value_min": ("v_min", "vmin"),
    "value_max": ("v_max", "vmax"),
    "quantiles": ("n_quantiles", "num_quantiles"),
    "huber_kappa": ("kappa", "huber_delta"),
    "trace_lambda": ("gae_lambda", "lambda_", "lam", "lmbda", "td_lambda", "q_lambda"),
    "clip": ("clip_coef", "clip_range", "clip_param", "clip_ratio", "clip_eps"),
    "clip_values": ("clip_vloss", "clip_range_vf"),
    "entropy_weight": ("ent_coef", "entropy_coef", "entropy_coeff", "entropy_coefficient", "entropy_cost"),
    "value_weight": ("vf_coef", "vf_loss_coeff", "value_coef", "critic_coef"),
    "kl_limit": ("target_kl", "kl_target"),
    "normalize_advantages": ("norm_adv", "normalize_advantage"),
    "epochs": ("n_epochs", "update_epochs", "num_epochs", "num_sgd_iter", "ppo_epochs"),
    "minibatches": ("num_minibatches", "n_minibatches", "batch_size", "minibatch_size", "mini_batch_size"),
    "hidden": ("net_arch", "hidden_sizes", "fcnet_hiddens", "layers", "hidden_size", "hidden_dim"),
    "reward_scale": ("reward_scaling",),
    "frame_skip": ("frameskip", "action_repeat"),
    "stack": ("frame_stack", "num_stack", "stack_size"),
    "sticky": ("repeat_action_probability", "sticky_actions"),
    "life_loss": ("terminal_on_life_loss", "episodic_life"),
    "eval_steps": ("eval_freq", "evaluation_interval", "eval_interval"),
    "eval_episodes": ("n_eval_episodes", "num_eval_episodes", "evaluation_duration"),
    "log_to": ("tensorboard_log", "track", "logger"),
    "run_dir": ("save_dir", "log_dir", "output_dir", "logdir", "checkpoint_dir"),
    "device": ("cuda", "accelerator"),
}  # fmt: skip
# Others' names of a size, where ours is a count.
SIZES = {("batch_size", "minibatches"), ("minibatch_size", "minibatches"), ("mini_batch_size", "minibatches")}
# What is no setting of an experiment, but is said elsewhere.
ELSEWHERE = {"run_dir": "an argument of rollax.train", "device": "a flag of the command"}


def told_here(name: str, known: Collection[str], owner: str, shown: Callable[[str], str] = str) -> str:
    """What a setting of other libraries is called here, as `is called discount here`; empty for an unknown name.

    Of several that it may be, it is the one that is known.  `shown` writes a name of ours as the reader does.
    """
    theirs = name.replace("-", "_")
    ours = [our for our, names in FOREIGN.items() if theirs in names]
    if not ours:
        return ""
    here = next((our for our in ours if our in known), ours[0])
    told = f"is called {shown(here)} here"
    if (theirs, here) in SIZES and here in known:
        return f"{told}, which is their number and not their size"
    if here in known:
        return told
    return f"{told}, {ELSEWHERE[here]}" if here in ELSEWHERE else f"{told}, which {owner} has not"
