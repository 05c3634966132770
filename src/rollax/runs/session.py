"""One process's share of a run: what it holds, and what it tells a person."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

import jax

from rollax.errors import EnvError, RollaxError, warn
from rollax.programs.background import abandon, leave
from rollax.programs.loop import LEGAL
from rollax.programs.machine import device_name
from rollax.programs.plan import Plan
from rollax.programs.shelf import NO_SHELF, Shelf
from rollax.runs import tables
from rollax.runs.console import Console, Standing, duration, table
from rollax.runs.files import Table
from rollax.runs.folder import RunFolder
from rollax.runs.loggers import Loggers
from rollax.runs.result import Policy
from rollax.runs.saving import Saver
from rollax.runs.signals import Ear, exit_code


class Draw(NamedTuple):
    """Who draws at the end of a run."""

    curves: Callable[[list[Path], Path], Path]  # of run folders into a file, whose path it returns
    prepare: Callable[[], None]  # imports what it draws with, which takes as long as drawing
    film: Callable[[Policy, str], bytes | None]  # a GIF of a greedy episode; None where there is no picture


@dataclass
class Times:
    """Seconds of a run, added up over its resumes."""

    wall_seconds: float = 0.0
    compile_seconds: float = 0.0
    train_seconds: float = 0.0


@dataclass
class Session:
    """One process's share of a run."""

    plan: Plan
    folder: RunFolder
    console: Console
    metrics: Table
    evaluations: Table
    loggers: Loggers
    saver: Saver
    times: Times
    failed: dict[int, dict[str, Any]] = field(default_factory=dict)
    saved_step: int = 0  # of the newest checkpoint
    concerned: bool = False  # the agent's worries have been told
    memory_bytes: int = 0  # what the compiled programs need
    shelf: Shelf = NO_SHELF  # where they are kept
    returns: list[list[float]] = field(default_factory=list)  # of each member, the rows in which episodes ended
    last_return: float | None = None  # mean over members, of the episodes in the last row
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.returns = [[] for _ in self.plan.members]

    def wall(self) -> float:
        return self.times.wall_seconds + time.perf_counter() - self.started

    def recorded(self) -> dict[str, Any]:
        """What the tables hold by now, for a checkpoint: rows that change later are known by it."""
        tables = [self.metrics, self.evaluations]
        own = {one.path.name: {"header": one.lines[0], "rows": one.digests} for one in tables}
        return own | self.loggers.recorded()

    def add_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Rows of metrics.csv, for everyone who wants them."""
        self.metrics.add(rows)
        self.loggers.add("train", rows)
        for row in rows:
            if row["episode_return_mean"] is not None:
                self.returns[row["member"]].append(row["episode_return_mean"])
        ended = [row["episode_return_mean"] for row in rows if row["step"] == rows[-1]["step"]]
        ended = [value for value in ended if value is not None]
        self.last_return = sum(ended) / len(ended) if ended else self.last_return

    def add_evaluations(self, rows: list[dict[str, Any]]) -> None:
        """Rows of evaluations.csv, likewise."""
        self.evaluations.add(rows)
        self.loggers.add("eval", rows)


def announce(session: Session, resumed_from: str) -> None:
    """What is about to happen, where."""
    plan, experiment = session.plan, session.plan.experiment
    settings = len(plan.members) // experiment.seeds
    total = plan.last_step
    rounded = f" (rounded up from {experiment.steps:,})" if total != experiment.steps else ""
    what = "1 seed" if experiment.seeds == 1 else f"{experiment.seeds} seeds"
    what += f" x {settings} settings" if settings > 1 else ""
    session.console.say(
        f"{experiment.agent} on {experiment.env}, {what}, {total:,} steps each{rounded}, on {device_name()}"
    )
    there = jax.device_count()
    if plan.grid.size > 1 or (there > 1 and jax.default_backend() != "cpu"):
        left = (
            ""
            if plan.grid.size == there
            else f" ({there} were found; more would not divide the work evenly, or not be faster)"
        )
        session.console.say(f"{plan.grid}{left}")
    session.console.say(
        f"Run folder: {session.folder.path}" + (f" (resumed from {resumed_from})" if resumed_from else "")
    )
    for remark in plan.program.remarks(len(plan.members), bool(resumed_from)):
        session.console.say(remark)
    session.console.wait("Compiling")


def show_progress(session: Session, iteration: int, pace: float) -> None:
    """Where the run stands after so many iterations, each of which takes `pace` seconds."""
    plan = session.plan
    varied = [name for name in plan.members[0].hparams if len({one.hparams[name] for one in plan.members}) > 1]
    names = [
        ", ".join([f"seed {seed}", *(f"{name} {brief(hparams[name])}" for name in varied)])
        for seed, hparams in plan.members
    ]
    standing = Standing(
        step=iteration * plan.steps_per_iteration,
        total=plan.last_step,
        rate=plan.steps_per_iteration * len(plan.members) / pace,
        seconds_left=max(plan.schedule.total - iteration, 0) * pace,
        members=names,
        returns=session.returns,
        mean=session.last_return,
    )
    session.console.progress(standing, last=iteration >= plan.schedule.total)


def brief(value: Any) -> str:
    """A number or the text of a schedule, as it sets members apart."""
    return value if isinstance(value, str) else f"{value:g}"


def show_members(console: Console, summary: dict[str, Any]) -> None:
    """A line for each member: its seed, what sets it apart, and how it did."""
    members = summary["members"]
    varied = [name for name in members[0]["hparams"] if len({member["hparams"][name] for member in members}) > 1]

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    rows = [
        [
            str(member["member"]),
            str(member["seed"]),
            *(brief(member["hparams"][name]) for name in varied),
            number(member["eval_return_mean"]),
            number(member["eval_return_std"]),
            member["status"],
        ]
        for member in members
    ]
    console.say(table(["member", "seed", *varied, "return", "std", "status"], rows))
    if "protocol" in summary:
        console.say(tables.protocol_line(summary["protocol"]))


def tell_end(session: Session, status: str, summary: dict[str, Any]) -> None:
    """How it went, or how to go on."""
    session.console.close()
    if status == "interrupted":
        step = summary["total_steps"]
        session.console.say(f"Interrupted at step {step:,}; continue with `rollax resume {session.folder.path}`")
        return
    show_members(session.console, summary)
    if status == "stopped":
        session.console.say(f"{summary['reason']}; continue with `rollax resume {session.folder.path}`")
    rate, wall = summary["steps_per_second"], duration(summary["wall_seconds"])
    session.console.say(f"{status.capitalize()} in {wall}, {rate:,} steps/s in training.")
    session.console.say(f"Run folder: {session.folder.path}")


def note_failures(session: Session, state: Any) -> None:
    """Says once of each member that it met a number that is not finite.  Raises EnvError where no action is legal."""
    for member, failure in tables.failures(session.plan, state.health).items():
        if member not in session.failed:
            session.failed[member] = failure
            if failure["tensor"] == LEGAL:
                raise EnvError(
                    f"{session.plan.experiment.env} left no legal action in a running episode, "
                    f"by step {failure['step']:,}; its mask must allow one until the episode ends"
                )
            seed = session.plan.members[member].seed
            warn(
                f"member {member} (seed {seed}) stopped at step {failure['step']:,}: {failure['tensor']} not finite; "
                "its last finite weights are kept and the others go on"
            )


def finite_scores(session: Session, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of an evaluation whose returns are finite; a member with other returns has failed."""
    for row in rows:
        if not math.isfinite(row["return_mean"]):
            member, step = row["member"], row["step"]
            session.failed[member] = {"step": step, "tensor": "returns of the evaluation"}
            warn(
                f"member {member} (seed {row['seed']}) failed at step {step:,}: "
                "returns of the evaluation not finite; the others go on"
            )
    return [row for row in rows if row["member"] not in session.failed]


