"""Runs as one page that needs nothing but itself: figures to zoom into, tables, films."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import rollax
from rollax.errors import RollaxError, warn
from rollax.reports.drawing import colour_of, save
from rollax.reports.figures import Chart, Figure, all_figures
from rollax.reports.runs import Group, Run, groups_of, read_runs
from rollax.reports.scales import scale_of
from rollax.reports.tables import (
    differences_section,
    evaluation_section,
    machine_section,
    note,
    section,
    settings_section,
)
from rollax.runs.console import duration
from rollax.runs.folder import RunFolder
from rollax.runs.reader import MOST_TABLE_BYTES, kind_of, read_bytes
from rollax.runs.trust import strangers

FILMS = {".gif": "image/gif", ".mp4": "video/mp4"}
MOST_POINTS = 2_000  # of a curve; a longer one is thinned out, the last point kept
SCORES = ("iqm", "profile")


def write_report(run_dirs: Sequence[Path | str], target: Path | str, *, film: bool = True) -> Path:
    """Writes one HTML file about these runs and returns its path.

    With `film`, a run that has no moving picture yet gets one, of its best member; one that cannot be drawn has none.
    """
    runs = read_runs(run_dirs)
    groups = groups_of(runs)
    films = {run.name: film_of(run, record=film) for run in runs}
    page = page_of(runs, groups, films)
    return save(lambda path: path.write_text(page, encoding="utf-8"), Path(target))


def page_of(runs: Sequence[Run], groups: Sequence[Group], films: dict[str, Path | None]) -> str:
    figures = [figure for figure in all_figures(groups) if not isinstance(figure, Chart) or figure.lines]
    title = title_of(runs)
    data = {
        "clock": "steps",
        "colours": colour_of(groups),
        "figures": [plain(figure, index) for index, figure in enumerate(figures)],
    }
    script = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    body = "".join(
        [
            head_of(title, runs),
            curves_section(figures, groups),
            scores_section(figures),
            evaluation_section(groups),
            films_section(runs, films),
            differences_section(runs),
            machine_section(runs),
            settings_section(runs),
        ]
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{own_file('page.css')}</style></head><body><main>{body}"
        f"<footer>rollax {escape(rollax.__version__)}</footer></main>"
        f'<script type="application/json" id="report-data">{script}</script>'
        f"<script>{own_file('page.js')}</script></body></html>\n"
    )


def own_file(name: str) -> str:
    return files("rollax.reports").joinpath(name).read_text(encoding="utf-8")


def plain(figure: Figure, index: int) -> dict[str, Any]:
    """A figure as the page's script reads it: numbers that are not finite are null."""
    names = {"id": f"figure-{index}", "name": figure.name, "env": figure.env, "title": figure.title}
    common: dict[str, Any] = names | {"bounds": list(figure.bounds)}
    if not isinstance(figure, Chart):
        return common | {"xlabel": figure.xlabel, "bars": [bar._asdict() for bar in figure.bars]}

    def numbers(values: np.ndarray) -> list[float | None]:
        return [float(f"{value:.6g}") if math.isfinite(value) else None for value in kept(values).tolist()]

    lines = [
        {
            "method": line.method,
            "x": kept(line.x).tolist(),
            "seconds": None if line.seconds is None else numbers(line.seconds),
            "mean": numbers(line.mean),
            "low": numbers(line.low),
            "high": numbers(line.high),
            "seeds": [numbers(seed) for seed in line.seeds],
        }
        for line in figure.lines
    ]
    return common | {"xlabel": figure.xlabel, "ylabel": figure.ylabel, "level": figure.level, "lines": lines}


def kept(values: np.ndarray) -> np.ndarray:
    """At most so many points of a curve."""
    stride = -(-len(values) // MOST_POINTS)
    return values[::-1][::stride][::-1]


def title_of(runs: Sequence[Run]) -> str:
    agents, envs = (list(dict.fromkeys(names)) for names in ([r.agent for r in runs], [r.env for r in runs]))
    if len(agents) > 3 or len(envs) > 3:
        return f"{len(runs)} runs of {len(agents)} agents on {len(envs)} environments"
    return f"{listed(agents)} on {listed(envs)}"


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def head_of(title: str, runs: Sequence[Run]) -> str:
    summaries = [run.result.summary for run in runs]
    members = sum(len(summary["members"]) for summary in summaries)
    steps = sum(summary["total_steps"] * len(summary["members"]) for summary in summaries)
    devices = list(dict.fromkeys(summary["device"] for summary in summaries))
    facts = [
        (str(len(runs)), "run" if len(runs) == 1 else "runs"),
        (str(members), "seeds and settings"),
        (f"{steps:,}", "environment steps in all"),
        (duration(sum(summary["train_seconds"] for summary in summaries)), "of training"),
        (listed(devices), "where"),
    ]
    cells = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for value, name in facts)
    unfinished = [
        run.name for run, one in zip(runs, summaries, strict=True) if one["status"] not in ("finished", "unknown")
    ]
    warning = note(f"Not finished: {listed(unfinished)}.") if unfinished else ""
    return f'<h1>{escape(title)}</h1><ul class="facts">{cells}</ul>{warning}'


