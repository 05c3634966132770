"""Games that a browser plays step by step, and what it is told of each moment."""

from __future__ import annotations

import base64
import io
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rollax.agents.base import Opinion
from rollax.board.game import NOBODY, Game, Moment, Player, game_of, is_numbered
from rollax.envs.pictures import names_and_keys
from rollax.errors import ConfigError
from rollax.experiment.looking import modules_in
from rollax.reports.playing import action_keys
from rollax.rules.distributions import MaskedCategorical
from rollax.rules.returns import Categorical, Quantiles
from rollax.runs.folder import RunFolder
from rollax.runs.result import Result
from rollax.runs.trust import is_installed
from rollax.settings import COUNT_OR_NONE

MOST_GAMES = 4  # that are kept; the one that was played least lately is given up for another
MOST_SPREADS = 8  # distributions that are shown at once: those of the best actions
# Environments that a person may play, with what their pictures show.
PLAYABLE = {
    "CartPole-v1": ("Keep the pole upright and the cart between the red marks. Every step is worth 1.",),
    "TreasureHunt-v0": (
        "You are player 0; the agent moves the others.",
        "Walk onto a gem to take it. A wall cannot be entered.",
    ),
    "HackMatrix-v0": (
        "Blue disc: you. Green frame: the exit. Yellow diamond: a pickup.",
        "Triangle: virus. Square: daemon. Hexagon: glitch. Octagon: cryptog. The number is its hp, ! is stunned.",
        "Purple ring: a transmission, with the turns until it arrives.",
        "Grey block: points or a program; siphon it from beside it. Gold dots: credits. Blue dots: energy.",
    ),
}


@dataclass
class Session:
    """One game of one browser."""

    player: Player
    game: Game
    lock: threading.Lock


class Games:
    """The games that have been begun, by names that nobody can guess."""

    def __init__(self, trust: bool = False):
        self.trust = trust
        self.sessions: dict[str, Session] = {}
        self.players: dict[tuple, Player] = {}
        self.lock = threading.Lock()

    def answer(self, path: Path, asked: dict[str, Any]) -> dict[str, Any]:
        """The next moment of a game, or the first of a new one where its name is not known."""
        session = self.sessions.get(asked["game"])
        if session is not None and asked["action"] is not None:
            with session.lock:
                return plain(asked["game"], session.player, session.game.step(checked(session.player, asked["action"])))
        if not COUNT_OR_NONE.admits(asked["seed"]) or not COUNT_OR_NONE.admits(asked["member"]):
            raise ConfigError("seed and member must be whole numbers that are not negative")
        player = self.player(path, asked["member"], best=asked["best"])
        name, session = secrets.token_urlsafe(12), Session(player, game_of(player), threading.Lock())
        with session.lock:
            moment = session.game.begin(asked["seed"])
        self.keep(name, session, asked["game"])
        return plain(name, player, moment)

    def keep(self, name: str, session: Session, instead: str) -> None:
        """Adds a game, and gives up another that it comes instead of, or the oldest where there are too many."""
        with self.lock:
            self.sessions[name] = session
            old = [instead] if instead in self.sessions else []
            old += list(self.sessions)[: max(0, len(self.sessions) - len(old) - MOST_GAMES)]
            given_up = [self.sessions.pop(one) for one in dict.fromkeys(old)]
        for one in given_up:
            with one.lock:
                one.game.close()

    def player(self, path: Path, member: int, *, best: bool) -> Player:
        """A run's agent as it is saved now.  What it has compiled serves all of its games."""
        self.demand_trust(path)
        folder = RunFolder(path, writes=False)
        checkpoint, _ = folder.newest_good_checkpoint()
        mark = (path, member, best, str(checkpoint), checkpoint.stat().st_mtime_ns if checkpoint else 0)
        with self.lock:  # two who ask at once do not compile the same twice
            if mark not in self.players:
                result = Result(path, trust=self.trust)
                policy, env = result.policy(member, best=best), result.experiment.env
                while len(self.players) >= MOST_GAMES:
                    del self.players[next(iter(self.players))]
                self.players[mark] = Player(policy, env)
                if not policy.task.outside:  # so that nobody waits for the compiler between two steps
                    first = game_of(self.players[mark])
                    first.begin(0)
                    first.step(NOBODY)
            return self.players[mark]

    def demand_trust(self, path: Path) -> None:
        """Raises ConfigError where a run names modules that are not installed, unless the user trusts them all."""
        config = RunFolder(path, writes=False).read_config()
        strange = [] if self.trust else [module for module in modules_in(config) if not is_installed(module)]
        if strange:
            raise ConfigError(
                f"to play it runs code of the module {' and '.join(strange)}; "
                "if you trust it, start the board with --trust"
            )

    def close(self) -> None:
        """Ends all games."""
        for session in self.sessions.values():
            session.game.close()
        self.sessions.clear()


