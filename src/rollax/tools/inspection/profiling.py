"""Where the time of a training chunk goes: a recorded trace, and its operations told apart by phase."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from rollax.errors import ResourceError
from rollax.programs.plan import Plan
from rollax.tools.inspection.programs import programs_of
from rollax.tracing import PHASES

OTHER = "other"  # what belongs to no phase: the loop itself, keys, health, sums
SCOPE = re.compile(rf"(?:^|[/(])({'|'.join(PHASES)})(?=[/)]|$)")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$", re.MULTILINE)
OP_NAME = re.compile(r'op_name="([^"]*)"')
OPERAND = re.compile(r"%([\w.\-]+)")
PASSES = 3  # over instructions without a name
MOST_EVENTS = 300_000  # of a trace: more takes minutes to write, and a viewer does not open it


class Span(NamedTuple):
    """An operation that ran, and the part of its time in which no other ran inside it; microseconds."""

    name: str
    self_time: float
    phase: str


class Profile(NamedTuple):
    """Where time went, in microseconds."""

    iterations: int
    operations: dict[str, float]  # self time by operation
    phases: dict[str, float]  # self time by phase, OTHER last
    labels: dict[str, str]  # phase of each operation
    trace: Path


def profile(plan: Plan, seconds: float, folder: Path) -> Profile:
    """Compiles, runs past the warm-up's least, and records about so many seconds of learning chunks."""
    program = programs_of(plan)["advance"]
    text = program.compile(program.lower()).as_text()
    running, block = plan.program.compile(plan.keys, plan.hparams), plan.program.block
    state, best = running.begin(plan.keys, plan.hparams)
    jax.block_until_ready(running.evaluate(state, best))  # compiled behind the others, and not to be recorded
    at = plan.schedule.warm_up
    state = running.advance_to(state, at).state

    def run(state: Any, iterations: int) -> Any:
        return jax.block_until_ready(running.advance_to(state, at + iterations).state)

    state, at = run(state, block), at + block
    began = time.perf_counter()
    state, at = run(state, 4 * block), at + 4 * block
    pace = (time.perf_counter() - began) / (4 * block)
    operations = labels_of(text)
    fits = max(MOST_EVENTS // max(len(operations), 1), 1)
    iterations = max(min(int(seconds / pace), fits) // block, 1) * block
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 2
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with jax.profiler.trace(str(folder), create_perfetto_trace=True, profiler_options=options):
            run(state, iterations)
    except OSError as error:
        raise ResourceError(f"trace_dir={folder} cannot be written: {error}") from error
    trace = max(folder.rglob("*.trace.json.gz"), key=lambda path: path.stat().st_mtime)
    return summed(spans(read_events(trace), operations), iterations, trace)


def read_events(path: Path) -> list[dict[str, Any]]:
    """The operations in a trace: events with an `hlo_op`, of the training chunk."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return [
        event for event in events if event.get("ph") == "X" and "advance" in event.get("args", {}).get("hlo_module", "")
    ]


def labels_of(text: str) -> dict[str, tuple[str, ...]]:
    """The phases that each instruction of an optimised program is in, the outermost first.

    The compiler forgets the names of some, of matrix products above all: these have the phases of what their result
    goes into, or else of what they are made from.
    """
    labels: dict[str, tuple[str, ...]] = {}
    users, operands = defaultdict(list), {}
    for name, rest in INSTRUCTION.findall(text):
        where = OP_NAME.search(rest)
        if where:
            labels[name] = tuple(SCOPE.findall(where[1]))
        else:
            operands[name] = OPERAND.findall(rest)
        for operand in OPERAND.findall(rest):
            users[operand].append(name)
    for _ in range(PASSES):
        for name in [name for name in operands if name not in labels]:
            near = [labels[other] for other in users[name] if labels.get(other)]
            near = near or [labels[other] for other in operands[name] if labels.get(other)]
            if near:
                labels[name] = Counter(near).most_common(1)[0][0]
    return labels


def spans(events: Iterable[dict[str, Any]], labels: dict[str, tuple[str, ...]]) -> list[Span]:
    """Each operation's self time and phase.

    An operation inside another, as a loop's body is in its loop, has the other's phase unless its own lies in that:
    a computation that several callers share has the names of one of them alone.
    """
    by_thread = defaultdict(list)
    for event in events:
        by_thread[event["pid"], event["tid"]].append(event)
    found = []
    for thread in by_thread.values():
        thread.sort(key=lambda event: (event["ts"], -event["dur"]))
        open_: list[list[Any]] = []  # name, end, self time, phases
        for event in thread:
            while open_ and open_[-1][1] <= event["ts"]:
                found.append(closed(open_.pop()))
            name = event["args"].get("hlo_op", event["name"])
            own = labels.get(name, ())
            outer = open_[-1][3] if open_ else ()
            phases = own if own[: len(outer)] == outer else outer
            if open_:
                open_[-1][2] -= event["dur"]
            open_.append([name, event["ts"] + event["dur"], event["dur"], phases])
        found += [closed(entry) for entry in reversed(open_)]
    return found


def closed(entry: list[Any]) -> Span:
    name, _, self_time, phases = entry
    return Span(name, max(self_time, 0.0), phases[-1] if phases else OTHER)


def summed(found: list[Span], iterations: int, trace: Path) -> Profile:
    operations: dict[str, float] = defaultdict(float)
    phases = dict.fromkeys((*PHASES, OTHER), 0.0)
    share: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, self_time, phase in found:
        operations[name] += self_time
        phases[phase] += self_time
        share[name][phase] += self_time
    labels = {name: max(times, key=lambda phase: times[phase]) for name, times in share.items()}
    ordered = dict(sorted(operations.items(), key=lambda item: -item[1]))
    return Profile(iterations, ordered, phases, labels, trace)
