"""The same training here and elsewhere, in turns, each time in a fresh process: steps in a second, time to a score."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rollax.errors import ConfigError
from rollax.programs.machine import own_cores
from rollax.rules.aggregates import spread
from rollax.runs.console import table
from rollax.tools.bench.settings import Settings, Side, with_budget
from rollax.tools.processes import Child

Other = Literal["torch", "sb3", "sbx"]
NAMES = {"rollax": "rollax", "torch": "PyTorch loop", "sb3": "Stable-Baselines3", "sbx": "SBX"}
WEIGHTS = {"torch": "torch", "sb3": "torch", "sbx": "flax"}  # what each one's weights are at first; ours are likewise
TRIAL_STEPS = 8_000  # of the trainings that choose the number of threads


@dataclass(frozen=True)
class Protocol:
    """How often everything runs."""

    repeats: int = 5  # Trainings of each contender, each with a seed of its own.
    seed: int = 0  # The first of them.
    seeds: int = 10  # Members that the library also trains at once; 1 leaves that out.
    device: str = "cpu"  # Where PyTorch's networks are.

    def problems(self) -> list[str]:
        counts = (("repeats", self.repeats), ("seeds", self.seeds))
        return [f"{name}={value} must be at least 1" for name, value in counts if value < 1]


class Contender(NamedTuple):
    """Who trains, and how many members at once."""

    side: Side
    seeds: int = 1
    threads: int = 1  # PyTorch's


@dataclass
class Measured:
    """What was seen of one contender, a row for each repeat."""

    contender: Contender
    runs: list[dict[str, Any]] = field(default_factory=list)

    def summary(self, settings: Settings) -> dict[str, Any]:
        """As plain data: each figure's repeats, their middle and their spread."""
        side, seeds, threads = self.contender
        reached = [seconds for run in self.runs for seconds in seconds_to(settings.threshold, run)]
        started = [seconds for run in self.runs for seconds in seconds_to(settings.threshold, run, start=True)]
        return {
            "side": side,
            "seeds": seeds,
            "torch_threads": threads if side in ("torch", "sb3") else None,
            "versions": self.runs[0]["versions"],
            "steps_per_second": figures([steady_rate(run, seeds) for run in self.runs]),
            "steps_per_second_with_start": figures([whole_rate(run, seeds) for run in self.runs]),
            "seconds_to_threshold": figures(reached),
            "seconds_to_threshold_with_start": figures(started),
            "reached": sum(seconds is not None for seconds in reached),
            "of": len(reached),
            "training_seconds": figures([run["points"][-1]["seconds"] for run in self.runs]),
            "ready_seconds": figures([run["ready_seconds"] for run in self.runs]),
            "last_score": figures([score for run in self.runs for score in run["points"][-1]["scores"]]),
            "runs": self.runs,
        }


def steady_rate(run: dict[str, Any], seeds: int) -> float:
    """Steps in a second from the first evaluation on: the warm-up, and what is compiled on the way, are before it."""
    first, last = run["points"][0], run["points"][-1]
    return seeds * (last["step"] - first["step"]) / (last["seconds"] - first["seconds"])


def whole_rate(run: dict[str, Any], seeds: int) -> float:
    """Steps in a second of the whole process but for its evaluations: imports and compilation included."""
    last = run["points"][-1]
    return seeds * last["step"] / (run["ready_seconds"] + last["seconds"])


def seconds_to(threshold: float, run: dict[str, Any], *, start: bool = False) -> list[float | None]:
    """For each member the training's seconds until an evaluation reached the threshold, or None if none did."""
    before = run["ready_seconds"] if start else 0.0
    members = zip(*(point["scores"] for point in run["points"]), strict=True)
    times = [point["seconds"] for point in run["points"]]
    return [
        next((before + at for at, score in zip(times, scores, strict=True) if score >= threshold), None)
        for scores in members
    ]


def figures(values: list[Any]) -> dict[str, Any]:
    """All values and their spread; a None is longer than any other, so a median is None if most are."""
    known = [math.inf if value is None else value for value in values]
    kept = {name: value if math.isfinite(value) else None for name, value in spread(known).items()}
    return {**kept, "values": values}


