"""Whether a run fits into memory: what it needs, what there is, and which size would fit instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax

from rollax.errors import ResourceError, RollaxError
from rollax.experiment.experiment import Experiment, make_experiment, with_values
from rollax.experiment.tree import leaves
from rollax.programs.machine import available_bytes, host_bytes, memory_size, parsed_size
from rollax.programs.plan import Plan, make_plan
from rollax.programs.program import nbytes

SHARE = 0.9  # of what is free may be planned with: estimates are not exact, and others need memory too
CLEARLY = 20  # a run that a rough count finds so many times smaller than what is free is not looked at further


class Need(NamedTuple):
    """Bytes of a run, by where they are."""

    state: int  # with the learner, all the time
    temporary: int  # with the learner, at the most
    elsewhere: int  # in the machine's memory and not on the learner's device, and in other processes

    @property
    def near(self) -> int:
        return self.state + self.temporary


class Free(NamedTuple):
    """Bytes that a run may take."""

    near: int  # where the learner is
    machine: int

    def holds(self, need: Need) -> bool:
        together = need.elsewhere + (need.near if jax.default_backend() == "cpu" else 0)
        return need.near <= self.near and together <= self.machine


def need_of(plan: Plan) -> Need:
    """What a run will need, before anything is compiled: the state exactly, the rest from the programs' jaxprs."""
    program, shapes = plan.program, plan.shapes()
    far = program.far_bytes(shapes)
    state = program.state_bytes(shapes) - far
    temporary = max(program.temporary_bytes(plan.keys, plan.hparams).values(), default=0)
    return Need(state, temporary, far + program.other_bytes())


def free_for(experiment: Experiment) -> Free:
    """What a run may take: most of what is free, or what it was given."""
    near, machine = int(available_bytes() * SHARE), int(host_bytes() * SHARE)
    most = parsed_size(experiment.loop.max_memory)
    return Free(near, machine) if most is None else Free(min(near, most), min(machine, most))


def rough_rows(plan: Plan) -> int:
    """Environments' steps that one member holds at once: of a rollout, of a batch, and of an evaluation."""
    loop, spec = plan.program.loop, plan.program.agent.spec
    learnt = plan.experiment.choices.rows_of_an_update(spec)
    return loop.num_envs * loop.rollout_length + learnt + plan.experiment.record.eval_episodes


def least_bytes(plan: Plan) -> int:
    """What a run takes at least: its state, and the observations of a rollout."""
    loop = plan.program.loop
    steps = len(plan.members) * loop.num_envs * loop.rollout_length
    return nbytes(plan.shapes()) + steps * nbytes(loop.task.observation)


def is_small(plan: Plan, free: Free) -> bool:
    """Whether a rough count says that there is memory in plenty."""
    params = plan.shapes()[0].learner.params
    widths = sum(leaf.shape[-1] for leaf in jax.tree.leaves(params))
    row = 2 * nbytes(plan.program.loop.task.observation) + 8 * widths
    rough = nbytes(plan.shapes()) + len(plan.members) * rough_rows(plan) * row + plan.program.other_bytes()
    return rough * CLEARLY <= min(free)


def excess(plan: Plan, free: Free) -> Need | None:
    """What a run needs, if that is too much."""
    if is_small(plan, free):
        return None
    if (least := least_bytes(plan)) > free.near and not plan.program.far_bytes(plan.shapes()):
        return Need(least, 0, plan.program.other_bytes())  # tracing it would only tell how much more it is
    need = need_of(plan)
    return None if free.holds(need) else need


def check_memory(plan: Plan) -> None:
    """Refuses a run that cannot fit, with a size that does, before anything is compiled or allocated."""
    free = free_for(plan.experiment)
    need = excess(plan, free)
    if need is None:
        return
    fix = fitting(plan, free) or "try fewer seeds or settings"
    raise ResourceError(f"{shortage(need, free, plan.experiment)}; {fix}")


def check_compiled(plan: Plan, needed: int) -> None:
    """Refuses a run of which the compiler says that it cannot fit, before anything is allocated."""
    free, far = free_for(plan.experiment), plan.program.far_bytes(plan.shapes())
    need = Need(needed - far, 0, far + plan.program.other_bytes())
    if not free.holds(need):
        raise ResourceError(
            f"compiled, {shortage(need, free, plan.experiment)}; `rollax plan` shows what it is made of"
        )


def shortage(need: Need, free: Free, experiment: Experiment) -> str:
    """What is lacking, in words."""
    may = "max_memory allows only" if experiment.loop.max_memory else "free are only"
    if need.near > free.near:
        return f"the run needs {memory_size(need.near)} of memory, but {may} {memory_size(free.near)}"
    whole = need.elsewhere + (need.near if jax.default_backend() == "cpu" else 0)
    what = "with the replay in the machine's memory" if need.elsewhere else "in all"
    return f"the run needs {memory_size(whole)} {what}, but {may} {memory_size(free.machine)}"


def fitting(plan: Plan, free: Free) -> str:
    """A smaller value of one setting with which the run fits, in words; nothing where no single one helps."""
    record = replace(plan.experiment.record, log_steps=0, eval_steps=0)  # they followed from the value that is changed
    experiment = replace(plan.experiment, record=record)
    for name, value in most_changed(experiment):
        found = largest_fitting(experiment, name, value, free)
        if found is not None:
            shown = " ".join(map(str, found)) if isinstance(found, tuple) else str(found)
            return f"--{name.replace('_', '-')} {shown} would fit"
    return ""


def most_changed(experiment: Experiment) -> list[tuple[str, Any]]:
    """The settings that memory depends on, by how many times larger they are than usual."""
    usual = {leaf.path: leaf.value for leaf in leaves(make_experiment(experiment.agent, env=experiment.env))}

    def times(leaf: Any) -> float:
        return largest(leaf.value) / max(largest(usual.get(leaf.path, leaf.value)), 1)

    named = [leaf for leaf in leaves(experiment) if leaf.about.memory and leaf.value]
    return [(leaf.name, leaf.value) for leaf in sorted(named, key=times, reverse=True)]


def largest(value: Any) -> int:
    return max(value) if isinstance(value, tuple) else value


def largest_fitting(experiment: Experiment, name: str, value: Any, free: Free) -> Any:
    """The value, halved as often as it must be, then half a time less if that fits; None where nothing does."""

    def tried(power: float) -> tuple[Any, bool]:
        """What the value would be, None where no such value is allowed, and whether the run then fits."""
        for smaller in smaller_values(value, 2.0**-power, experiment.steps_per_iteration):
            try:
                plan = make_plan(with_values(experiment, {name: smaller}))
            except RollaxError:
                continue
            return smaller, excess(plan, free) is None
        return None, False

    low, high, found = 0, largest(value).bit_length(), None
    while high - low > 1:
        middle = (low + high) // 2
        smaller, fits = tried(middle)
        found = smaller if fits else found
        low, high = (low, middle) if fits or smaller is None else (middle, high)
    if found is None:
        return None
    larger, fits = tried(high - 0.5)
    return larger if fits else found


def smaller_values(value: Any, factor: float, unit: int) -> Iterator[Any]:
    """What a value times that factor may be rounded to, as some settings must divide others."""
    if isinstance(value, tuple):
        yield tuple(max(1, int(one * factor)) for one in value)
        return
    smaller = max(1, int(value * factor))
    if smaller >= unit:
        yield smaller // unit * unit
    yield 1 << (smaller.bit_length() - 1)
    yield smaller
