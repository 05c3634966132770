"""The commands that show what runs have done, and hand it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from rollax.commands.flags import Trusting, parse
from rollax.errors import ConfigError
from rollax.settings import COUNT_OR_NONE, setting


@dataclass(frozen=True)
class Plot:
    run_dirs: Annotated[tuple[str, ...], tyro.conf.Positional] = setting(help="Folders of runs.")
    out: str = setting("", "The picture's path; by default curve.png in the only folder, or curves.png here.")
    figures: tuple[str, ...] = setting(
        (), "Kinds of figure by name, or all: each is a picture of its own in the folder --out."
    )
    format: Literal["png", "svg", "pdf"] = setting("png", "Format of pictures whose name is not given by --out.")


def plot_command(arguments: list[str]) -> int:
    """`rollax plot DIR...`."""
    description = "Draw learning curves: each seed thin, the mean thick with its 95 % interval; or other figures."
    options = parse(Plot, arguments, "rollax plot", description)
    if not options.run_dirs:
        raise ConfigError("plot needs at least one run folder, as in `rollax plot runs/mine`")
    from rollax.reports.drawing import plot_figures, plot_runs

    alone = Path(options.run_dirs[0]) if len(options.run_dirs) == 1 else None
    if options.figures:
        folder = Path(options.out) if options.out else alone / "figures" if alone else Path("figures")
        names = () if "all" in options.figures else options.figures
        for path in plot_figures(options.run_dirs, names, folder, options.format):
            print(path)
        return 0
    name = f"{'curve' if alone else 'curves'}.{options.format}"
    target = Path(options.out) if options.out else alone / name if alone else Path(name)
    print(plot_runs(options.run_dirs, target))
    return 0


@dataclass(frozen=True)
class Report:
    run_dirs: Annotated[tuple[str, ...], tyro.conf.Positional] = setting(help="Folders of runs.")
    out: str = setting("", "The page's path; by default report.html in the only folder, or here.")
    film: bool = setting(True, "Record the agent's play, of each run that has no film yet.")


def report_command(arguments: list[str]) -> int:
    """`rollax report DIR...`."""
    description = "One HTML file about runs: curves to zoom into, scores with intervals, tables, settings, films."
    options = parse(Report, arguments, "rollax report", description)
    if not options.run_dirs:
        raise ConfigError("report needs at least one run folder, as in `rollax report runs/mine`")
    from rollax.reports.page import write_report

    alone = len(options.run_dirs) == 1
    target = Path(options.out) if options.out else Path(options.run_dirs[0] if alone else ".") / "report.html"
    print(write_report(options.run_dirs, target, film=options.film))
    return 0


@dataclass(frozen=True)
class Export(Trusting):
    run_dir: Annotated[str, tyro.conf.Positional] = setting(help="The folder of the run.")
    out: str = setting("", "The folder for the files; by default export in the run folder.")
    member: int = setting(0, "The member whose policy is exported.", limit=COUNT_OR_NONE)
    best: bool = setting(False, "Export the weights of its best evaluation instead of the last.")
    onnx: bool = setting(False, "Export the scores of its actions as ONNX too, with the extra `onnx`.")


def export_command(arguments: list[str]) -> int:
    """`rollax export DIR`."""
    description = "A trained policy as files that run without rollax: a program of XLA, weights, and ONNX."
    options = parse(Export, arguments, "rollax export", description)
    from rollax.reports.export import export

    target = Path(options.out) if options.out else Path(options.run_dir) / "export"
    written = export(
        options.run_dir, target, member=options.member, best=options.best, onnx=options.onnx, trust=options.trust
    )
    for path in written:
        print(path)
    return 0
