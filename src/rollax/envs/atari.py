"""Atari games through ALE: the emulators' own vector stepping, and the protocol that a score depends on.

ale-py, which carries the games, is under GPL-2.0-only; it is an extra, and nothing of it is imported before it is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import jax
import numpy as np

from rollax.envs.host import HostConfig, HostStep, HostTask
from rollax.envs.names import ATARI, atari_games
from rollax.errors import ConfigError, demand, did_you_mean
from rollax.settings import COUNT, COUNT_OR_NONE, SHARE, Limit, setting
from rollax.types import Discrete, Observation

SIDE = 84  # of a frame that an agent sees, in pixels
SCREEN = (210, 160)  # height and width of the game's own


@dataclass(frozen=True)
class Atari(HostConfig):
    """How an Atari game is shown and played (Mnih et al. 2015): a score means little without it."""

    frame_skip: int = setting(
        4, "Number of the game's frames in one step, of which the agent sees the maximum of the last two.", limit=COUNT
    )
    stack: int = setting(4, "Number of frames, one for each step, that the agent sees at once.", limit=Limit(1, 16))
    noops: int = setting(
        30, "Largest number of idle frames that an episode begins with.", limit=COUNT_OR_NONE, rare=True
    )
    sticky: float = setting(
        0.0,
        "Probability of a sticky action, where the game repeats the last one; 0.25 is the newer protocol.",
        limit=SHARE,
    )
    life_loss: bool = setting(False, "Treat a lost life as a termination in learning, while the game goes on.")
    clip_rewards: bool = setting(
        True, "Clip the rewards that are learnt from to between -1 and 1; scores stay unclipped."
    )
    fire_reset: bool = setting(False, "Press the fire button for the agent when a game waits for it.", rare=True)
    full_actions: bool = setting(False, "Offer all 18 actions in every game.", rare=True)
    max_frames: int = setting(
        108_000,
        "Number of the game's frames after which an episode is cut; 108,000 are half an hour.",
        limit=COUNT,
        rare=True,
    )
    emulator_threads: int = setting(
        0,
        "Number of threads that step the emulators; 0 takes one for each core.",
        limit=COUNT_OR_NONE,
        group="devices and processes",
        rare=True,
    )

    def problems(self) -> list[str]:
        if self.max_frames > self.noops + self.frame_skip:
            return []
        return [f"max_frames={self.max_frames} leaves no step after noops={self.noops}; try max_frames=108000"]

    def task(self, name: str) -> HostTask:
        game = rom_of(name)
        actions = action_names(game, everything=self.full_actions)
        return HostTask(
            name=name,
            open=lambda count: AtariEnvs(game, count, self),
            observation=Observation(jax.ShapeDtypeStruct((SIDE, SIDE, self.stack), np.uint8)),
            action=Discrete(len(actions)),
            action_names=actions,
            # A promise, so rather less: should idle frames count as frames, an episode is cut that much earlier.
            truncation_interval=max(1, (self.max_frames - self.noops - 1) // max(1, self.frame_skip)),
            stack=self.stack,
            clip_rewards=self.clip_rewards,
            seconds=self.env_seconds,
            camera=lambda: AtariEnvs(game, 1, self, colours=True),
            pictures_per_second=max(1, 60 // max(1, self.frame_skip)),
            protocol=(
                ("frame_skip", self.frame_skip),
                ("stack", self.stack),
                ("noops", self.noops),
                ("sticky", self.sticky),
                ("life_loss", self.life_loss),
                ("clip_rewards", self.clip_rewards),
                ("fire_reset", self.fire_reset),
                ("full_actions", self.full_actions),
                ("max_frames", self.max_frames),
            ),
        )


class AtariEnvs:
    """ALE's vector environment, with single frames and true scores; for a film in full size and colour."""

    def __init__(self, game: str, count: int, world: Atari, colours: bool = False):
        from ale_py.vector_env import AtariVectorEnv
        from gymnasium.vector import AutoresetMode

        self.life_loss = world.life_loss
        self.whole = world.stack == 1 and not colours  # a frame is all of an observation, a picture [H, W, 1]
        self.envs = AtariVectorEnv(
            game,
            count,
            stack_num=1,
            img_height=SCREEN[0] if colours else SIDE,
            img_width=SCREEN[1] if colours else SIDE,
            grayscale=not colours,
            frameskip=world.frame_skip,
            noop_max=world.noops,
            repeat_action_probability=world.sticky,
            reward_clipping=False,
            use_fire_reset=world.fire_reset,
            full_action_space=world.full_actions,
            max_num_frames_per_episode=world.max_frames,
            num_threads=world.emulator_threads,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        frames, info = self.envs.reset(seed=seeds)
        self.lives = info["lives"]
        return self.shown(frames)

    def step(self, action: np.ndarray) -> HostStep:
        frames, reward, terminated, truncated, info = self.envs.step(action)
        ended = terminated | truncated
        lost = info["lives"] < self.lives if self.life_loss else False
        self.lives = info["lives"]
        last = self.shown(info["final_obs"]) if ended.any() else None
        terminated = terminated | (lost & ~truncated)
        return HostStep(self.shown(frames), reward.astype(np.float32), terminated, truncated, ended, last)

    def shown(self, frames: np.ndarray) -> np.ndarray:
        """ALE's frames `[N, 1, H, W]` as they are passed on."""
        return frames[:, 0, ..., None] if self.whole else frames[:, 0]

    def close(self) -> None:
        self.envs.close()


def rom_of(name: str) -> str:
    """The game's file, of a name such as `ALE/Breakout-v5`.  Raises ConfigError where there is none."""
    demand("ale_py", f"env={name!r}")
    games = atari_games()
    asked = re.sub(r"-v\d+$", "", name.removeprefix(ATARI))
    if asked not in games:
        near = did_you_mean(asked, games)
        raise ConfigError(f"env={name!r} is no game of ALE; " + near.replace("known are", "there are"))
    return games[asked]


def action_names(game: str, *, everything: bool) -> tuple[str, ...]:
    """The actions that do something in a game, or all 18."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    emulator = ale_py.ALEInterface()
    emulator.loadROM(str(roms.get_rom_path(game)))
    actions = emulator.getLegalActionSet() if everything else emulator.getMinimalActionSet()
    return tuple(action.name.lower() for action in actions)
