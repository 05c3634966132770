"""What was found out about a run, as tables and as JSON."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any, Literal

from rollax.programs.budget import free_for
from rollax.programs.machine import device_name, memory_size
from rollax.programs.plan import Plan
from rollax.programs.program import nbytes
from rollax.runs.console import table
from rollax.tools.inspection import memory
from rollax.tools.inspection.differences import difference
from rollax.tools.inspection.profiling import Profile
from rollax.tools.inspection.programs import Cost, cost_of, count_of_a_run, flops_of_iteration, programs_of


def counted(number: int, noun: str) -> str:
    """A number with its noun: one member, two members."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def program_texts(plan: Plan, name: str, kinds: list[str]) -> dict[str, str]:
    """The program as a jaxpr, as StableHLO, as optimised HLO: those that are asked for."""
    if not kinds:
        return {}
    program = programs_of(plan)[name]
    traced = program.trace()
    texts = {"jaxpr": str(traced.jaxpr)} if "jaxpr" in kinds else {}
    if "stablehlo" in kinds or "hlo" in kinds:
        lowered = traced.lower()
        texts |= {"stablehlo": lowered.as_text()} if "stablehlo" in kinds else {}
        texts |= {"hlo": program.compile(lowered).as_text()} if "hlo" in kinds else {}
    return texts


def difference_text(plan: Plan, transformation: Literal["vmap", "shard_map"]) -> str:
    found = difference(plan, transformation)
    return "\n".join([*found.comments, *found.lines])


def facts(plan: Plan, name: str, asked: list[str]) -> dict[str, Any]:
    """What is asked for, or all of it: compilations, cost, memory, weights."""
    found: dict[str, Any] = {"agent": plan.experiment.agent, "env": plan.experiment.env, "device": device_name()}
    found["program"] = name
    inside = plan.program.searchable
    wanted = asked or (["compilations", "cost"] if inside else []) + ["memory", "params"]
    cost: Cost | None = None
    if "cost" in wanted or ("memory" in wanted and inside):
        program = programs_of(plan)[name]
        cost = cost_of(program.compile(program.lower()))
    if "compilations" in wanted:
        counted = count_of_a_run(plan)
        found["compilations"] = {one.name: sum(other.name == one.name for other in counted) for one in counted}
        found["compile_seconds"] = {one.name: round(one.seconds, 3) for one in counted}
    if "cost" in wanted and cost:
        found["cost"] = {"flops": cost.flops, "bytes_accessed": cost.bytes_accessed}
        found["cost"] |= {f"jaxpr_{name}": count for name, count in flops_of_iteration(plan).items()}
    if "memory" in wanted:
        found["memory"] = [part._asdict() for part in memory.state_parts(*plan.shapes())]
        if cost:
            found["buffers"] = {
                "arguments": cost.argument_bytes,
                "outputs": cost.output_bytes,
                "outputs in the place of arguments": cost.alias_bytes,
                "temporaries": cost.temporary_bytes,
                "peak": cost.peak_bytes,
            }
    if "params" in wanted:
        found["params"] = [part._asdict() for part in memory.parameters(plan)]
    return found


def summary(plan: Plan, found: dict[str, Any]) -> str:
    """The facts as tables."""
    members = len(plan.members)
    lines = [f"{found['agent']} on {found['env']}, {counted(members, 'member')}, on {found['device']}"]
    if not plan.program.searchable:
        lines.append("The environments run outside JAX: there is no program of the whole chunk to be shown.")
    if "compilations" in found:
        lines += ["", "Compilations of a run of four chunks and four evaluations:"]
        seconds = found["compile_seconds"]
        rows = [[name, str(count), f"{seconds[name]:.2f}"] for name, count in found["compilations"].items()]
        lines.append(table(["program", "times", "seconds"], rows))
    if "cost" in found:
        cost = found["cost"]
        steps = plan.steps_per_iteration * members
        lines += ["", f"Cost of one iteration of `{found['program']}` ({steps:,} steps of all members):"]
        rows = [
            ["XLA's count, each loop's body once", f"{cost['flops']:,.0f} FLOPs", memory_size(cost["bytes_accessed"])],
        ]
        if "jaxpr_products" in cost and found["program"] == "advance":
            whole = cost["jaxpr_products"] + cost["jaxpr_others"]
            rows.append(["the jaxpr's, loops as often as they run", f"{whole:,.0f} FLOPs", ""])
            rows.append(["of these in matrix products", f"{cost['jaxpr_products']:,.0f} FLOPs", ""])
        lines.append(table(["", "computed", "moved"], rows))
    if "memory" in found:
        total = sum(part["bytes"] for part in found["memory"])
        lines += ["", f"Memory: the state of {counted(members, 'member')}"]
        rows = [[part["name"], part["outline"], memory_size(part["bytes"])] for part in found["memory"]]
        lines.append(table(["part", "arrays", "bytes"], [*rows, ["all", "", memory_size(total)]]))
        if "buffers" in found:
            lines += ["", f"Memory: the buffers of `{found['program']}`"]
            lines.append(
                table(["buffer", "bytes"], [[name, memory_size(count)] for name, count in found["buffers"].items()])
            )
    if "params" in found:
        lines += ["", "Weights of one member:"]
        parts = [memory.Part(**part) for part in found["params"]]
        rows = [[part.name, part.outline, f"{memory.count_of(part):,}", memory_size(part.bytes)] for part in parts]
        numbers, held = sum(map(memory.count_of, parts)), sum(part.bytes for part in parts)
        lines.append(
            table(["array", "shape", "numbers", "bytes"], [*rows, ["all", "", f"{numbers:,}", memory_size(held)]])
        )
    return "\n".join(lines)


