"""The command that measures this machine, and the library beside others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rollax.commands.flags import parse
from rollax.errors import ConfigError, missing
from rollax.settings import COUNT, COUNT_OR_NONE, Limit, setting

# What each comparison needs, as modules.
NEEDS = {"torch": ("torch", "gymnasium"), "sb3": ("stable_baselines3",), "sbx": ("sbx",)}


@dataclass(frozen=True)
class Bench:
    seconds: float = setting(
        0.5, "Seconds that each thing is timed, beside its compilation.", limit=Limit(0, 600, above=True)
    )
    against: Literal["none", "torch", "sb3", "sbx"] = setting(
        "none", "The library to train DQN beside: a PyTorch loop, Stable-Baselines3 or SBX."
    )
    steps: int = setting(
        0,
        "Number of steps of each training of a comparison; 0 takes a number that was measured to be enough.",
        limit=COUNT_OR_NONE,
    )
    repeats: int = setting(
        5, "Number of trainings of each side of a comparison, each with a seed of its own.", limit=COUNT
    )
    seed: int = setting(0, "The first random seed.", limit=COUNT_OR_NONE)
    seeds: int = setting(10, "Number of seeds that the library also trains at once; 1 trains none.", limit=COUNT)
    torch_device: Literal["cpu", "cuda"] = setting("cpu", "Where PyTorch's networks are.")
    json: bool = setting(False, "Print one JSON object instead of tables.")
    out: str = setting("", "A file for the same JSON object.")
    plot: str = setting("", "A file for a bar chart of a comparison.")


def bench_command(arguments: list[str]) -> int:
    text = "Throughput of this machine in about a minute; or with --against, the same training here and elsewhere."
    options = parse(Bench, arguments, "rollax bench", text)
    check(options)

    def say(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    found, shown = measured(options, say)
    print(json.dumps(found) if options.json else shown)
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=2) + "\n")
    if options.plot:  # last, when everything else is safe
        from rollax.tools.bench.against import draw

        draw(found, Path(options.plot))
    return 0


def check(options: Bench) -> None:
    """Raises ConfigError for whatever can be known to be wrong before anything runs."""
    problems = [
        line for module in NEEDS.get(options.against, ()) for line in missing(module, f"against={options.against}")
    ]
    for name, path in (("out", options.out), ("plot", options.plot)):
        if path and not Path(path).absolute().parent.is_dir():
            problems.append(f"{name}={path}: there is no folder {Path(path).parent}; make it first")
    if options.plot and options.against == "none":
        problems.append("plot draws a comparison; add --against torch, sb3 or sbx")
    if problems:
        raise ConfigError(problems)


def measured(options: Bench, say: Callable[[str], None]) -> tuple[dict[str, Any], str]:
    """What was found as plain data, and as people read it."""
    if options.against != "none":
        from rollax.tools.bench import against
        from rollax.tools.bench.settings import Settings, with_budget

        settings = with_budget(Settings(), options.steps) if options.steps else Settings()
        protocol = against.Protocol(options.repeats, options.seed, options.seeds, options.torch_device)
        found = against.compare(settings, options.against, protocol, say)
        return found, against.show(found)
    from rollax.programs.machine import use_all_cores, use_compile_cache

    use_all_cores()
    use_compile_cache()
    from rollax.tools.bench import throughput

    found = throughput.bench(options.seconds, say)
    return found, throughput.show(found)