def tell_concerns(session: Session, rows: list[dict[str, Any]]) -> None:
    """Passes on what the agent finds worrying in its metrics, once in a run."""
    agent, last = session.plan.program.agent, session.plan.last_step
    for row in rows:
        metrics = {name: row[name] for name in agent.metric_names}
        if session.concerned or None in metrics.values():
            continue
        concern = agent.concern(metrics, row["step"] / last)
        if concern is not None:
            warn(f"member {row['member']}, step {row['step']:,}: {concern}")
            session.concerned = True


def write_summary(session: Session, status: str, step: int, params: Any) -> dict[str, Any]:
    """Writes summary.json and returns what is in it; `params` are the weights, or None before there are any."""
    times = asdict(replace(session.times, wall_seconds=session.wall()))
    arguments = (
        session.plan,
        session.evaluations.rows(),
        status,
        step,
        times,
        session.memory_bytes,
        params,
        session.failed,
    )
    summary = tables.summarize(*arguments)
    if status == "stopped":
        summary["reason"] = f"on_rows returned rollax.STOP at step {step:,}"
    session.folder.write_summary(summary)
    return summary


def draw_curve(session: Session, draw: Draw) -> None:
    try:
        session.console.say(f"Plot: {draw.curves([session.folder.path], session.folder.curve)}")
    except RollaxError as error:
        warn(str(error))


def answering(session: Session, ear: Ear) -> AbstractContextManager[None]:
    """A context for a compiled program: one that does not return after a signal is left, with its process."""

    def give_up(number: int) -> None:
        name, step = Signals(number).name, session.saved_step
        warn(f"{name}: a compiled program does not return; leaving it, with what is saved up to step {step:,}")
        abandon()
        try:
            write_summary(session, "interrupted", step, None)
        finally:
            leave(exit_code(number))

    return ear.or_leave(give_up)
