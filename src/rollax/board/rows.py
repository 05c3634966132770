"""A run in a row: what its folder says of it at this moment, whatever state the folder is in."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

from rollax.errors import ConfigError, RollaxError, told
from rollax.experiment.experiment import MAIN_AGENT, MAIN_ENV
from rollax.reports.page import FILMS
from rollax.runs.folder import RunFolder
from rollax.runs.lock import is_held
from rollax.runs.reader import check_shape, kind_of
from rollax.runs.rows import rows_of

ALIVE_SECONDS = 30.0  # since it wrote last, for which a run on another machine is taken to go on
SHOWN_NAME, LONGEST_PROBLEM = 120, 400  # characters
GOING_ON = ("starting", "running")
SHAPE = {
    "agent?": str,
    "env?": str,
    "steps?": int,
    "seeds?": int,
    "loop?": {"num_envs?": int, "rollout_length?": int},
}


class Row(NamedTuple):
    """What the list of runs shows of one."""

    name: str  # the path of the folder from the board's
    agent: str
    env: str
    status: str  # starting, running, finished, stopped, interrupted, failed, killed or damaged
    step: int | None  # of each member
    total: int | None
    members: int | None
    steps_per_second: float | None  # of all members together
    seconds_left: float | None  # of a run that goes on
    score: float | None  # mean return: of a run that goes on in training, else of the last evaluations
    films: tuple[str, ...]
    problem: str  # in words; nothing of a folder that is whole


class Latest(NamedTuple):
    """The last rows of metrics.csv: those of its last step."""

    step: int
    steps_per_second: float | None
    score: float | None


def row_of(path: Path, name: str) -> Row:
    """The row of a run folder.  Whatever is wrong with it is in the row: nothing is raised, and nothing written."""
    films: tuple[str, ...] = ()
    config: Any = {}
    try:
        films = tuple(film for suffix in FILMS if kind_of(path / (film := f"watch{suffix}")) == "a file")
        folder = RunFolder(path, writes=False)
        read = folder.read_config()
        check_shape(read, SHAPE, str(folder.config))
        config = read
        return whole_row(folder, config, name, films)
    except Exception as error:  # files that somebody has edited may break anything, and the others are still shown
        problem = str(error) if isinstance(error, RollaxError) else told(error)
        return damaged(name, config.get("agent", ""), config.get("env", ""), films, problem)


def whole_row(folder: RunFolder, config: dict[str, Any], name: str, films: tuple[str, ...]) -> Row:
    """The row of a folder whose files can be read."""
    summary, problem = summary_of(folder)
    latest, unread = latest_of(folder)
    status = status_of(folder, summary, problem)
    goes_on = status in GOING_ON
    total, members = total_of(config), len(summary["members"]) if summary else config.get("seeds", 1)
    step = latest.step if latest else summary["total_steps"] if summary else 0
    rate = latest.steps_per_second if latest and goes_on else summary["steps_per_second"] if summary else None
    left = max(total - step, 0) * members / rate if goes_on and total and rate else None
    scores = [member["eval_return_mean"] for member in summary["members"]] if summary else []
    evaluated = mean_of(score for score in scores if score is not None)
    trained = latest.score if latest else None
    return Row(
        name=shown(name),
        agent=shown(config.get("agent", MAIN_AGENT)),
        env=shown(config.get("env", MAIN_ENV)),
        status=status,
        step=step,
        total=total,
        members=members,
        steps_per_second=finite(rate),
        seconds_left=finite(left),
        score=trained if goes_on and trained is not None else evaluated if evaluated is not None else trained,
        films=films,
        problem=shown(problem or unread, LONGEST_PROBLEM),
    )


def damaged(name: str, agent: str, env: str, films: tuple[str, ...], problem: str) -> Row:
    """The row of a folder that cannot be read."""
    reason = shown((problem.splitlines() or [""])[0], LONGEST_PROBLEM)
    unknown = dict.fromkeys(("step", "total", "members", "steps_per_second", "seconds_left", "score"))
    return Row(
        name=shown(name), agent=shown(agent), env=shown(env), status="damaged", films=films, problem=reason, **unknown
    )


def summary_of(folder: RunFolder) -> tuple[dict[str, Any] | None, str]:
    """The summary, None where there is none that can be believed, and what is wrong with it."""
    try:
        return folder.read_summary(), ""
    except ConfigError:  # there is none yet
        return None, ""
    except RollaxError as error:
        return None, str(error).splitlines()[0]


def latest_of(folder: RunFolder) -> tuple[Latest | None, str]:
    """The last rows of metrics.csv, None before the first, and what is wrong with the table."""
    if not kind_of(folder.metrics):
        return None, ""
    header, lines, problem = rows_of(folder.metrics, folder.seals)
    if not lines:
        return None, problem
    names, step = header.split(","), lines[-1].split(",", 1)[0]
    rows = []
    for line in reversed(lines):
        if line.split(",", 1)[0] != step:
            break
        rows.append(dict(zip(names, line.split(","), strict=False)))
    rates = numbers(row.get("steps_per_second", "") for row in rows)
    return Latest(
        int(step), mean_of(rates), mean_of(numbers(row.get("episode_return_mean", "") for row in rows))
    ), problem


def status_of(folder: RunFolder, summary: dict[str, Any] | None, problem: str) -> str:
    """How a run stands.  One that says that it runs has been killed where its process is gone."""
    if problem:
        return "damaged"
    said = summary["status"] if summary else "starting"
    if said not in GOING_ON:
        return said if said in ("finished", "stopped", "interrupted", "failed") else "damaged"
    held = is_held(folder)
    if held is None:  # its process is on another machine
        held = time.time() - written(folder) < ALIVE_SECONDS
    return said if held else "killed"


def written(folder: RunFolder) -> float:
    """When the run wrote last, in seconds since the epoch."""
    times = [0.0]
    for path in (folder.lock, folder.metrics, folder.evaluations, folder.summary):
        try:
            times.append(path.lstat().st_mtime)
        except OSError:
            continue
    return max(times)


def total_of(config: dict[str, Any]) -> int | None:
    """The steps that a run will have at its end: whole iterations."""
    steps, loop = config.get("steps"), config.get("loop", {})
    block = loop.get("num_envs", 1) * loop.get("rollout_length", 1)
    return steps if steps is None or block < 1 else -(-steps // block) * block


def mean_of(values: Any) -> float | None:
    """The mean of numbers, None where there are none or it is not finite."""
    found = list(values)
    return finite(sum(found) / len(found)) if found else None


def finite(value: float | None) -> float | None:
    """The number, None in place of what JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def numbers(cells: Any) -> list[float]:
    """The numbers in cells, of which some may be empty."""
    return [float(cell) for cell in cells if cell]


def shown(text: str, most: int = SHOWN_NAME) -> str:
    """A text that can be sent: file names may hold bytes that are no text."""
    return text.encode("utf-8", "replace").decode()[:most]
