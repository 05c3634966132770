"""A whole Double DQN, ten seeds at once, in one file: acting, remembering, learning and evaluating are one program.

    python examples/double_dqn.py                   # ten seeds of CartPole-v1, a table, double_dqn.png
    python examples/double_dqn.py --steps 100000 --seeds 3

It is built from the library's public parts, so that what is left to read is the algorithm.  `rollax train double` is
the same thing with checkpoints, logs, hyper-parameters that may differ between seeds, and checks.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rollax.agents.base import blank_features, own_axes
from rollax.envs import registry
from rollax.envs.protocol import Envs, Task, reset_envs, step_envs
from rollax.memory.replay import Request
from rollax.memory.ring import Batch
from rollax.memory.uniform import UniformReplay
from rollax.networks.heads import QNetwork, ScalarHead, Streams
from rollax.networks.torsos import MLP
from rollax.rules.policies import epsilon_greedy, greedy
from rollax.rules.schedules import linear
from rollax.types import Array, Decision, Key, Observation, Params

# Choices.  They are Python values, so they are fixed when the program is compiled.
ENVS = 64  # environments of each seed, stepped together: one call of the network acts in all of them
BATCH = 64  # transitions of one gradient step
WARM_UP = 64  # iterations that only fill the replay
DISCOUNT = 0.99
TARGET_PERIOD = 25  # gradient steps between copies of the weights into the target network
EPSILON_END, EPSILON_STEPS = 0.02, 60_000
LEARNING_RATE = 0.003
EVAL_EPISODES, EVAL_STEPS = 100, 500  # CartPole-v1 ends after 500 steps at the latest

# Parts.  They hold no numbers that change, so one of each serves all seeds.
REPLAY = UniformReplay(capacity=102_400, n_step=3)  # sums three rewards before it asks for a value
# CartPole's angles are small numbers: brought to a common size they are learnt from much sooner.
TORSO = MLP(hidden=(64, 64), input_scale=(1.5, 1.0, 12.0, 1.0))


class State(NamedTuple):
    """All that changes during training, for one seed.  What is not in here is forgotten after each iteration."""

    params: Params
    target: Params
    opt_state: optax.OptState
    replay: Any
    envs: Envs


class DoubleDQN:
    """The algorithm in one environment.  Every method is pure: it takes a state and returns another."""

    def __init__(self, task: Task, iterations: int):
        self.task, self.spec = task, task.spec(ENVS, rollout_length=1)
        self.network = QNetwork(task.num_actions, TORSO, Streams(), ScalarHead())
        self.buffer = REPLAY.build(self.spec)
        self.optimizer = optax.adam(optax.linear_schedule(LEARNING_RATE, 0.0, iterations))

    def q_values(self, params: Params, obs: Observation) -> Array:
        """The value of every action, `[B, A]`."""
        returns: Any = self.network.apply(params, obs.features)  # what a head says of them; here one number for each
        return returns.mean()

    def init(self, key: Key) -> State:
        # One key for each use: the same key twice would give the same numbers twice.
        net_key, env_key = jax.random.split(key)
        params = self.network.init(net_key, blank_features(self.spec))
        replay, envs = self.buffer.init(), reset_envs(self.task, env_key, ENVS)
        return State(params, params, self.optimizer.init(params), replay, envs)

    def collect(self, state: State, key: Key, iteration: Array) -> tuple[State, Array]:
        """One step of every environment into the replay; and the count and the returns of episodes that ended."""
        coin_key, env_key = jax.random.split(key)
        epsilon = linear(1.0, EPSILON_END, (iteration - WARM_UP) * ENVS / EPSILON_STEPS)
        coins = jax.random.uniform(coin_key, (2, ENVS))
        obs = state.envs.obs
        action = epsilon_greedy(coins, self.q_values(state.params, obs), obs.legal, epsilon)
        envs, transition, episodes = step_envs(self.task, state.envs, Decision(action), env_key)
        # A replay takes rollouts [T, B, ...]; this one has a single step.
        replay = self.buffer.add(state.replay, jax.tree.map(lambda leaf: leaf[None], transition))
        ended = jnp.stack([jnp.sum(episodes.count), jnp.sum(episodes.return_sum)])
        return state._replace(replay=replay, envs=envs), ended

    def loss(self, params: Params, target: Params, batch: Batch) -> Array:
        """How far predictions are from what the next states say."""
        taken = jax.nn.one_hot(batch.action, self.spec.num_actions)
        predicted = jnp.sum(self.q_values(params, batch.obs) * taken, axis=-1)
        # Double DQN: the online weights choose the next action, the target weights say what it is worth.
        best = greedy(self.q_values(params, batch.next_obs), batch.next_obs.legal)
        value = jnp.take_along_axis(self.q_values(target, batch.next_obs), best[:, None], axis=1)[:, 0]
        # The replay has summed the rewards; its discount is 0.99 ** 3, but 0 after a termination (not a time limit).
        goal = batch.reward + batch.discount * value
        return jnp.mean(0.5 * jnp.square(predicted - jax.lax.stop_gradient(goal)))

    def learn(self, state: State, key: Key, iteration: Array) -> State:
        """One gradient step."""
        sample = self.buffer.sample(state.replay, key, Request(BATCH, DISCOUNT))
        grads = jax.grad(self.loss)(state.params, state.target, sample.batch)
        updates, opt_state = self.optimizer.update(grads, state.opt_state)
        params = optax.apply_updates(state.params, updates)
        copy = (iteration + 1) % TARGET_PERIOD == 0
        target = jax.tree.map(lambda new, old: jnp.where(copy, new, old), params, state.target)
        return state._replace(params=params, target=target, opt_state=opt_state)

    def iteration(self, state: State, key: Key, iteration: Array, *, learn: bool) -> tuple[State, Array]:
        collect_key, learn_key = jax.random.split(jax.random.fold_in(key, iteration))
        state, episodes = self.collect(state, collect_key, iteration)
        return (self.learn(state, learn_key, iteration) if learn else state), episodes

    def train(self, keys: Key, iterations: int) -> tuple[State, Array]:
        """All seeds: their last states, and the episodes of every iteration `[iterations, seeds, 2]`."""
        init_keys, loop_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
        # Seeds advance together, so the replay's counter is the same for all and is not given an axis (None): one
        # index writes into every seed's replay, in place.  With an index for each, a write would be a scatter.
        one = jax.eval_shape(self.init, init_keys[0])
        axes = jax.tree.map(lambda _: 0, one)._replace(replay=own_axes(one.replay))
        states = jax.vmap(self.init, out_axes=axes)(init_keys)

        def repeat(states: State, first: int, last: int, learn: bool) -> tuple[State, Array]:
            step = functools.partial(self.iteration, learn=learn)
            all_seeds = jax.vmap(step, in_axes=(axes, 0, None), out_axes=(axes, 0))
            return jax.lax.scan(lambda s, i: all_seeds(s, loop_keys, i), states, jnp.arange(first, last))

        states, before = repeat(states, 0, WARM_UP, learn=False)
        states, after = repeat(states, WARM_UP, iterations, learn=True)
        return states, jnp.concatenate([before, after])

    def evaluate(self, params: Params, key: Key) -> Array:
        """The return of the first episode of each of so many environments, without exploring."""
        reset_key, loop_key = jax.random.split(key)

        def step(carry: tuple[Envs, Array, Array], key: Key) -> tuple[tuple[Envs, Array, Array], None]:
            envs, total, running = carry
            action = greedy(self.q_values(params, envs.obs), envs.obs.legal)
            envs, transition, _ = step_envs(self.task, envs, Decision(action), key)
            total += jnp.where(running, transition.reward, 0.0)
            return (envs, total, running & ~(transition.terminated | transition.truncated)), None

        start = (
            reset_envs(self.task, reset_key, EVAL_EPISODES),
            jnp.zeros(EVAL_EPISODES),
            jnp.ones(EVAL_EPISODES, bool),
        )
        return jax.lax.scan(step, start, jax.random.split(loop_key, EVAL_STEPS))[0][1]


def run(seeds: int, steps: int) -> tuple[Array, Array]:
    """Greedy returns `[seeds, episodes]` after training, and what ended in every iteration `[seeds, iterations, 2]`."""
    iterations = max(steps // ENVS, WARM_UP + 1)
    agent = DoubleDQN(registry.make_inside("CartPole-v1"), iterations)
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))

    @jax.jit  # from here on Python is not asked any more: one program trains and evaluates all seeds
    def program(keys: Key) -> tuple[Array, Array]:
        states, episodes = agent.train(keys, iterations)
        eval_keys = jax.vmap(lambda key: jax.random.fold_in(key, 2**31))(keys)
        return jax.vmap(agent.evaluate)(states.params, eval_keys), jnp.swapaxes(episodes, 0, 1)

    return jax.block_until_ready(program(keys))


def draw(episodes: Array, path: str, points: int = 100) -> None:
    """The mean return of the episodes that ended in each hundredth of the run."""
    import matplotlib.pyplot as plt

    length = episodes.shape[1] // points
    sums = episodes[:, : length * points].reshape(len(episodes), points, length, 2).sum(axis=2)
    curves = sums[..., 1] / sums[..., 0]  # not a number, and so not drawn, where none ended
    steps = (jnp.arange(points) + 1) * length * ENVS
    plt.plot(steps, curves.T, color="tab:blue", alpha=0.3, linewidth=1)
    plt.plot(steps, jnp.nanmean(curves, axis=0), color="tab:blue", linewidth=2)
    plt.xlabel("environment steps of each seed")
    plt.ylabel("return of an episode")
    plt.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=413_696, help="environment steps of each seed")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", default="double_dqn.png")
    flags = parser.parse_args()
    began = time.perf_counter()
    returns, episodes = run(flags.seeds, flags.steps)
    seconds = time.perf_counter() - began
    print("seed  greedy return  worst episode")
    for seed, row in enumerate(returns):
        print(f"{seed:4d}  {row.mean():13.1f}  {row.min():13.0f}")
    print(f"{flags.seeds * flags.steps:,} steps, compiling included, in {seconds:.0f} s; {flags.out}")
    draw(episodes, flags.out)
