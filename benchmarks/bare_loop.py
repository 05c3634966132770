"""Double DQN on CartPole as one hand-written jitted loop, without any layer of the library.

It is the yardstick of `overhead.py`: the same work as `rollax train double` with 64 environments,
one step and one update of batch 512 in each iteration and a network of 64 and 128 units, written
as directly as one can, with the usual short-cuts: successors are stored beside observations,
nothing is logged but the loss, nothing can be resumed.
"""

from __future__ import annotations

import itertools

import gymnax
import jax
import jax.numpy as jnp
import optax

NUM_ENVS, BATCH, CAPACITY, HIDDEN = 64, 512, 10_048, (64, 128)
DISCOUNT, TAU, EPSILON_STEPS = 0.99, 0.01, 25_000


def make_bare_loop():
    """Returns `init(key)` and `run(state, iterations)`, both to be vmapped and jitted by the caller."""
    env, env_params = gymnax.make("CartPole-v1")
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(5e-4))
    sizes = (4, *HIDDEN, 2)

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
        obs, env_state = jax.vmap(env.reset, (0, None))(jax.random.split(env_key, NUM_ENVS), env_params)
        ring = {
            "obs": jnp.zeros((CAPACITY, 4)),
            "next_obs": jnp.zeros((CAPACITY, 4)),
            "action": jnp.zeros(CAPACITY, jnp.int32),
            "reward": jnp.zeros(CAPACITY),
            "terminated": jnp.zeros(CAPACITY, bool),
        }
        return key, params, target, optimizer.init(params), ring, obs, env_state, jnp.int32(0), jnp.zeros(())

    def iteration(_, state):
        key, params, target, opt_state, ring, obs, env_state, step, _ = state
        key, act_key, env_key, sample_key = jax.random.split(key, 4)

        epsilon = jnp.maximum(0.05, 1.0 - 0.95 * step * NUM_ENVS / EPSILON_STEPS)
        chance, choice = jax.random.uniform(act_key, (2, NUM_ENVS))
        best = jnp.argmax(q_values(params, obs), axis=-1)
        action = jnp.where(chance < epsilon, (choice * 2).astype(jnp.int32), best)
        env_keys = jax.random.split(env_key, NUM_ENVS)
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
        at = step * NUM_ENVS % CAPACITY
        ring = {name: jax.lax.dynamic_update_slice_in_dim(ring[name], rows[name], at, 0) for name in ring}

        filled = jnp.minimum((step + 1) * NUM_ENVS, CAPACITY)
        index = jax.random.randint(sample_key, (BATCH,), 0, filled)
        batch = {name: ring[name][index] for name in ring}
        next_action = jnp.argmax(q_values(params, batch["next_obs"]), axis=-1)
        next_q = jnp.take_along_axis(q_values(target, batch["next_obs"]), next_action[:, None], 1)[:, 0]
        goal = batch["reward"] + DISCOUNT * (1 - batch["terminated"]) * next_q

        def loss_of(params):
            q = jnp.take_along_axis(q_values(params, batch["obs"]), batch["action"][:, None], 1)[:, 0]
            return jnp.mean(optax.huber_loss(q, goal))

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        params = optax.apply_updates(params, updates)
        target = optax.incremental_update(params, target, TAU)
        return key, params, target, opt_state, ring, next_obs, env_state, step + 1, loss

    def run(state, iterations):
        return jax.lax.fori_loop(0, iterations, iteration, state)

    return init, run
