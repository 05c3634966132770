"""The commands that look into a run: `inspect`, `plan`, `profile`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rollax.commands.flags import Device, ExperimentFlags, read_experiment
from rollax.errors import ResourceError, warn
from rollax.settings import COUNT, POSITIVE, setting


@dataclass(frozen=True, kw_only=True)
class LookFlags(Device, ExperimentFlags):
    json: bool = setting(False, "Print one JSON object.", group="flags")
    quiet: bool = setting(False, "Print nothing but warnings.", group="flags", rare=True)


@dataclass(frozen=True, kw_only=True)
class InspectFlags(LookFlags):
    program: Literal["advance", "warm_up", "init", "evaluate"] = setting(
        "advance", "Which of the four programs is looked at; advance is the training chunk.", group="flags"
    )
    jaxpr: bool = setting(False, "Show the program as JAX traced it.", group="flags")
    stablehlo: bool = setting(False, "Show the program as XLA is given it.", group="flags")
    hlo: bool = setting(False, "Show the program as XLA has optimised it.", group="flags")
    cost: bool = setting(False, "Count floating-point operations, and bytes that are moved.", group="flags")
    memory: bool = setting(
        False, "Show the memory of the state, part by part, and what the program needs in addition.", group="flags"
    )
    params: bool = setting(False, "Show the weights, array by array.", group="flags")
    diff: Literal["none", "vmap", "shard_map"] = setting(
        "none", "Show how this transformation changes a small function of the agent.", group="flags"
    )
    out: str = setting("", "A folder for the texts; by default they are printed.", group="flags")


@dataclass(frozen=True, kw_only=True)
class PlanFlags(LookFlags):
    measure: bool = setting(
        False, "Compile the programs, and compare the estimate with XLA's own number.", group="flags"
    )


@dataclass(frozen=True, kw_only=True)
class ProfileFlags(LookFlags):
    seconds: float = setting(
        1.0, "Seconds of a run that are recorded, at most; a long trace is cut.", group="flags", limit=POSITIVE
    )
    trace_dir: str = setting("", "The folder of the trace; by default a new one below runs/.", group="flags")
    top: int = setting(15, "Number of operations that are listed.", group="flags", limit=COUNT)


def planned(arguments: list[str], options: type, command: str, text: str, *, in_turn: bool = False) -> tuple[Any, Any]:
    """The plan of the experiment that flags describe, where `rollax train` would run it, and all flags.

    With `in_turn` it collects and learns in one program, whatever the flags say of actors.
    """
    experiment, flags = read_experiment(arguments, options, command, text)
    if in_turn and experiment.loop.actors:
        warn("actors are left out: this is the program that collects and learns in turn, with the same agent")
        experiment = replace(experiment, loop=replace(experiment.loop, actors=0))
    from rollax.programs.cluster import use_device
    from rollax.programs.machine import use_all_cores, use_compile_cache
    from rollax.programs.plan import make_plan

    use_all_cores()
    if flags.compile_cache:
        use_compile_cache()
    use_device(flags.device)
    return make_plan(experiment), flags


def inspect_command(arguments: list[str]) -> int:
    """`rollax inspect [AGENT] --env E [flags]`."""
    text = "What the training chunk is to JAX and to XLA; without a choice, a summary."
    plan, flags = planned(arguments, InspectFlags, "inspect", text, in_turn=True)
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
    plan, flags = planned(arguments, PlanFlags, "plan", text)
    from rollax.tools.inspection import showing

    needs = showing.needs(plan, measure=flags.measure)
    print(json.dumps(needs) if flags.json else showing.needs_text(plan, needs))
    return 0


def profile_command(arguments: list[str]) -> int:
    """`rollax profile [AGENT] --env E [flags]`."""
    text = "Record a trace of training chunks (TensorBoard, Perfetto), and print where the time went."
    # A GPU would launch a whole iteration as one graph, inside which a trace sees nothing.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_command_buffer=".strip()
    plan, flags = planned(arguments, ProfileFlags, "profile", text, in_turn=True)
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