def checked(player: Player, action: int) -> int:
    """An action that a person has chosen, or that nobody has."""
    if action == NOBODY:
        return NOBODY
    if not is_numbered(player.policy) or player.name not in PLAYABLE:
        raise ConfigError(f"env={player.name!r} is played by its agent alone")
    if not 0 <= action < player.policy.task.num_actions:
        raise ConfigError(f"action={action} must be in [0, {player.policy.task.num_actions - 1}]")
    return action


def plain(name: str, player: Player, moment: Moment) -> dict[str, Any]:
    """A moment as the page's script reads it."""
    task = player.policy.task
    names = names_of(player)
    legal = [None] * max(1, task.players) if moment.legal is None else list(np.atleast_2d(moment.legal))
    actions = list(moment.action) if task.players else [moment.action]
    answer = {
        "game": name,
        "env": player.name,
        "seed": moment.seed,
        "step": moment.steps,
        "total": number(moment.total),
        "over": moment.over,
        "picture": f"data:image/png;base64,{base64.b64encode(png(moment.picture)).decode()}",
        "width": int(moment.picture.shape[1]),
        "height": int(moment.picture.shape[0]),
        "players": [
            thought_of(opinion, names, own, action)
            for opinion, own, action in zip(moment.opinions, legal, actions, strict=True)
        ],
        "rate": task.pictures_per_second,
    }
    if player.name in PLAYABLE and is_numbered(player.policy):
        answer |= {"keys": list(keys_of(player)), "legend": list(PLAYABLE[player.name])}
    return answer


def names_of(player: Player) -> tuple[str, ...]:
    """What the actions are called; nothing where they are not numbered."""
    if not is_numbered(player.policy):
        return ()
    task = player.policy.task
    count = task.num_actions
    names, _ = names_and_keys(task)
    return tuple(names[:count]) if len(names) >= count else tuple(f"action {index}" for index in range(count))


def keys_of(player: Player) -> str:
    """A key for each action."""
    return action_keys(player.policy.task)[1]


def thought_of(opinion: Opinion, names: Sequence[str], legal: np.ndarray | None, action: Any) -> dict[str, Any]:
    """One player's opinion: a bar for each action, the value of the state, and distributions where there are any."""
    if not names:
        said = np.ravel(action)
        bars = [{"name": f"number {index}", "value": number(one), "legal": True} for index, one in enumerate(said)]
        return {"kind": "numbers", "bars": bars, "value": single(opinion.value), "chosen": None, "spreads": []}
    kind, values = bars_of(opinion)
    allowed = np.ones(len(names), bool) if legal is None else np.asarray(legal, bool)
    bars = [
        {"name": name, "value": None if values is None else number(values[index]), "legal": bool(allowed[index])}
        for index, name in enumerate(names)
    ]
    best = None if values is None else float(np.max(np.where(allowed, values, -np.inf)))
    value = single(opinion.value) if opinion.value is not None else best if kind == "values" else None
    spreads = [] if values is None else spreads_of(opinion.returns, names, np.where(allowed, values, -np.inf))
    return {"kind": kind, "bars": bars, "value": number(value), "chosen": int(action), "spreads": spreads}


def bars_of(opinion: Opinion) -> tuple[str, np.ndarray | None]:
    """What the bars mean, and a number for each action: Q-values, probabilities, or scores of another kind."""
    if opinion.returns is not None:
        return "values", np.asarray(opinion.returns.mean())[0]
    if isinstance(opinion.policy, MaskedCategorical):
        return "chances", np.exp(np.asarray(opinion.policy.log_probs, np.float64))[0]
    if opinion.scores is not None:
        return "scores", np.asarray(opinion.scores)[0]
    return "none", None


def spreads_of(returns: Any, names: Sequence[str], values: np.ndarray) -> list[dict[str, Any]]:
    """The distributions of the returns of the best legal actions: chances of returns, or how many lie below one."""
    best = [int(index) for index in np.argsort(-values)[:MOST_SPREADS] if np.isfinite(values[index])]
    if isinstance(returns, Categorical):
        chances = np.asarray(jax.nn.softmax(returns.logits))[0]
        lines: Callable[[int], tuple] = lambda action: (np.asarray(returns.support), chances[action])  # noqa: E731
    elif isinstance(returns, Quantiles):
        levels = np.sort(np.asarray(returns.taus)[0])
        lines = lambda action: (np.sort(np.asarray(returns.values)[0, action]), levels)  # noqa: E731
    else:
        return []
    found = []
    for action in sorted(best):
        x, y = lines(action)
        found.append({"name": names[action], "x": [number(one) for one in x], "y": [number(one) for one in y]})
    return found


def single(value: Any) -> float | None:
    return None if value is None else number(np.ravel(value)[0])


def number(value: Any) -> float | None:
    """A number as JSON has it."""
    return float(f"{float(value):.6g}") if value is not None and np.isfinite(value) else None


def png(picture: np.ndarray) -> bytes:
    """A picture as a file."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(picture).save(out, format="PNG", compress_level=1)
    return out.getvalue()
