"""The commands that look into a run: `inspect`, `plan`, `profile`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rollax.commands.flags import Where, parse_experiment, starting_experiment
from rollax.errors import ConfigError, ResourceError


@dataclass(frozen=True, kw_only=True)
class InspectFlags(Where):
    program: Literal["advance", "warm_up", "init", "evaluate"] = "advance"  # Which of the four; the training chunk.
    jaxpr: bool = False  # The program as JAX traced it.
    stablehlo: bool = False  # The program as XLA is given it.
    hlo: bool = False  # The program as XLA has optimised it.
    cost: bool = False  # Floating-point operations, and bytes that are moved.
    memory: bool = False  # What is kept, by part, and what the program needs beside it.
    params: bool = False  # The weights, array by array.
    diff: Literal["none", "vmap", "shard_map"] = "none"  # What that does to a small function of the agent.
    out: str = ""  # A folder for the texts; by default they are printed.
    json: bool = False  # Print one JSON object.


@dataclass(frozen=True, kw_only=True)
class PlanFlags(Where):
    measure: bool = False  # Compile, and compare with what XLA says.
    json: bool = False  # Print one JSON object.


@dataclass(frozen=True, kw_only=True)
class ProfileFlags(Where):
    seconds: float = 1.0  # How much of a run is recorded, at most; a long trace is cut.
    trace_dir: str = ""  # The folder of the trace; by default a new one below runs/.
    top: int = 15  # Operations that are listed.
    json: bool = False  # Print one JSON object.


def planned(arguments: list[str], base: type, program: str, description: str) -> tuple[Any, Any]:
    """The plan of the experiment that flags describe, where `rollax train` would run it, and all flags."""
    agent = arguments[0] if arguments and not arguments[0].startswith("-") else None
    flags = arguments[1:] if agent else arguments
    start = starting_experiment(agent, flags)
    values, parsed = parse_experiment(start, flags, base, [], program, description)
    from rollax.experiment.experiment import with_values
    from rollax.programs.cluster import use_device
    from rollax.programs.machine import use_all_cores, use_compile_cache
    from rollax.programs.plan import make_plan

    use_all_cores()
    if parsed.compile_cache:
        use_compile_cache()
    use_device(parsed.device)
    return make_plan(with_values(start, values)), parsed


def inspect_command(arguments: list[str]) -> int:
    """`rollax inspect [AGENT] --env E [flags]`."""
    text = "What the training chunk is to JAX and to XLA; without a choice, a summary."
    plan, flags = planned(arguments, InspectFlags, "rollax inspect [AGENT]", text)
    from rollax.tools.inspection import showing
    from rollax.tools.inspection.programs import own_cache_entries

    if flags.diff != "none":
        print(showing.difference_text(plan, flags.diff))
        return 0
    texts = [name for name in ("jaxpr", "stablehlo", "hlo") if getattr(flags, name)]
    tables = [name for name in ("cost", "memory", "params") if getattr(flags, name)]
    with own_cache_entries():
        for name, content in showing.program_texts(plan, flags.program, texts).items():
            show_text(content, f"{flags.program}.{name}.txt", flags.out)
        if texts and not tables:
            return 0
        facts = showing.facts(plan, flags.program, tables)
    print(json.dumps(facts) if flags.json else showing.summary(plan, facts))
    return 0


def show_text(content: str, name: str, folder: str) -> None:
    """Prints a long text, or writes it to that folder and says so in a line."""
    if not folder:
        print(content)
        return
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    except OSError as error:
        raise ResourceError(f"out={folder} cannot be written: {error.strerror}") from error
    print(f"{path}: {len(content.splitlines()):,} lines")


def plan_command(arguments: list[str]) -> int:
    """`rollax plan [AGENT] --env E [flags]`."""
    text = "What a run would need, before anything is compiled: iterations, memory by part, and what it depends on."
    plan, flags = planned(arguments, PlanFlags, "rollax plan [AGENT]", text)
    from rollax.tools.inspection import showing

    needs = showing.needs(plan, measure=flags.measure)
    print(json.dumps(needs) if flags.json else showing.needs_text(plan, needs))
    return 0


def profile_command(arguments: list[str]) -> int:
    """`rollax profile [AGENT] --env E [flags]`."""
    text = "Record a trace of training chunks (TensorBoard, Perfetto), and print where the time went."
    # A GPU would launch a whole iteration as one graph, inside which a trace sees nothing.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer=".strip()
    plan, flags = planned(arguments, ProfileFlags, "rollax profile [AGENT]", text)
    if flags.seconds <= 0 or flags.top < 1:
        raise ConfigError(f"seconds={flags.seconds} must be above 0, and top={flags.top} at least 1")
    from rollax.runs.folder import unused_folder
    from rollax.tools.inspection import showing
    from rollax.tools.inspection.profiling import profile
    from rollax.tools.inspection.programs import own_cache_entries

    name = f"profile_{plan.experiment.agent}_{plan.experiment.env}"
    folder = Path(flags.trace_dir) if flags.trace_dir else unused_folder(name)
    with own_cache_entries():
        found = profile(plan, flags.seconds, folder)
    print(showing.profile_json(found) if flags.json else showing.profile_text(found, flags.top))
    return 0
