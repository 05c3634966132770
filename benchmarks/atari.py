"""How near training comes to the emulators' own speed.

Steps an Atari game with random actions, then trains in it, and again, in one process on the same cores; prints steps
per second of both and their ratio.  With `--compiled` also ALE's own call from inside a compiled program.

    python benchmarks/atari.py [--game Breakout] [--agents pqn double] [--num-envs 0] [--seconds 10] [--repeats 3]

`--num-envs 0` is the preset's number; further flags of `rollax train`, such as `--precision bfloat16`, go behind `--`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.commands.flags import parse_experiment
from rollax.commands.train import TrainFlags
from rollax.envs.atari import Atari, AtariEnvs, rom_of
from rollax.experiment.experiment import make_experiment, with_values
from rollax.programs.machine import use_compile_cache
from rollax.programs.plan import make_plan


class Alone:
    """Emulators with random actions, which can be timed again and again: making them takes long."""

    def __init__(self, game: str, num_envs: int):
        self.envs, self.num_envs = AtariEnvs(rom_of(game), num_envs, Atari()), num_envs
        self.envs.reset(np.arange(num_envs, dtype=np.int32))
        choices = Atari().task(game).num_actions
        self.actions = np.random.default_rng(0).integers(0, choices, (1_000, num_envs), dtype=np.int32)
        self.rate(1.0)

    def rate(self, seconds: float) -> float:
        """Steps per second."""
        steps, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            self.envs.step(self.actions[steps % len(self.actions)])
            steps += 1
        return steps * self.num_envs / (time.perf_counter() - began)


def compiled_rate(game: str, num_envs: int, seconds: float) -> float:
    """Steps per second of ALE's call from inside a compiled loop, with frames stacked by ALE, as it must be there."""
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariVectorEnv(rom_of(game), num_envs, reward_clipping=False, use_fire_reset=False)
    handle, reset, step = envs.xla()
    handle, _ = reset(handle, 0)
    num_actions, length = Atari().task(game).num_actions, 32

    @jax.jit
    def play(handle: Any, key: Any) -> tuple[Any, Any]:
        def one(handle: Any, key: Any) -> tuple[Any, Any]:
            action = jax.random.randint(key, (num_envs,), 0, num_actions, jnp.int32)
            handle, (obs, reward, *_) = step(handle, action)
            return handle, jnp.sum(reward) + obs[0, 0, 0, 0]

        return jax.lax.scan(one, handle, jax.random.split(key, length))

    handle, total = play(handle, jax.random.key(0))
    jax.block_until_ready(total)
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        handle, total = play(handle, jax.random.key(calls))
        jax.block_until_ready(total)
        calls += 1
    return calls * length * num_envs / (time.perf_counter() - began)


class Training:
    """An agent that has begun to learn, and can be timed again and again."""

    def __init__(self, agent: str, game: str, num_envs: int, flags: list[str]):
        usual = make_experiment(agent, env=game)
        values: dict[str, Any] = {"num_envs": num_envs or usual.loop.num_envs, "steps": 10**9}
        if usual.choices.replay is not None:
            unit = values["num_envs"] * usual.loop.rollout_length
            values["gradient_steps"] = max(1, unit // 4)  # one update for each 4 steps
            values["warm_up_steps"] = max(unit * 8, 4_096 // unit * unit)
            values["capacity"] = 100_000 // unit * unit
        start = with_values(usual, values)
        self.plan = make_plan(parse_experiment(start, flags, TrainFlags)[0])
        self.running = self.plan.program.compile(self.plan.keys, self.plan.hparams)
        self.state, _ = self.running.begin(self.plan.keys, self.plan.hparams)
        self.iteration = self.plan.schedule.warm_up
        self.state = self.running.advance_to(self.state, self.iteration).state
        self.advance(2)

    def advance(self, iterations: int) -> float:
        """Seconds of so many iterations."""
        self.iteration += iterations
        began = time.perf_counter()
        self.state = self.running.advance_to(self.state, self.iteration).state
        jax.block_until_ready(self.state.learner.params)
        return time.perf_counter() - began

    def rate(self, seconds: float) -> float:
        """Steps per second."""
        count = max(1, int(seconds / (self.advance(2) / 2)))
        return count * self.plan.steps_per_iteration * len(self.plan.members) / self.advance(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--agents", nargs="*", default=["pqn", "double"])
    parser.add_argument("--num-envs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("flags", nargs="*", help="further flags of `rollax train`, behind --")
    options = parser.parse_args()
    use_compile_cache()
    game = f"ALE/{options.game}-v5"
    print(f"{game} on {jax.devices()[0].device_kind}", flush=True)
    alone = None
    for agent in options.agents:
        training = Training(agent, game, options.num_envs, options.flags)
        count = training.plan.experiment.loop.num_envs
        if alone is None or alone.num_envs != count:
            alone = Alone(game, count)
        raws, rates = [], []
        for _ in range(options.repeats):
            raws.append(alone.rate(options.seconds))
            rates.append(training.rate(options.seconds))
        ratio = statistics.median(rate / raw for rate, raw in zip(rates, raws, strict=True))
        print(
            f"{agent} {' '.join(options.flags)}: {count} emulators, alone {statistics.median(raws):,.0f} steps/s, "
            f"training {statistics.median(rates):,.0f} steps/s, ratio {ratio:.2f}",
            flush=True,
        )
        training.running.close()
    if options.compiled:
        count = options.num_envs or 128
        print(f"compiled call: {count} emulators, {compiled_rate(game, count, options.seconds):,.0f} steps/s")


if __name__ == "__main__":
    main()
