"""DQN on CartPole as one hand-written jitted loop, without any layer of the library.

It is the yardstick of `overhead.py` and `peers.py`: one step and one update in each iteration, written as directly as
one can, with the usual short-cuts: successors are stored beside observations, nothing is logged but the loss, nothing
can be resumed.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import optax

DISCOUNT, EPSILON_STEPS = 0.99, 25_000


class Work(NamedTuple):
    """How much is done in an iteration."""

    num_envs: int = 64
    batch: int = 512
    capacity: int = 10_048
    hidden: tuple[int, ...] = (64, 128)
    double: bool = True
    target_step: float = 0.01  # share of the way that target weights move ...
    target_period: int = 1  # ... once in so many updates


MANY = Work()
FEW = Work(10, 128, 10_000, (120, 84), double=False, target_step=1.0, target_period=50)


def make_bare_loop(work: Work = MANY):
    """Returns `init(key)` and `run(state, iterations)`, both to be vmapped and jitted by the caller."""
    env, env_params = gymnax.make("CartPole-v1")
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(5e-4))
    sizes = (4, *work.hidden, 2)

    def q_values(params, x):
        for weight, bias in params[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        weight, bias = params[-1]
        return x @ weight + bias

    def init(key):
        net_key, env_key, key = jax.random.split(key, 3)
        lecun = jax.nn.initializers.lecun_normal()
        keys = jax.random.split(net_key, len(sizes) - 1)
        shapes = itertools.pairwise(sizes)
        params = [(lecun(k, shape), jnp.zeros(shape[1])) for k, shape in zip(keys, shapes, strict=True)]
        target = jax.tree.map(jnp.copy, params)
        obs, env_state = jax.vmap(env.reset, (0, None))(jax.random.split(env_key, work.num_envs), env_params)
        ring = {
            "obs": jnp.zeros((work.capacity, 4)),
            "next_obs": jnp.zeros((work.capacity, 4)),
            "action": jnp.zeros(work.capacity, jnp.int32),
            "reward": jnp.zeros(work.capacity),
            "terminated": jnp.zeros(work.capacity, bool),
        }
        return key, params, target, optimizer.init(params), ring, obs, env_state, jnp.int32(0), jnp.zeros(())

    def iteration(_, state):
        key, params, target, opt_state, ring, obs, env_state, step, _ = state
        key, act_key, env_key, sample_key = jax.random.split(key, 4)

        epsilon = jnp.maximum(0.05, 1.0 - 0.95 * step * work.num_envs / EPSILON_STEPS)
        chance, choice = jax.random.uniform(act_key, (2, work.num_envs))
        best = jnp.argmax(q_values(params, obs), axis=-1)
        action = jnp.where(chance < epsilon, (choice * 2).astype(jnp.int32), best)
        env_keys = jax.random.split(env_key, work.num_envs)
        next_obs, env_state, reward, terminated, _, info = jax.vmap(env.step, (0, 0, 0, None))(
            env_keys, env_state, action, env_params
        )
        rows = {
            "obs": obs,
            "next_obs": info["final_observation"],
            "action": action,
            "reward": reward,
            "terminated": terminated,
        }
        at = step * work.num_envs % work.capacity
        ring = {name: jax.lax.dynamic_update_slice_in_dim(ring[name], rows[name], at, 0) for name in ring}

        filled = jnp.minimum((step + 1) * work.num_envs, work.capacity)
        index = jax.random.randint(sample_key, (work.batch,), 0, filled)
        batch = {name: ring[name][index] for name in ring}
        next_q = q_values(target, batch["next_obs"])
        chosen_by = q_values(params, batch["next_obs"]) if work.double else next_q
        next_q = jnp.take_along_axis(next_q, jnp.argmax(chosen_by, axis=-1)[:, None], 1)[:, 0]
        goal = batch["reward"] + DISCOUNT * (1 - batch["terminated"]) * next_q

        def loss_of(params):
            q = jnp.take_along_axis(q_values(params, batch["obs"]), batch["action"][:, None], 1)[:, 0]
            return jnp.mean(optax.huber_loss(q, goal))

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        params = optax.apply_updates(params, updates)
        moved = optax.incremental_update(params, target, work.target_step)
        if work.target_period > 1:
            moved = optax.periodic_update(moved, target, step + 1, work.target_period)
        return key, params, moved, opt_state, ring, next_obs, env_state, step + 1, loss

    def run(state, iterations):
        return jax.lax.fori_loop(0, iterations, iteration, state)

    return init, run
