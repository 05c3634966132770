"""A small world of frames, in JAX and outside it, and ways to run agents in either."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rollax.envs.host import HostStep, HostTask
from rollax.programs.host import HostProgram
from rollax.programs.host_evaluate import HostEvaluator
from rollax.programs.host_loop import HostLoop
from rollax.types import Discrete, Observation

STACK, SIDE = 3, 2


def frame_of(episode: Any, step: Any) -> Any:
    """A frame that names its episode and its step; never blank."""
    return [[1 + step, 1 + episode % 200], [1 + episode // 200 % 200, 255]]


@dataclass(frozen=True)
class Frames:
    """Episodes of a few steps, counted; even steps pay for action 1, odd ones for action 0.  In JAX."""

    episode_length: int = 5
    truncates: bool = True
    num_actions: int = 2
    stack: int = STACK
    default_params: Any = None

    def reset(self, key, params):
        return self.start(jnp.int32(0))

    def start(self, episode):
        return self.show({"time": jnp.int32(0), "episode": episode}, jnp.zeros((SIDE, SIDE, STACK), jnp.uint8))

    def show(self, clock, before):
        frame = jnp.array(frame_of(clock["episode"], clock["time"]), jnp.uint8)
        stack = jnp.concatenate([before[..., 1:], frame[..., None]], axis=-1)
        return stack, {**clock, "stack": stack}

    def step(self, key, state, action, params):
        reward = (action == (state["time"] + 1) % 2).astype(jnp.float32)
        clock = {"time": state["time"] + 1, "episode": state["episode"]}
        last = self.show(clock, state["stack"])
        done = clock["time"] >= self.episode_length
        obs, new = jax.tree.map(lambda a, b: jnp.where(done, a, b), self.start(state["episode"] + 1), last)
        never = jnp.zeros((), bool)
        ends = (never, done) if self.truncates else (done, never)
        return obs, new, reward, *ends, {"final_observation": last[0]}


class HostFrames:
    """The same outside JAX.  It may break at its `breaks`-th step: raise, or hang; or lose environments at some."""

    def __init__(self, count: int, world: Frames, breaks: int = -1, how: str = "raise", loses: Any = None):
        self.count, self.world, self.breaks, self.how, self.steps = count, world, breaks, how, 0
        self.loses: dict[int, tuple[int, ...]] = loses or {}
        self.episode = np.zeros(count, int)

    def reset(self, seeds):
        assert len(seeds) == self.count
        self.time, self.episode = np.zeros(self.count, int), self.episode + (self.steps > 0)
        return self.shown()

    def shown(self):
        frames = frame_of(self.episode, self.time)
        rows = [[np.broadcast_to(cell, self.count) for cell in row] for row in frames]
        return np.moveaxis(np.array(rows, np.uint8), -1, 0)

    def step(self, action):
        self.steps += 1
        if self.steps == self.breaks:
            if self.how == "raise":
                raise RuntimeError("the emulator is on fire")
            time.sleep(3_600)
        reward = (action == (self.time + 1) % 2).astype(np.float32)
        self.time += 1
        last, ended = self.shown(), self.time >= self.world.episode_length
        self.time, self.episode = np.where(ended, 0, self.time), self.episode + ended
        never = np.zeros(self.count, bool)
        lost = None
        if self.steps in self.loses:
            lost = np.isin(np.arange(self.count), self.loses[self.steps])
            self.time, self.episode = np.where(lost, 0, self.time), self.episode + (lost & ~ended)
            reward, ended = np.where(lost, 0, reward).astype(np.float32), ended & ~lost
        ends = (never, ended) if self.world.truncates else (ended, never)
        return HostStep(self.shown(), reward, *ends, ended, last if ended.any() else None, lost)

    def close(self):
        pass


def host_task(world: Frames, interval: int = 1, seconds: float = 60.0, **breaks: Any) -> HostTask:
    return HostTask(
        name="Frames",
        open=lambda count: HostFrames(count, world, **breaks),
        observation=Observation(jax.ShapeDtypeStruct((SIDE, SIDE, STACK), np.uint8)),
        action=Discrete(2),
        truncation_interval=interval,
        stack=STACK,
        seconds=seconds,
    )


def host_program(task: HostTask, config: Any, num_envs: int, rollout_length: int, **options: Any) -> HostProgram:
    agent = config.build(task.spec(num_envs, rollout_length))
    return HostProgram(HostLoop(agent, task, num_envs, rollout_length), HostEvaluator(agent, task, 4, 50), **options)
