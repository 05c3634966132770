"""One process's share of a run: what it holds, and what it tells a person."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import jax

from rollax.programs.host import HostProgram
from rollax.programs.plan import Plan
from rollax.runs import tables as records
from rollax.runs.console import Console, Standing, duration, table
from rollax.runs.folder import RunFolder, Table
from rollax.runs.loggers import Loggers


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
    times: Times
    failed: dict[int, dict[str, Any]] = field(default_factory=dict)
    saved_step: int = 0  # of the newest checkpoint
    concerned: bool = False  # the agent's worries have been told
    memory_bytes: int = 0  # what the compiled programs need
    returns: list[list[float]] = field(default_factory=list)  # of each member, the rows in which episodes ended
    last_return: float | None = None  # mean over members, of the episodes in the last row
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.returns = [[] for _ in self.plan.members]

    def wall(self) -> float:
        return self.times.wall_seconds + time.perf_counter() - self.started

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
    total = plan.total * plan.steps_per_iteration
    rounded = f" (rounded up from {experiment.steps:,})" if total != experiment.steps else ""
    what = "1 seed" if experiment.seeds == 1 else f"{experiment.seeds} seeds"
    what += f" x {settings} settings" if settings > 1 else ""
    session.console.say(
        f"{experiment.agent} on {experiment.env}, {what}, {total:,} steps each{rounded}, on {records.device_name()}"
    )
    there = jax.device_count()
    if plan.grid.size > 1 or (there > 1 and jax.default_backend() != "cpu"):
        left = "" if plan.grid.size == there else f" ({there} are there; more would not divide the work, or not pay)"
        session.console.say(f"{plan.grid}{left}")
    session.console.say(
        f"Run folder: {session.folder.path}" + (f" (resumed from {resumed_from})" if resumed_from else "")
    )
    if isinstance(plan.program, HostProgram):
        envs = experiment.loop.num_envs * len(plan.members)
        how = "stepped while the agent learns" if experiment.loop.overlap else "stepped, then learnt from"
        session.console.say(f"{envs} environments outside JAX, {how}")
        if resumed_from:
            session.console.say("Learner and memory go on exactly as they were; the environments begin new episodes.")
    session.console.wait("Compiling")


def show_progress(session: Session, iteration: int, pace: float) -> None:
    """Where the run stands after so many iterations, each of which takes `pace` seconds."""
    plan = session.plan
    varied = [name for name in plan.members[0].hparams if len({one.hparams[name] for one in plan.members}) > 1]
    names = [
        ", ".join([f"seed {one.seed}", *(f"{name} {one.hparams[name]:g}" for name in varied)]) for one in plan.members
    ]
    standing = Standing(
        step=iteration * plan.steps_per_iteration,
        total=plan.total * plan.steps_per_iteration,
        rate=plan.steps_per_iteration * len(plan.members) / pace,
        seconds_left=(plan.total - iteration) * pace,
        members=names,
        returns=session.returns,
        mean=session.last_return,
    )
    session.console.progress(standing, last=iteration == plan.total)


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
            *(f"{member['hparams'][name]:g}" for name in varied),
            number(member["eval_return_mean"]),
            number(member["eval_return_std"]),
            member["status"],
        ]
        for member in members
    ]
    console.say(table(["member", "seed", *varied, "return", "std", "status"], rows))
    if "protocol" in summary:
        console.say(records.protocol_line(summary["protocol"]))


def tell_end(session: Session, status: str, summary: dict[str, Any]) -> None:
    """How it went, or how to go on."""
    session.console.close()
    if status == "interrupted":
        step = summary["total_steps"]
        session.console.say(f"Interrupted at step {step:,}; continue with `rollax resume {session.folder.path}`")
        return
    show_members(session.console, summary)
    rate, wall = summary["steps_per_second"], duration(summary["wall_seconds"])
    session.console.say(f"{status.capitalize()} in {wall}, {rate:,} steps/s in training.")
    session.console.say(f"Run folder: {session.folder.path}")