def compare(
    settings: Settings, other: Other, protocol: Protocol, say: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Both sides, in turns.  What comes back is plain data."""
    problems = protocol.problems()
    if other == "sbx" and settings.hidden != settings.hidden[:1] * 2:
        problems.append(f"hidden={settings.hidden} is no network that SBX can have: two layers of one width")
    if problems:
        raise ConfigError(problems)
    began, load = time.time(), os.getloadavg()[0]
    threads = choose_threads(settings, other, protocol, say)
    contenders = [Contender("rollax"), Contender(other, threads=threads)]
    if protocol.seeds > 1:
        contenders.append(Contender("rollax", protocol.seeds))
    found = [Measured(contender) for contender in contenders]
    machine: dict[str, Any] = {}
    for repeat in range(protocol.repeats):
        for its in found:
            seed = protocol.seed + repeat * its.contender.seeds
            its.runs.append(train(settings, its.contender, seed, protocol.device, WEIGHTS[other]))
            machine = its.runs[-1].pop("machine", machine)
            say(f"{label(its.contender)}, repeat {repeat + 1}: {told(settings, its)}")
    summaries = [its.summary(settings) for its in found]
    return {
        "against": other,
        "settings": settings.to_json(),
        "protocol": vars(protocol),
        "machine": machine,
        "load_before": load,
        "contenders": summaries,
        "ratios": ratios(summaries),
        "seconds_in_all": time.time() - began,
    }


def train(settings: Settings, contender: Contender, seed: int, device: str, weights: str) -> dict[str, Any]:
    """One training in a process of its own."""
    side, seeds, threads = contender
    job = {"side": side, "settings": settings.to_json(), "seed": seed, "seeds": seeds, "threads": threads}
    began = time.time()
    child = Child("rollax.tools.bench.worker", NAMES[side])
    try:
        return child.tell(job | {"device": device, "weights": weights, "began": began})
    finally:
        child.stop()


def choose_threads(settings: Settings, other: Other, protocol: Protocol, say: Callable[[str], None]) -> int:
    """One thread or all cores for PyTorch, whichever is faster in a short training; SBX computes without it."""
    cores = own_cores()
    if other == "sbx" or cores == 1:
        return 1
    short = with_budget(settings, min(TRIAL_STEPS, settings.steps))
    rates = {}
    for threads in (1, cores):
        run = train(short, Contender(other, threads=threads), protocol.seed, protocol.device, WEIGHTS[other])
        rates[threads] = steady_rate(run, 1)
    best = max(rates, key=lambda threads: rates[threads])
    tried = ", ".join(f"{threads}: {rate:,.0f} steps/s" for threads, rate in rates.items())
    say(f"{NAMES[other]}, threads tried ({tried}): {best}")
    return best


def ratios(summaries: list[dict[str, Any]]) -> dict[str, float | None]:
    """How many times as fast the library is, by medians; with several seeds, as theirs one after the other."""
    ours, theirs, *many = summaries

    def ratio(upper: dict[str, Any], lower: dict[str, Any]) -> float | None:
        known = upper["median"] is not None and lower["median"] is not None
        return upper["median"] / lower["median"] if known else None

    found = {name: ratio(ours[name], theirs[name]) for name in ("steps_per_second", "steps_per_second_with_start")}
    for name in ("seconds_to_threshold", "seconds_to_threshold_with_start"):
        found[name] = ratio(theirs[name], ours[name])
    for its in many:
        for name in ("steps_per_second", "steps_per_second_with_start"):
            found[f"{name}_of_{its['seeds']}_seeds"] = ratio(its[name], theirs[name])
    return found


def label(contender: Contender) -> str:
    return NAMES[contender.side] + (f", {contender.seeds} seeds" if contender.seeds > 1 else "")


def told(settings: Settings, its: Measured) -> str:
    """The last repeat in a line."""
    run, seeds = its.runs[-1], its.contender.seeds
    reached = [seconds for seconds in seconds_to(settings.threshold, run) if seconds is not None]
    when = f" after {np.median(reached):.1f} s" if reached else ""
    return f"{steady_rate(run, seeds):,.0f} steps/s; {len(reached)} of {seeds} reached {settings.threshold:g}{when}"


def show(found: dict[str, Any]) -> str:
    """Who was measured, on what, the table, and the ratios."""
    settings, facts = found["settings"], found["machine"]
    _, theirs, *many = found["contenders"]
    versions = ", ".join(f"{name} {number}" for name, number in theirs["versions"].items())
    threads = f", PyTorch threads: {theirs['torch_threads']}" if theirs["torch_threads"] else ""
    lines = [
        f"{facts['device_kind']} ({facts['backend']}), {facts['cores']} cores; rollax {facts['rollax']}, "
        f"jax {facts['jax']}; {versions}{threads}",
        f"dqn on {settings['env']}, {settings['steps']:,} steps, {settings['num_envs']} environments, "
        f"{settings['gradient_steps']} update(s) of {settings['batch_size']} for {settings['num_envs']} steps, "
        f"network {'-'.join(map(str, settings['hidden']))}, lr {settings['learning_rate']:g}",
    ]
    if found["load_before"] > 0.5:
        lines.append(f"The machine was busy before (load {found['load_before']:.1f}): all figures suffer from it.")
    score = f"s to {settings['threshold']:g}"
    header = ["", "steps/s", "with start", score, "with start", "reached", "last score"]
    names = ("steps_per_second", "steps_per_second_with_start", "seconds_to_threshold")
    rows = [
        [
            label(Contender(its["side"], its["seeds"])),
            *(ranged(its[name], digits) for name, digits in zip(names, (0, 0, 1), strict=True)),
            ranged(its["seconds_to_threshold_with_start"], 1),
            f"{its['reached']} of {its['of']}",
            ranged(its["last_score"], 0),
        ]
        for its in found["contenders"]
    ]
    lines.append(table(header, rows))
    lines.append(
        f"Medians (min .. max) of {found['protocol']['repeats']} repeats; steps of all seeds together; "
        f"{found['seconds_in_all']:.0f} s in all."
    )
    lines += conclusions(found, theirs, many)
    return "\n".join(lines)


def conclusions(found: dict[str, Any], theirs: Any, many: list[Any]) -> list[str]:
    ratio, name = found["ratios"], NAMES[found["against"]]
    score = f"{found['settings']['threshold']:g}"
    lines = [
        f"One seed: {times(ratio['steps_per_second'])} the steps/s of {name}, "
        f"{times(ratio['steps_per_second_with_start'])} with imports and compilation."
    ]
    if ratio["seconds_to_threshold"] is not None:
        lines.append(
            f"One seed to {score}: {times(ratio['seconds_to_threshold'])} as fast, "
            f"{times(ratio['seconds_to_threshold_with_start'])} with imports and compilation."
        )
    for its in many:
        seeds = its["seeds"]
        own = its["ready_seconds"]["median"] + its["training_seconds"]["median"]
        other = seeds * (theirs["ready_seconds"]["median"] + theirs["training_seconds"]["median"])
        lines.append(
            f"{seeds} seeds: at once in {own:.0f} s; {name} one after the other, {seeds} times its median, "
            f"{other:.0f} s: {times(other / own)} as fast."
        )
    return lines


def times(ratio: float) -> str:
    return f"{ratio:.1f} times"


def ranged(values: dict[str, Any], digits: int) -> str:
    middle, least, most = ("-" if values[name] is None else f"{values[name]:,.{digits}f}" for name in SPREAD)
    return f"{middle} ({least} .. {most})"


SPREAD = ("median", "min", "max")


def draw(found: dict[str, Any], target: Path) -> None:
    """Bars: steps in a second, and seconds to the threshold, with the range of the repeats."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    names = [label(Contender(its["side"], its["seeds"])).replace(", ", "\n") for its in found["contenders"]]
    colours = ["#3b6fd4" if its["side"] == "rollax" else "0.65" for its in found["contenders"]]
    panels = (("steps_per_second", "steps/s"), ("seconds_to_threshold", f"s to {found['settings']['threshold']:g}"))
    for axes, (column, title) in zip(figure.subplots(1, 2), panels, strict=True):
        all_of = [its[column] for its in found["contenders"]]
        middles = [values["median"] or 0.0 for values in all_of]
        # No bar without a median, and no whisker to what was never reached.
        reach = [
            (middle - values["min"], (values["max"] or middle) - middle) if middle else (0.0, 0.0)
            for middle, values in zip(middles, all_of, strict=True)
        ]
        bars = axes.bar(names, middles, yerr=np.transpose(reach), width=0.6, capsize=4, color=colours)
        axes.bar_label(bars, [f"{middle:,.0f}" if middle else "-" for middle in middles], fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.margins(y=0.15)
    figure.suptitle(f"dqn on {found['settings']['env']}, {found['machine']['device_kind']}", fontsize=10)
    figure.savefig(target, dpi=140)
