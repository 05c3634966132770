"""The commands about what there is: `list`, `check-env`, `doctor`."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from rollax.commands.flags import Processes, parse
from rollax.errors import ConfigError
from rollax.settings import COUNT, NOT_NEGATIVE, setting


@dataclass(frozen=True)
class List:
    json: bool = setting(False, "Print one JSON object.")


def list_command(arguments: list[str]) -> int:
    """`rollax list`."""
    options = parse(List, arguments, "rollax list", "Agents, environments, and presets with their measured scores.")
    from rollax.agents.names import AGENTS
    from rollax.envs.names import names as environment_names
    from rollax.experiment.presets import NAMES, PRESETS

    groups = {"agents": list(AGENTS), "environments": environment_names(), "presets": list(NAMES)}
    scores = {
        name: f"{preset.score} ({preset.machine})" if preset.machine else preset.score
        for name, preset in PRESETS.items()
    }
    if options.json:
        print(json.dumps(groups | {"scores": scores}))
        return 0
    width = max(map(len, PRESETS)) + 2
    for title, names in groups.items():
        print(f"{title}:")
        for name in names:
            print(f"  {name:<{width}}{scores[name]}" if name in scores else f"  {name}")
    return 0


@dataclass(frozen=True)
class Zoo:
    json: bool = setting(False, "Print a JSON list, an object for each policy.")


def zoo_command(arguments: list[str]) -> int:
    """`rollax zoo`."""
    told = "The trained policies that come with rollax, for `rollax watch zoo:NAME`, `rollax eval` and --init-from."
    options = parse(Zoo, arguments, "rollax zoo", told)
    from rollax.runs.console import table
    from rollax.runs.zoo import entry, listed, names

    rows = listed(map(entry, names()))
    if options.json:
        print(json.dumps(rows))
        return 0
    header = ["name", "environment", "score", "episodes", "steps", "machine", "commit"]
    told = {"score": "{:.2f}", "steps": "{:,}", "commit": "{:.7}"}
    columns = ("name", "env", "score", "episodes", "steps", "machine", "commit")
    cells = [[told.get(column, "{}").format(row[column]) for column in columns] for row in rows]
    print(table(header, cells))
    return 0


@dataclass(frozen=True)
class CheckEnv:
    name: Annotated[str, tyro.conf.Positional] = setting(help="The environment's name, or package.module:function.")
    steps: int = setting(200, "Number of random steps to take.", limit=COUNT)
    vectorization: Literal["", "sync", "async"] = setting(
        "", "For an environment of Gymnasium: one after the other, or each in a process of its own."
    )
    env_seconds: float = setting(
        0.0, "Seconds that a step outside JAX may take; 0 for as long as in a run.", limit=NOT_NEGATIVE
    )


def check_env_command(arguments: list[str]) -> int:
    options = parse(CheckEnv, arguments, "rollax check-env", "See whether an environment keeps to the protocol.")
    from rollax.envs.check import check_environment
    from rollax.envs.registry import world_of

    world = world_of(options.name)
    asked = {"vectorization": options.vectorization, "env_seconds": options.env_seconds}
    fields = {item.name for item in dataclasses.fields(world)}
    if wrong := [name for name, value in asked.items() if value and name not in fields]:
        raise ConfigError(f"{wrong[0]} does not go with {options.name}; leave it out")
    changes: dict[str, Any] = {name: value for name, value in asked.items() if value}
    if "env_restarts" in fields:
        changes["env_restarts"] = 0  # what breaks is to be seen
    world = dataclasses.replace(world, **changes)
    for line in check_environment(options.name, options.steps, world):
        print(line)
    return 0


@dataclass(frozen=True)
class Doctor(Processes):
    json: bool = setting(False, "Print one JSON object.")
    distributed: bool = setting(False, "Also take a mean over all processes, which must all be started.")


def doctor_command(arguments: list[str]) -> int:
    options = parse(Doctor, arguments, "rollax doctor", "Versions, backend, devices and memory.")
    from rollax.programs.machine import machine

    with options.joined():
        facts = machine() | (mean_over_processes() if options.distributed else {})
    if options.json:
        print(json.dumps(facts))
        return 0
    for name, value in facts.items():
        print(f"{name:>14}  {', '.join(map(str, value)) if isinstance(value, list) else value}")
    return 0


def mean_over_processes() -> dict[str, Any]:
    """One `pmean` over all devices of all processes, of 1 + each one's process."""
    import jax

    from rollax.programs.cluster import mean_of_processes

    count = jax.process_count()
    mean = mean_of_processes()
    wanted = (count + 1) / 2
    return {
        "processes": count,
        "process": jax.process_index(),
        "pmean": f"{mean:g} over {jax.device_count()} devices, {'right' if mean == wanted else f'not {wanted:g}'}",
    }
