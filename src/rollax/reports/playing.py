"""Playing a game oneself, at the keyboard."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

import numpy as np

from rollax.envs import registry
from rollax.envs.actions import in_words
from rollax.envs.protocol import Task
from rollax.errors import ConfigError
from rollax.reports.films import CLEAR, Ending, Scene, as_text, drawer_for, episode
from rollax.types import Discrete


def play(name: str, *, seed: int = 0, keyboard: TextIO = sys.stdin, screen: TextIO = sys.stdout) -> Ending:
    """Lets a person play an episode: a key for each action, `Q` to leave.  Without a terminal keys come from lines."""
    task = registry.make_inside(name)
    draw = drawer_for(task, name)
    if task.players:
        raise ConfigError(
            f"env={name!r} has {task.players} players, and a keyboard is for one; watch a run of it instead"
        )
    if not isinstance(task.action, Discrete):
        raise ConfigError(
            f"in env={name!r} {in_words(task.action)}, and keys choose numbered actions; watch a run of it instead"
        )
    keys, names = action_keys(task)
    live = keyboard.isatty()
    pressed = key_presses(keyboard)

    def choose(scene: Scene) -> int | None:
        legal = np.ones(task.num_actions, bool) if scene.obs.legal is None else np.asarray(scene.obs.legal)
        offered = "  ".join(f"{keys[i] if keys[i] != ' ' else 'space'}:{names[i]}" for i in np.flatnonzero(legal))
        print((CLEAR if live else "") + as_text(task, draw, scene), file=screen)
        print(f"legal: {offered}   (Q leaves)", file=screen, flush=True)
        for key in pressed:
            if key == "Q":
                return None
            if key in keys and legal[keys.index(key)]:
                return keys.index(key)
            print(f"{key!r} is not legal here", file=screen, flush=True)
        return None

    ending = None
    for moment in episode(task, choose, seed, most=sys.maxsize):
        ending = moment
    assert isinstance(ending, Ending)
    return ending


def action_keys(task: Task) -> tuple[str, tuple[str, ...]]:
    """A key and a name for each action: the environment's own, or the letters in order."""
    keys = getattr(task.env, "keys", "0123456789abcdefghijklmnopqrstuvwxyz"[: task.num_actions])
    if len(keys) < task.num_actions:
        raise ConfigError(
            f"there are {task.num_actions} actions and only {len(keys)} keys; give the environment `keys`"
        )
    return keys, getattr(task.env, "action_names", tuple(f"action {i}" for i in range(task.num_actions)))


def key_presses(keyboard: TextIO) -> Iterator[str]:
    """Keys as they are pressed; arrows count as w, s, a and d."""
    if not keyboard.isatty():
        for line in keyboard:
            yield from line.rstrip("\n")
        return
    import termios
    import tty

    descriptor = keyboard.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        while True:
            key = keyboard.read(1)
            if key == "\x1b":
                key = {"[A": "w", "[B": "s", "[D": "a", "[C": "d"}.get(keyboard.read(2), "")
            if not key:
                return
            yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
