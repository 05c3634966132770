"""PPO on CartPole as one hand-written jitted loop, without any layer of a library.

It is a yardstick of `peers.py`: 4 environments, rollouts of 128 steps, four epochs of four minibatches, tanh networks
of 64 and 64 units for policy and value, clipped values, a falling learning rate.  That is what single-file PPOs in JAX
do in an iteration, written as directly as one can and with their short-cuts: a time limit is treated as an end, nothing
is logged but episode returns, nothing can be resumed.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import optax

NUM_ENVS, LENGTH, EPOCHS, MINIBATCHES, HIDDEN = 4, 128, 4, 4, (64, 64)
DISCOUNT, LAMBDA, CLIP, ENTROPY_WEIGHT, VALUE_WEIGHT = 0.99, 0.95, 0.2, 0.01, 0.5
LEARNING_RATE, TOTAL_STEPS = 2.5e-4, 500_000


class Step(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    value: jax.Array
    log_prob: jax.Array
    ended_return: jax.Array  # of an episode that ended, else 0


def make_bare_ppo():
    """Returns `init(key)` and `run(state, iterations)`, both to be vmapped and jitted by the caller."""
    env, env_params = gymnax.make("CartPole-v1")
    updates = TOTAL_STEPS // (NUM_ENVS * LENGTH) * EPOCHS * MINIBATCHES
    optimizer = optax.chain(
        optax.clip_by_global_norm(0.5), optax.adam(optax.linear_schedule(LEARNING_RATE, 0.0, updates), eps=1e-5)
    )

    def network(layers, x):
        for weight, bias in layers[:-1]:
            x = jnp.tanh(x @ weight + bias)
        weight, bias = layers[-1]
        return x @ weight + bias

    def judge(params, obs):
        return jax.nn.log_softmax(network(params[0], obs)), network(params[1], obs)[..., 0]

    def layers(key, sizes, last_scale):
        keys = jax.random.split(key, len(sizes) - 1)
        scales = [2**0.5] * (len(sizes) - 2) + [last_scale]
        shapes = list(itertools.pairwise(sizes))
        return [
            (jax.nn.initializers.orthogonal(scale)(k, shape), jnp.zeros(shape[1]))
            for k, scale, shape in zip(keys, scales, shapes, strict=True)
        ]

    def init(key):
        policy_key, value_key, env_key, key = jax.random.split(key, 4)
        params = (layers(policy_key, (4, *HIDDEN, 2), 0.01), layers(value_key, (4, *HIDDEN, 1), 1.0))
        obs, env_state = jax.vmap(env.reset, (0, None))(jax.random.split(env_key, NUM_ENVS), env_params)
        returns = jnp.zeros(NUM_ENVS)
        return key, params, optimizer.init(params), obs, env_state, returns, jnp.zeros(2)

    def iteration(_, state):
        key, params, opt_state, obs, env_state, returns, _ = state

        def step(carry, _):
            key, obs, env_state, returns = carry
            key, act_key, step_key = jax.random.split(key, 3)
            log_probs, value = judge(params, obs)
            action = jax.random.categorical(act_key, log_probs)
            log_prob = jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0]
            next_obs, env_state, reward, terminated, truncated, _ = jax.vmap(env.step, (0, 0, 0, None))(
                jax.random.split(step_key, NUM_ENVS), env_state, action, env_params
            )
            done = terminated | truncated
            total = returns + reward
            seen = Step(obs, action, reward, done, value, log_prob, jnp.where(done, total, 0.0))
            return (key, next_obs, env_state, jnp.where(done, 0.0, total)), seen

        (key, obs, env_state, returns), rollout = jax.lax.scan(step, (key, obs, env_state, returns), None, LENGTH)

        def backwards(carry, seen):
            advantage, next_value = carry
            error = seen.reward + DISCOUNT * next_value * (1 - seen.done) - seen.value
            advantage = error + DISCOUNT * LAMBDA * (1 - seen.done) * advantage
            return (advantage, seen.value), advantage

        last_value = judge(params, obs)[1]
        _, advantages = jax.lax.scan(backwards, (jnp.zeros_like(last_value), last_value), rollout, reverse=True)

        def loss_of(params, batch):
            seen, advantage, target = batch
            log_probs, value = judge(params, seen.obs)
            ratio = jnp.exp(jnp.take_along_axis(log_probs, seen.action[:, None], 1)[:, 0] - seen.log_prob)
            near = seen.value + jnp.clip(value - seen.value, -CLIP, CLIP)
            value_loss = 0.5 * jnp.mean(jnp.maximum((value - target) ** 2, (near - target) ** 2))
            advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
            held = jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage
            policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, held))
            entropy = -jnp.mean(jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1))
            return policy_loss + VALUE_WEIGHT * value_loss - ENTROPY_WEIGHT * entropy

        def minibatch(carry, batch):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(loss_of)(params, batch)
            updates, opt_state = optimizer.update(grads, opt_state)
            return (optax.apply_updates(params, updates), opt_state), loss

        def epoch(carry, _):
            key, params, opt_state = carry
            key, order_key = jax.random.split(key)
            order = jax.random.permutation(order_key, NUM_ENVS * LENGTH)
            flat = jax.tree.map(
                lambda x: x.reshape(NUM_ENVS * LENGTH, *x.shape[2:]), (rollout, advantages, advantages + rollout.value)
            )
            batches = jax.tree.map(lambda x: x[order].reshape(MINIBATCHES, -1, *x.shape[1:]), flat)
            (params, opt_state), losses = jax.lax.scan(minibatch, (params, opt_state), batches)
            return (key, params, opt_state), jnp.mean(losses)

        (key, params, opt_state), losses = jax.lax.scan(epoch, (key, params, opt_state), None, EPOCHS)
        ended = jnp.sum(rollout.done)
        noted = jnp.stack([jnp.mean(losses), jnp.sum(rollout.ended_return) / jnp.maximum(ended, 1)])
        return key, params, opt_state, obs, env_state, returns, noted

    def run(state, iterations):
        return jax.lax.fori_loop(0, iterations, iteration, state)

    return init, run
