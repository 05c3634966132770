"""Playing a game oneself, at the keyboard."""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from typing import Any, TextIO

import numpy as np

from rollax.envs import registry
from rollax.envs.actions import in_words
from rollax.envs.pictures import names_and_keys
from rollax.envs.protocol import Task
from rollax.errors import ConfigError
from rollax.reports.episodes import Ending, Scene, episode
from rollax.reports.films import CLEAR, as_text, drawer_for, with_caption
from rollax.reports.keyboard import key_presses
from rollax.types import Discrete

LEAVE, EXPLAIN = "Q", "?"


def play(name: str, *, seed: int = 0, keyboard: TextIO = sys.stdin, screen: TextIO = sys.stdout) -> Ending:
    """Lets a person play an episode: a key for each action, `Q` to leave.  Without a terminal keys come from lines."""
    task = registry.make_inside(name)
    drawer_for(task, name)
    if task.players:
        raise ConfigError(
            f"env={name!r} has {task.players} players, and a keyboard is for one; watch a run of it instead"
        )
    if not isinstance(task.action, Discrete):
        raise ConfigError(
            f"in env={name!r} {in_words(task.action)}, and keys choose numbered actions; watch a run of it instead"
        )
    names, keys = action_keys(task)
    show = Display(task, name, screen, live=keyboard.isatty())

    def choose(scene: Scene) -> int | None:
        legal = legal_in(scene, task)
        show.scene(scene)
        offered = "  ".join(f"{written(keys[i])} {names[i]}" for i in np.flatnonzero(legal))
        show.line(f"keys: {offered}   {LEAVE} leaves")
        for key in pressed:
            if key == LEAVE:
                return None
            if key in keys and legal[keys.index(key)]:
                return keys.index(key)
            show.answer(key, keys, names, scene)
        return None

    show.line(f"compiling a step of {name}, once ...")
    ending = None
    with closing(key_presses(keyboard)) as pressed:
        for moment in episode(task, choose, seed, most=sys.maxsize):
            ending = moment
    assert isinstance(ending, Ending)
    if ending.last is not None:
        show.scene(ending.last)
    return ending


def legal_in(scene: Scene, task: Task) -> np.ndarray:
    """Which actions are legal; all, where the environment has no mask."""
    return np.ones(task.num_actions, bool) if scene.obs.legal is None else np.asarray(scene.obs.legal)


def written(key: str) -> str:
    """A key as one reads it."""
    return {" ": "space"}.get(key, key)


def action_keys(task: Task) -> tuple[tuple[str, ...], str]:
    """A name and a key for each action: the environment's own, or numbers and letters in order."""
    names, keys = names_and_keys(task)
    if len(keys) < task.num_actions:
        raise ConfigError(
            f"there are {task.num_actions} actions and only {len(keys)} keys; give the environment `keys`"
        )
    return names, keys


class Display:
    """Where a person sees a game."""

    def __init__(self, task: Task, name: str, screen: TextIO, *, live: bool) -> None:
        self.task, self.draw, self.screen, self.live = task, drawer_for(task, name), screen, live

    def line(self, text: str) -> None:
        print(text, file=self.screen, flush=True)

    def scene(self, scene: Scene) -> None:
        """The game, what the last move did, and the numbers."""
        self.line((CLEAR if self.live else "") + self.board(scene._replace(move=None)))
        if scene.move is not None:
            self.line(
                f"last move: {scene.move.name}, reward {scene.move.reward:+.2f}. {' '.join(scene.move.told)}".rstrip()
            )

    def board(self, scene: Scene) -> str:
        whole = getattr(self.task.env, "screen", None)
        if whole is None:
            return as_text(self.task, self.draw, scene)
        columns = shutil.get_terminal_size().columns
        return with_caption(whole(scene.state, legal_in(scene, self.task), columns, colours=self.live), scene)

    def answer(self, key: str, keys: str, names: tuple[str, ...], scene: Scene) -> None:
        """What there is to say to a key that does nothing here."""
        env: Any = self.task.env
        if key == EXPLAIN and hasattr(env, "legend"):
            self.line("\n".join(env.legend(scene.state, legal_in(scene, self.task))))
        elif key in keys:
            reason = f": {env.why_not(scene.state, keys.index(key))}" if hasattr(env, "why_not") else ""
            self.line(f"{written(key)} ({names[keys.index(key)]}) is not legal here{reason}")
        else:
            self.line(f"{key!r} is no key of this game")
