"""The same training here and elsewhere, in turns, each time in a fresh process: steps in a second, time to a score."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from rollax.programs.machine import own_cores
from rollax.settings import COUNT, setting
from rollax.tools import sides
from rollax.tools.bench.settings import Settings, Side, with_budget
from rollax.tools.processes import Remote
from rollax.tools.sides import Column, Panel, Say, Summary, figures, ratio, with_range

Other = Literal["torch", "sb3", "sbx"]
NAMES = {"rollax": "rollax", "torch": "PyTorch loop", "sb3": "Stable-Baselines3", "sbx": "SBX"}
WEIGHTS = {"torch": "torch", "sb3": "torch", "sbx": "flax"}  # how each one initialises weights; ours do likewise
TRIAL_STEPS = 8_000  # of the trainings that choose the number of threads


@dataclass(frozen=True)
class Protocol:
    """How often everything runs."""

    repeats: int = setting(5, "Trainings of each contender, each with a seed of its own.", limit=COUNT)
    seed: int = setting(0, "The first of these seeds.")
    seeds: int = setting(10, "Members that the library also trains at once; 1 leaves that out.", limit=COUNT)
    device: str = setting("cpu", "Where PyTorch's networks are.")


class Contender(NamedTuple):
    """Who trains, and how many members at once."""

    side: Side
    seeds: int = 1
    threads: int = 1  # PyTorch's

    @property
    def label(self) -> str:
        return NAMES[self.side] + (f", {self.seeds} seeds" if self.seeds > 1 else "")


def compare(settings: Settings, other: Other, protocol: Protocol, say: Say = lambda line: None) -> dict[str, Any]:
    """Both sides, in turns.  What comes back is plain data."""
    narrow = f"hidden={settings.hidden} is no network that SBX can have: two layers of one width"
    sides.check(protocol, *([narrow] if other == "sbx" and settings.hidden != settings.hidden[:1] * 2 else []))
    began, load = time.time(), os.getloadavg()[0]
    threads = choose_threads(settings, other, protocol, say)
    contenders = [Contender("rollax"), Contender(other, threads=threads)]
    if protocol.seeds > 1:
        contenders.append(Contender("rollax", protocol.seeds))

    def measure(contender: Contender, repeat: int) -> dict[str, Any]:
        run = train(settings, contender, protocol.seed + repeat * contender.seeds, protocol.device, WEIGHTS[other])
        say(f"{contender.label}, repeat {repeat + 1}: {described(settings, contender, run)}")
        return run

    runs = sides.in_turns(contenders, range(protocol.repeats), measure)
    machines = [run.pop("machine") for its in runs for run in its if "machine" in run]
    summaries = [summary(settings, *pair) for pair in zip(contenders, runs, strict=True)]
    return {
        "against": other,
        "settings": settings.to_json(),
        "protocol": vars(protocol),
        "machine": machines[-1],
        "load_before": load,
        "contenders": summaries,
        "ratios": ratios(summaries),
        "seconds_in_all": time.time() - began,
    }


def train(settings: Settings, contender: Contender, seed: int, device: str, weights: str) -> dict[str, Any]:
    """One training in a process of its own."""
    job = {"settings": settings.to_json(), "seed": seed, "device": device, "weights": weights, "began": time.time()}
    name = NAMES[contender.side]
    with Remote(name, "rollax.tools.bench.training:Training", **contender._asdict(), **job) as training:
        return training.ask("run")


def choose_threads(settings: Settings, other: Other, protocol: Protocol, say: Say) -> int:
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


def described(settings: Settings, contender: Contender, run: dict[str, Any]) -> str:
    """One training in a line."""
    rate, seeds = steady_rate(run, contender.seeds), contender.seeds
    reached = [seconds for seconds in seconds_to(settings.threshold, run) if seconds is not None]
    when = f" after {np.median(reached):.1f} s" if reached else ""
    return f"{rate:,.0f} steps/s; {len(reached)} of {seeds} reached {settings.threshold:g}{when}"


def summary(settings: Settings, contender: Contender, runs: list[dict[str, Any]]) -> Summary:
    """What was seen of one contender."""
    side, seeds, threads = contender
    reached = [seconds for run in runs for seconds in seconds_to(settings.threshold, run)]
    started = [seconds for run in runs for seconds in seconds_to(settings.threshold, run, start=True)]
    return {
        "side": side,
        "seeds": seeds,
        "torch_threads": threads if side in ("torch", "sb3") else None,
        "versions": runs[0]["versions"],
        "steps_per_second": figures([steady_rate(run, seeds) for run in runs]),
        "steps_per_second_with_start": figures([whole_rate(run, seeds) for run in runs]),
        "seconds_to_threshold": figures(reached),
        "seconds_to_threshold_with_start": figures(started),
        "reached": sum(seconds is not None for seconds in reached),
        "of": len(reached),
        "training_seconds": figures([run["points"][-1]["seconds"] for run in runs]),
        "ready_seconds": figures([run["ready_seconds"] for run in runs]),
        "last_score": figures([score for run in runs for score in run["points"][-1]["scores"]]),
        "runs": runs,
    }


def ratios(summaries: list[Summary]) -> dict[str, float | None]:
    """How many times as fast the library is, by medians; with several seeds, as theirs one after the other."""
    ours, theirs, *many = summaries
    rates = ("steps_per_second", "steps_per_second_with_start")
    times = ("seconds_to_threshold", "seconds_to_threshold_with_start")
    of_seeds = {f"{name}_of_{its['seeds']}_seeds": ratio(its[name], theirs[name]) for its in many for name in rates}
    return (
        {name: ratio(ours[name], theirs[name]) for name in rates}
        | {name: ratio(theirs[name], ours[name]) for name in times}
        | of_seeds
    )


def label(its: Summary) -> str:
    return Contender(its["side"], its["seeds"]).label


def show(result: dict[str, Any]) -> str:
    """Who was measured, on what, the table, and the ratios."""
    settings, facts, theirs = result["settings"], result["machine"], result["contenders"][1]
    versions = ", ".join(f"{name} {number}" for name, number in theirs["versions"].items())
    threads = f", PyTorch threads: {theirs['torch_threads']}" if theirs["torch_threads"] else ""
    lines = [
        f"{facts['device_kind']} ({facts['backend']}), {facts['cores']} cores; rollax {facts['rollax']}, "
        f"jax {facts['jax']}; {versions}{threads}",
        f"dqn on {settings['env']}, {settings['steps']:,} steps, {settings['num_envs']} environments, "
        f"{settings['gradient_steps']} update(s) of {settings['batch_size']} for {settings['num_envs']} steps, "
        f"network {'-'.join(map(str, settings['hidden']))}, lr {settings['learning_rate']:g}",
    ]
    if result["load_before"] > 0.5:
        lines.append(f"The machine was busy before (load {result['load_before']:.1f}): all figures suffer from it.")
    columns = (
        Column("", label),
        Column("steps/s", lambda its: with_range(its["steps_per_second"], 0)),
        Column("with start", lambda its: with_range(its["steps_per_second_with_start"], 0)),
        Column(f"s to {settings['threshold']:g}", lambda its: with_range(its["seconds_to_threshold"], 1)),
        Column("with start", lambda its: with_range(its["seconds_to_threshold_with_start"], 1)),
        Column("reached", lambda its: f"{its['reached']} of {its['of']}"),
        Column("last score", lambda its: with_range(its["last_score"], 0)),
    )
    lines.append(sides.side_table(columns, result["contenders"]))
    lines.append(
        f"Medians (min .. max) of {result['protocol']['repeats']} repeats; steps of all seeds together; "
        f"{result['seconds_in_all']:.0f} s in all."
    )
    return "\n".join(lines + conclusions(result))


def conclusions(result: dict[str, Any]) -> list[str]:
    ratio, name = result["ratios"], NAMES[result["against"]]
    _, theirs, *many = result["contenders"]
    lines = [
        f"One seed: {times(ratio['steps_per_second'])} the steps/s of {name}, "
        f"{times(ratio['steps_per_second_with_start'])} with imports and compilation."
    ]
    if ratio["seconds_to_threshold"] is not None:
        lines.append(
            f"One seed to {result['settings']['threshold']:g}: {times(ratio['seconds_to_threshold'])} as fast, "
            f"{times(ratio['seconds_to_threshold_with_start'])} with imports and compilation."
        )
    for its in many:
        seeds = its["seeds"]
        ours = its["ready_seconds"]["median"] + its["training_seconds"]["median"]
        other = seeds * (theirs["ready_seconds"]["median"] + theirs["training_seconds"]["median"])
        lines.append(
            f"{seeds} seeds: at once in {ours:.0f} s; {name} one after the other, {seeds} times its median, "
            f"{other:.0f} s: {times(other / ours)} as fast."
        )
    return lines


def times(ratio: float) -> str:
    return f"{ratio:.1f} times"


def draw(result: dict[str, Any], target: Path) -> None:
    """Bars: steps in a second, and seconds to the threshold, with the range of the repeats."""
    contenders = result["contenders"]
    colours = ["#3b6fd4" if its["side"] == "rollax" else "0.65" for its in contenders]

    def panel(title: str, column: str) -> Panel:
        medians = [its[column]["median"] or 0.0 for its in contenders]
        # No bar without a median, and no whisker to what was never reached.
        whiskers = [
            (median - its[column]["min"], (its[column]["max"] or median) - median) if median else (0.0, 0.0)
            for median, its in zip(medians, contenders, strict=True)
        ]
        labels = [f"{median:,.0f}" if median else "-" for median in medians]
        return Panel(title, {"": medians}, "", labels, {"yerr": np.transpose(whiskers), "capsize": 4, "color": colours})

    panels = (
        panel("steps/s", "steps_per_second"),
        panel(f"s to {result['settings']['threshold']:g}", "seconds_to_threshold"),
    )
    title = f"dqn on {result['settings']['env']}, {result['machine']['device_kind']}"
    sides.draw(target, title, [label(its).replace(", ", "\n") for its in contenders], panels, (8, 3.2))
