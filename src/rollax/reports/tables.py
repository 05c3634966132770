"""The tables of a report, as HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

import numpy as np

from rollax.experiment.parts import PART_ABOUT
from rollax.programs.machine import memory_size
from rollax.reports.runs import Group, Run, differing, value_text
from rollax.reports.scales import scale_of
from rollax.rules.aggregates import bootstrap
from rollax.runs.console import duration
from rollax.runs.tables import protocol_line

LONG_TABLE = 15  # rows that a page shows at once


def evaluation_section(groups: Sequence[Group]) -> str:
    rows = [evaluation_row(group) for group in groups if len(group.scores)]
    if not rows:
        return ""
    header = [
        "setting",
        "environment",
        "seeds",
        "mean",
        "std",
        "min",
        "max",
        "IQM",
        "95 % interval",
        "solved",
        "solved at",
    ]
    seeds = [
        [group.method, group.env, *map(str, (member, entry["seed"])), *last_evaluation(group, member), entry["status"]]
        for group in groups
        for member in group.members
        for entry in [group.run.result.summary["members"][member]]
    ]
    details = table(
        ["setting", "environment", "member", "seed", "return", "std", "min", "max", "length", "episodes", "status"],
        seeds,
    )
    meaning = (
        "Greedy episodes of the last weights. Solved: seeds whose last evaluation reaches the level at which the "
        "environment counts as solved; solved at: the steps after which half of the seeds had done so in an evaluation."
    )
    return section("Evaluation", boxed(table(header, rows)), note(meaning), folded("Seed by seed", details))


def evaluation_row(group: Group) -> list[str]:
    scores, scale = group.scores, scale_of(group.env)
    interval = bootstrap(scores)
    spread = f"{scores.std(ddof=1):.1f}" if len(scores) > 1 else "-"
    solved, reached = "-", "-"
    if scale and scale.solved is not None:
        solved = f"{np.sum(scores >= scale.solved)} of {len(group.members)}"
        reached = first_solved(group, scale.solved)
    numbers = [f"{value:.1f}" for value in (scores.min(), scores.max(), interval.value)]
    between = f"{interval.low:.1f} to {interval.high:.1f}" if len(scores) > 1 else "-"
    return [
        group.method,
        group.env,
        str(len(scores)),
        f"{scores.mean():.1f}",
        spread,
        *numbers,
        between,
        solved,
        reached,
    ]


def first_solved(group: Group, level: float) -> str:
    """The steps after which half of the seeds had an evaluation at that level."""
    reached = np.maximum.accumulate(np.nan_to_num(group.evaluation("return_mean"), nan=-np.inf) >= level, axis=1)
    enough = np.flatnonzero(reached.mean(axis=0) >= 0.5)
    if not len(enough):
        return "-"
    return f"{int(np.nanmax(group.evaluation('step')[:, enough[0]])):,}"


def last_evaluation(group: Group, member: int) -> list[str]:
    found = group.run.result.evaluations
    there = np.flatnonzero(~np.isnan(found["return_mean"][member])) if found else np.array([], int)
    if not len(there):
        return ["-"] * 6
    last = there[-1]
    columns = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
    return [*(f"{found[name][member, last]:.1f}" for name in columns), f"{found['episodes'][member, last]:.0f}"]


def differences_section(runs: Sequence[Run]) -> str:
    names = differing(runs)
    if len(runs) < 2 or not names:
        return ""
    rows = [[name, *(value_text(run.settings[name]) if name in run.settings else "" for run in runs)] for name in names]
    header = ["setting", *(run.name for run in runs)]
    shown_at_once = len(rows) <= LONG_TABLE
    content = boxed(table(header, rows)) if shown_at_once else folded(f"{len(rows)} settings", table(header, rows))
    return section("What differed between the runs", content)


def machine_section(runs: Sequence[Run]) -> str:
    """Throughput, time, memory, versions."""
    summaries = [run.result.summary for run in runs]
    rows = [
        [
            run.name,
            summary["status"],
            f"{summary['total_steps']:,}",
            str(len(summary["members"])),
            "-" if summary["steps_per_second"] is None else f"{summary['steps_per_second']:,}",
            duration(summary["train_seconds"]),
            f"{summary['compile_seconds']:.1f} s",
            duration(summary["wall_seconds"]),
            memory_size(summary["memory_bytes"]) if summary.get("memory_bytes") else "-",
            summary["device"],
        ]
        for run, summary in zip(runs, summaries, strict=True)
    ]
    header = ["run", "status", "steps", "members", "steps/s", "training", "compiling", "in all", "memory", "device"]
    packages = list(dict.fromkeys(name for summary in summaries for name in summary["versions"]))
    versions = [[name, *(summary["versions"].get(name, "-") for summary in summaries)] for name in packages]
    if all(summary["versions"] == summaries[0]["versions"] for summary in summaries):
        versions, columns = [row[:2] for row in versions], ["package", "version"]
    else:
        columns = ["package", *(run.name for run in runs)]
    protocols = list(dict.fromkeys(protocol_line(one["protocol"]) for one in summaries if "protocol" in one))
    meaning = "Steps per second of all members together, in training; memory as the compiled programs need it."
    return section("Throughput and memory", boxed(table(header, rows)), note(meaning), *map(note, protocols)) + section(
        "Versions", boxed(table(columns, versions))
    )


def settings_section(runs: Sequence[Run]) -> str:
    apart = set(differing(runs))
    header = ["setting", "value", "what it is"]
    tables = []
    for run in runs:
        helps = {leaf.name: leaf.help for leaf in run.leaves}
        helps |= {name: PART_ABOUT[name.split(".")[-1]].help for name in run.settings if name not in helps}
        rows = [[name, value_text(value), helps[name]] for name, value in run.settings.items()]
        tables.append(folded(run.name, table(header, rows, apart)))
    return section("Hyper-parameters", *tables)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], marked: Collection[str] = ()) -> str:
    """Rows of text; a row whose first cell is marked stands out."""
    top = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr{' class=other' if row[0] in marked else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    narrow = " class=narrow" if len(header) < 4 else ""
    return f"<table{narrow}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def section(title: str, *content: str) -> str:
    return f"<h2>{escape(title)}</h2>{''.join(content)}"


def boxed(content: str) -> str:
    return f'<div class="card scroll">{content}</div>'


def folded(title: str, content: str) -> str:
    """What is seen once its title is clicked."""
    return f'<details class="card scroll"><summary>{escape(title)}</summary>{content}</details>'
