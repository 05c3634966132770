"""The commands that play: `eval`, `watch`, `play`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from rollax.commands.flags import Trusting, parse
from rollax.errors import ConfigError
from rollax.settings import COUNT, COUNT_OR_NONE, SHARE, Limit, setting

SEED = Limit(0, 2**32 - 1)


@dataclass(frozen=True)
class Eval(Trusting):
    run_dir: Annotated[str, tyro.conf.Positional] = setting(
        help="The folder of a run or of an exported policy, or zoo:NAME of a trained policy."
    )
    episodes: int = setting(100, "Number of episodes of each member.", limit=COUNT)
    epsilon: float | None = setting(
        None, "Share of random actions; by default that of the run's own evaluations.", limit=SHARE
    )
    seed: int = setting(0, "Random seed of the environments; the same seed plays the same episodes.", limit=SEED)
    best: bool = setting(False, "Play the weights of the best evaluation instead of the last.")
    json: bool = setting(False, "Print a JSON list, an object for each member, instead of a table.")


def eval_command(arguments: list[str]) -> int:
    options = parse(Eval, arguments, "rollax eval", "Play episodes with every member of a run, without exploring.")
    from rollax.reports.export import ExportedPolicy, is_export
    from rollax.runs.console import table
    from rollax.runs.result import evaluate_run
    from rollax.runs.tables import protocol_line

    if is_export(options.run_dir):
        if options.epsilon is not None or options.best:
            raise ConfigError("epsilon and best were decided when the policy was exported; leave them out")
        rows = ExportedPolicy(Path(options.run_dir)).evaluate(options.episodes, options.seed, trust=options.trust)
    else:
        rows = evaluate_run(
            options.run_dir,
            options.episodes,
            epsilon=options.epsilon,
            seed=options.seed,
            best=options.best,
            trust=options.trust,
        )
    if options.json:
        print(json.dumps(rows))
        return 0
    header = ["member", "seed", "episodes", "truncated", "return_mean", "return_std", "return_min", "return_max"]
    cells = [
        [f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in header] for row in rows
    ]
    print(table(header, cells))
    if "protocol" in rows[0]:
        print(protocol_line(rows[0]["protocol"]))
    return 0


@dataclass(frozen=True)
class Watch(Trusting):
    run_dir: Annotated[str, tyro.conf.Positional] = setting(
        help="The folder of a run, or zoo:NAME of a trained policy."
    )
    member: int = setting(0, "The member whose agent plays.", limit=COUNT_OR_NONE)
    best: bool = setting(False, "Play the weights of the best evaluation instead of the last.")
    seed: int = setting(0, "Random seed of the episode; the same seed plays the same one.", limit=COUNT_OR_NONE)
    max_steps: int = setting(
        0,
        "Number of steps after which an episode that does not end is left; 0 for as suits the environment.",
        limit=COUNT_OR_NONE,
    )
    fps: int = setting(0, "Number of pictures in a second; 0 for as suits the environment.", limit=Limit(0, 60))
    out: str = setting("", "Path of the film, .gif or .mp4; by default watch.gif in the run folder, or NAME.gif here.")
    quiet: bool = setting(False, "Write the film only, and show nothing in the terminal.")


def watch_command(arguments: list[str]) -> int:
    options = parse(Watch, arguments, "rollax watch", "See a trained agent play: in the terminal, and as a GIF or MP4.")
    from rollax.reports.films import watch

    screen = sys.stdout if sys.stdout.isatty() and not options.quiet else None
    path, ending = watch(
        options.run_dir,
        member=options.member,
        best=options.best,
        seed=options.seed,
        most=options.max_steps,
        frames_per_second=options.fps,
        out=options.out or None,
        screen=screen,
        trust=options.trust,
    )
    print(ending_line(ending))
    print(path)
    return 0


@dataclass(frozen=True)
class Play:
    env: Annotated[str, tyro.conf.Positional] = setting(help="The environment's name, or package.module:function.")
    seed: int = setting(0, "Random seed of the game; the same seed is the same game.", limit=SEED)


def play_command(arguments: list[str]) -> int:
    options = parse(Play, arguments, "rollax play", "Play an environment yourself: a key for each action, Q to leave.")
    from rollax.reports.playing import play

    print(ending_line(play(options.env, seed=options.seed)))
    return 0


def ending_line(ending: Any) -> str:
    """How an episode ended, in a line."""
    facts = "".join(f", {name} {value}" for name, value in ending.info.items())
    return f"return {ending.total:.2f} after {ending.steps} steps{facts}"