def curves_section(figures: Sequence[Figure], groups: Sequence[Group]) -> str:
    """A card for each environment, and what is chosen for all of them."""
    numbered = [(index, figure) for index, figure in enumerate(figures) if figure.name not in SCORES]
    if not numbered:
        return section("Learning curves", note("No episode has ended yet."))
    names = {figure.name: figure.ylabel for _, figure in numbered if isinstance(figure, Chart)}
    options = "".join(f'<option value="{escape(name)}">{escape(text)}</option>' for name, text in names.items())
    first = numbered[0][1].name
    cards = "".join(card(figure, index, curves=True) for index, figure in numbered if figure.name == first)
    legend = "".join(
        f'<button type="button" aria-pressed="true" data-method="{escape(method)}">'
        f'<i style="background:{colour}"></i>{escape(method)}</button>'
        for method, colour in colour_of(groups).items()
    )
    meaning = (
        "Each seed thin, their mean thick, with the 95 % interval of the mean (Student's t). Drag to zoom in, "
        "double-click to zoom out, click a name to hide it. A dashed line is where the environment counts as solved."
    )
    return section(
        "Learning curves",
        f'<div class="controls"><label>Show<select id="kind">{options}</select></label>'
        '<label>over<select id="clock"><option value="steps">environment steps</option>'
        '<option value="seconds">seconds</option></select></label>'
        f'<div class="legend">{legend}</div></div><div class="grid">{cards}</div>',
        note(meaning),
    )


def card(figure: Figure, index: int, *, curves: bool = False) -> str:
    label = figure.ylabel if isinstance(figure, Chart) else figure.xlabel
    mark = f' data-curves="{escape(figure.env)}"' if curves else ""
    return (
        f'<div class="card"><div class="head"><h3>{escape(figure.title)}</h3>'
        '<button type="button" class="reset">zoom out</button></div>'
        f'<figure><figcaption>{escape(label)}</figcaption><div data-figure="figure-{index}"{mark}></div></figure></div>'
    )


def scores_section(figures: Sequence[Figure]) -> str:
    cards = {
        name: "".join(card(figure, index) for index, figure in enumerate(figures) if figure.name == name)
        for name in SCORES
    }
    if not cards["iqm"]:
        return ""
    unscaled = [figure.env for figure in figures if figure.name == "iqm" and figure.env and not scale_of(figure.env)]
    scores = (
        "Of each seed's last evaluation. The interquartile mean is that of the middle half of all scores; bars and "
        "bands are 95 % intervals of a bootstrap over seeds, within each environment."
    )
    if any(figure.name == "iqm" and not figure.env for figure in figures):
        scores += " Scaled scores are 0 for random play and 1 for a good score"
        scores += f"; of {listed(unscaled)}, for the lowest and the highest score here." if unscaled else "."
    profiles = "The share of seeds whose score is above the one on the axis: higher is better, everywhere."
    means = section("Scores", note(scores), f'<div class="grid">{cards["iqm"]}</div>')
    if not cards["profile"]:
        return means
    return means + section("Performance profiles", note(profiles), f'<div class="grid">{cards["profile"]}</div>')


def films_section(runs: Sequence[Run], films: dict[str, Path | None]) -> str:
    figures = []
    for run in runs:
        path = films[run.name]
        if path is None:
            continue
        data = f"data:{FILMS[path.suffix]};base64,{base64.b64encode(read_bytes(path, most=MOST_TABLE_BYTES)).decode()}"
        name = escape(f"{run.agent} on {run.env}")
        player = (
            f'<img src="{data}" alt="{name} playing">'
            if path.suffix == ".gif"
            else f'<video src="{data}" controls loop muted></video>'
        )
        figures.append(f'<figure class="card">{player}<figcaption>{name} ({escape(run.name)})</figcaption></figure>')
    return section("The agent, playing", f'<div class="films">{"".join(figures)}</div>') if figures else ""


def film_of(run: Run, *, record: bool) -> Path | None:
    """A run's moving picture; one is recorded if there is none, and if that runs no code that is not trusted."""
    from rollax.reports.films import watch

    for suffix in FILMS:
        path = Path(run.result.run_dir) / f"watch{suffix}"
        if kind_of(path) == "a file":
            return path
    if not record:
        return None
    if strange := strangers(RunFolder(run.result.run_dir).read_config()):
        warn(
            f"{run.result.run_dir} is shown without a film: to play it runs code of the module "
            f"{' and '.join(strange)}; if you trust it, `rollax watch {run.result.run_dir} --trust` makes one"
        )
        return None
    scores = [member["eval_return_mean"] for member in run.result.summary["members"]]
    best = int(np.argmax([-math.inf if score is None else score for score in scores]))
    try:
        return watch(run.result.run_dir, member=best)[0]
    except RollaxError:  # it cannot be drawn, or has no checkpoint yet
        return None
