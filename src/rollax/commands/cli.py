"""The table of commands: the usage, what each one does, and how one is run.  Nothing heavy is imported before."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import NamedTuple

from rollax.commands.failures import TRACEBACK, TRACEBACK_HELP, check_xla_flags, explained
from rollax.commands.kept import with_kept_answers
from rollax.errors import INTERRUPTED, ConfigError, blamed, did_you_mean


class Command(NamedTuple):
    """A command: what it is called with, what it does in a line, and where its function is."""

    arguments: str
    line: str
    function: str  # in a module of this package, imported when it is called

    def __call__(self, arguments: list[str]) -> int:
        """Runs it and returns its exit code.  Raises RollaxError for what a line explains."""
        module, _, name = self.function.partition(".")
        return getattr(importlib.import_module(f"rollax.commands.{module}"), name)(arguments)


COMMANDS: dict[str, Command] = {
    "train": Command(
        "[AGENT]",
        "train an agent; without one, Double DQN on CartPole-v1 with ten seeds",
        "train.train_command",
    ),
    "sweep": Command(
        "[AGENT]",
        "train many settings in one program: random search, halving, population-based training",
        "search.sweep_command",
    ),
    "tune": Command("[AGENT]", "Bayesian search, in batches; the same command continues it", "search.tune_command"),
    "resume": Command(
        "DIR", "continue an interrupted run, or extend a finished one with --steps", "train.resume_command"
    ),
    "eval": Command("DIR", "play greedy episodes with a trained run, or with zoo:NAME", "playing.eval_command"),
    "plot": Command("DIR...", "draw the learning curves of runs, and other figures", "report.plot_command"),
    "report": Command(
        "DIR...", "all about runs in one HTML file: curves, scores, tables, films", "report.report_command"
    ),
    "board": Command("[DIR]", "runs live in the browser, and their agents step by step", "board.board_command"),
    "export": Command("DIR", "write a trained policy as files that run without rollax", "report.export_command"),
    "watch": Command("DIR", "see a trained agent play, in the terminal and as a film", "playing.watch_command"),
    "play": Command("NAME", "play an environment yourself", "playing.play_command"),
    "compare": Command("NAME", "one experiment in PyTorch and in JAX, side by side", "comparing.compare_command"),
    "bench": Command(
        "",
        "what this machine does in a second; or the same training here and in another library",
        "bench.bench_command",
    ),
    "plan": Command(
        "[AGENT]", "what a run would need: iterations, memory, and what it depends on", "inspect.plan_command"
    ),
    "inspect": Command(
        "[AGENT]",
        "what JAX and XLA make of it: jaxpr, HLO, compilations, cost, memory, weights",
        "inspect.inspect_command",
    ),
    "profile": Command("[AGENT]", "record a trace, and see where the time goes", "inspect.profile_command"),
    "list": Command("", "agents, environments, and presets with their scores", "listing.list_command"),
    "zoo": Command("", "the trained policies that come with rollax, with their scores", "listing.zoo_command"),
    "check-env": Command("NAME", "see whether an environment keeps to the protocol", "listing.check_env_command"),
    "doctor": Command("", "versions, devices and memory of this machine", "listing.doctor_command"),
}


def usage() -> str:
    """All commands, a line each."""
    lines = [f"  {f'{name} {command.arguments}':<20}{command.line}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: rollax COMMAND ...",
            "",
            *lines,
            "",
            "`rollax COMMAND --help` explains a command, `rollax train AGENT --help` the agent's settings with",
            "their defaults, `--help-all` also the rare ones. `rollax --version` tells the version.",
            TRACEBACK_HELP,
        ]
    )


def run_command(name: str, arguments: list[str]) -> int:
    """Runs one command and returns its exit code; whatever is raised becomes a line for each problem."""
    try:
        if name not in COMMANDS:
            raise ConfigError(f"{name!r} is no command; {did_you_mean(name, COMMANDS)}")
        check_xla_flags()
        words = [word for word in arguments if word != TRACEBACK]
        return with_kept_answers(name, COMMANDS[name].function, words, lambda: COMMANDS[name](words))
    except KeyboardInterrupt:
        print("rollax: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BaseException as error:
        if isinstance(error, SystemExit) and not blamed(error):
            raise  # a command itself ends here, as after its help
        if isinstance(error, BrokenPipeError) and reader_is_gone():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if TRACEBACK in arguments:
            traceback.print_exception(error)
        answer = explained(error)
        for line in str(answer).splitlines():
            print(f"rollax: {line}", file=sys.stderr)
        return answer.exit_code


def reader_is_gone() -> bool:
    """Whether nobody reads what is printed, as after `| head`; another pipe may break too, which is a failure."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    return False
