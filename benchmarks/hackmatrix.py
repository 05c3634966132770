"""How fast HackMatrix steps: random legal play with auto-reset, every output used.

Prints steps per second for several numbers of games in one program, and the seconds that it takes to compile.  With
`--statistics` also what random play comes to, beside the figures of the reference game.

    python benchmarks/hackmatrix.py [--games 32 256 1024] [--seconds 5] [--statistics]
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs import registry
from rollax.envs.protocol import Task, reset_envs
from rollax.envs.random_play import random_play
from rollax.types import Array, Key

STEPS = 32  # of every game in one call


def measure(task: Task, games: int, seconds: float) -> tuple[float, float]:
    """Steps per second of all games together, and seconds of compilation."""
    envs = jax.jit(lambda key: reset_envs(task, key, games))(jax.random.key(0))
    began = time.perf_counter()
    run = jax.jit(random_play(task, STEPS), donate_argnums=0).lower(envs, jax.random.key(1)).compile()
    compiling = time.perf_counter() - began
    envs, total = run(envs, jax.random.key(1))
    jax.block_until_ready(total)
    rates, began = [], time.perf_counter()
    while time.perf_counter() - began < seconds or len(rates) < 3:
        start = time.perf_counter()
        envs, total = run(envs, jax.random.key(len(rates)))
        jax.block_until_ready(total)
        rates.append(games * STEPS / (time.perf_counter() - start))
    return float(np.median(rates)), compiling


def statistics(task: Task, games: int) -> None:
    """First episodes of many games, played with random legal actions."""

    def step(carry: tuple, key: Key) -> tuple[tuple, Array]:
        obs, state, running, sums = carry
        keys = jax.random.split(key, games + 1)
        legal = obs.legal
        action = jnp.argmax(jnp.where(legal, jax.random.uniform(keys[0], legal.shape), -1.0), axis=-1)
        obs, state, reward, over, _, info = jax.vmap(lambda k, s, a: task.env.step(k, s, a, None))(
            keys[1:], state, action
        )
        now = jnp.stack([jnp.ones(games), reward, info["stage"] * over, info["score"] * over], axis=1)
        sums = sums + jnp.where(running[:, None], now, 0.0)
        return (obs, state, running & ~over, sums), jnp.sum(legal & running[:, None])

    key = jax.random.key(7)
    obs, state = jax.vmap(lambda k: task.env.reset(k, None))(jax.random.split(key, games))
    start = (obs, state, jnp.ones(games, bool), jnp.zeros((games, 4)))
    run = jax.jit(lambda start: jax.lax.scan(step, start, jax.random.split(key, 1_500)))
    (_, _, running, sums), legal = run(start)
    sums = np.asarray(sums)[~np.asarray(running)]
    length, total, stage, score = sums.T
    error = [column.std() / len(column) ** 0.5 for column in (length, total, score)]
    print(f"{len(sums)} of {games} games over; the reference: 43.6, -3.42, 0.94; 83.0, 15.7, 1.2 %; 2.50 legal")
    print(f"length {length.mean():.1f} +- {error[0]:.1f}, return {total.mean():.2f} +- {error[1]:.2f}, "
          f"score {score.mean():.2f} +- {error[2]:.2f}, ends at stage 1, 2, 3: "
          + ", ".join(f"{100 * np.mean(stage == s):.1f} %" for s in (1, 2, 3))
          + f"; {np.asarray(legal).sum() / length.sum():.2f} legal actions")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--games", nargs="*", type=int, default=[32, 256, 1024])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--statistics", action="store_true")
    options = parser.parse_args()
    task = registry.make_inside("HackMatrix-v0")
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    for games in options.games:
        rate, compiling = measure(task, games, options.seconds)
        print(f"{games:6d} games {rate:12,.0f} steps/s, compiled in {compiling:.1f} s", flush=True)
    if options.statistics:
        statistics(task, 4_000)


if __name__ == "__main__":
    main()