def needs(plan: Plan, measure: bool) -> dict[str, Any]:
    """What a run would need; with `measure`, what XLA says of it as well."""
    shapes, schedule, every = plan.shapes(), plan.schedule, plan.schedule.evaluation
    state, temporary = memory.state_parts(*shapes), memory.temporary_parts(plan)
    found: dict[str, Any] = {
        "agent": plan.experiment.agent,
        "env": plan.experiment.env,
        "members": len(plan.members),
        "devices": plan.grid.size,
        "steps_per_iteration": plan.steps_per_iteration,
        "iterations": schedule.total,
        "warm_up_iterations": schedule.warm_up,
        "evaluations": max((schedule.total - 1) // every - schedule.warm_up // every, 0) + 1,
        "state": [part._asdict() for part in state],
        "temporary": [part._asdict() for part in temporary],
        "state_bytes": sum(part.bytes for part in state),
        "temporary_bytes": memory.total_bytes(plan) - sum(part.bytes for part in state),
        "free_bytes": min(free_for(plan.experiment)),
        "drivers": [driver._asdict() for driver in memory.drivers(plan)[:3]],
    }
    if measure:
        with closing(plan.program.compile(plan.keys, plan.hparams)) as running:
            found["measured_bytes"] = running.memory_bytes
            found["measured_temporary_bytes"] = running.memory_bytes - nbytes(plan.shapes())
    return found


def needs_text(plan: Plan, found: dict[str, Any]) -> str:
    experiment = plan.experiment
    whole = found["state_bytes"] + found["temporary_bytes"]
    lines = [
        f"{found['agent']} on {found['env']}: {counted(found['members'], 'member')} "
        f"on {counted(found['devices'], 'device')}",
        f"{found['iterations']:,} iterations of {found['steps_per_iteration']:,} steps each, the first "
        f"{found['warm_up_iterations']:,} without learning; {found['evaluations']:,} evaluations of "
        f"{experiment.record.eval_episodes:,} episodes",
        "",
        "State, exact:",
    ]
    large = sorted(found["state"], key=lambda part: -part["bytes"])
    rows = [[part["name"], part["outline"], memory_size(part["bytes"])] for part in large if part["bytes"] >= 1_000]
    rest = sum(part["bytes"] for part in large if part["bytes"] < 1_000)
    lines.append(table(["part", "arrays", "bytes"], [*rows, ["the rest", "", memory_size(rest)]]))
    if found["temporary"]:
        lines += ["", "In addition while a program runs, estimated:"]
        rows = [[part["name"], part["outline"], memory_size(part["bytes"])] for part in found["temporary"]]
        lines.append(table(["part", "", "bytes"], rows))
    lines += ["", f"Together {memory_size(whole)}; {memory_size(found['free_bytes'])} are available."]
    if "measured_bytes" in found:
        measured, beside = found["measured_bytes"], memory_size(found["measured_temporary_bytes"])
        lines.append(
            f"Compiled: {memory_size(measured)}, of which {beside} in addition to the state; "
            f"the estimate is off by {100 * (whole / measured - 1):+.1f} %."
        )
    lines += ["", "What it depends on most:"]
    for driver in found["drivers"]:
        value = driver["value"]
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}"
        share = 100 * driver["added"] / whole
        lines.append(f"  {driver['name']}={shown}: twice as much adds {memory_size(driver['added'])} ({share:+.0f} %)")
    return "\n".join(lines)


def shares(found: Profile) -> dict[str, float]:
    whole = sum(found.phases.values()) or 1.0
    return {phase: spent / whole for phase, spent in found.phases.items()}


def profile_json(found: Profile) -> str:
    facts = {"iterations": found.iterations, "shares": shares(found), "trace": str(found.trace)}
    return json.dumps(facts | {"operations": found.operations, "phases": found.labels})


def profile_text(found: Profile, top: int) -> str:
    whole = sum(found.operations.values()) or 1.0
    rows = [
        [name, found.labels[name], f"{spent / found.iterations:.1f}", f"{100 * spent / whole:.1f} %"]
        for name, spent in list(found.operations.items())[:top]
    ]
    lines = [f"{found.iterations:,} iterations, {len(found.operations):,} operations; self times:"]
    lines += [table(["operation", "phase", "us/iteration", "share"], rows), ""]
    lines.append(table(["phase", "share"], [[name, f"{100 * part:.1f} %"] for name, part in shares(found).items()]))
    lines += ["", f"Trace: {found.trace.parent} (tensorboard --logdir, or perfetto_trace.json.gz in ui.perfetto.dev)"]
    return "\n".join(lines)
