"""What a run keeps in memory: by part and by array, before anything is allocated."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax

from rollax.errors import RollaxError
from rollax.experiment.experiment import Experiment, with_values
from rollax.experiment.tree import leaves
from rollax.programs.budget import need_of
from rollax.programs.evaluate import Best
from rollax.programs.loop import TrainState, leaf_name
from rollax.programs.plan import Plan, make_plan
from rollax.programs.program import nbytes


class Part(NamedTuple):
    """Some arrays of a run."""

    name: str
    outline: str  # shape and dtype, or how many arrays
    bytes: int


def state_parts(state: TrainState, best: Best) -> list[Part]:
    """The parts of a run's state; the memory's arrays one by one, all else by what it is for."""
    groups: dict[str, list[Any]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state) + jax.tree_util.tree_leaves_with_path({"best": best}):
        words = leaf_name(path).split("/")
        name = "/".join(words if words[0] == "memory" else words[:2])
        groups.setdefault(name, []).append(leaf)
    return [Part(name, outline(arrays), nbytes(arrays)) for name, arrays in groups.items()]


def parameters(plan: Plan) -> list[Part]:
    """The weights of one member, array by array."""
    params = plan.shapes()[0].learner.params
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), params)
    return [
        Part(leaf_name(path), outline([leaf]), nbytes([leaf]))
        for path, leaf in jax.tree_util.tree_leaves_with_path(one)
    ]


def outline(arrays: list[Any]) -> str:
    if len(arrays) == 1:
        return f"{arrays[0].dtype}{list(arrays[0].shape)}".replace(" ", "")
    return f"{len(arrays)} arrays"


def temporary_parts(plan: Plan) -> list[Part]:
    """What each program needs beside the state, of which one runs at a time; estimated before it is compiled."""
    kinds = {"advance": "learning", "evaluate": f"{plan.experiment.record.eval_episodes:,} episodes"}
    temporary = plan.program.temporary_bytes(plan.keys, plan.hparams)
    parts = [Part(name, kinds[name], count) for name, count in temporary.items()]
    other = plan.program.other_bytes()
    return [*parts, Part("other processes", "actors and replay", other)] if other else parts


class Driver(NamedTuple):
    """A setting that memory depends on."""

    name: str
    value: Any
    added: int  # bytes that twice as much would add


def drivers(plan: Plan) -> list[Driver]:
    """The settings that memory depends on, the most costly first: each doubled, and the whole counted again."""
    now = total_bytes(plan)
    counted = []
    for leaf in (leaf for leaf in leaves(plan.experiment) if leaf.about.memory and leaf.value):
        try:
            added = total_bytes(make_plan(with_doubled(plan.experiment, leaf.name, leaf.value))) - now
        except RollaxError:  # twice as much is not allowed
            continue
        counted.append(Driver(leaf.name, leaf.value, added))
    return sorted(counted, key=lambda driver: -abs(driver.added))


def with_doubled(experiment: Experiment, name: str, value: Any) -> Experiment:
    twice = tuple(2 * width for width in value) if isinstance(value, tuple) else 2 * value
    return with_values(experiment, {name: twice})


def total_bytes(plan: Plan) -> int:
    """All of a run, as it is compared with what is free."""
    need = need_of(plan)
    return need.near + need.elsewhere


def count_of(part: Part) -> int:
    """Numbers in an array of float32 or wider, from its outline."""
    return math.prod(int(word) for word in part.outline.split("[")[1].rstrip("]").split(",") if word)
