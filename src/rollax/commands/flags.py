"""How flags become an experiment: every leaf of it is one, with its default and its help."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from rollax.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Where:
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"  # What computes; by itself JAX takes a GPU or TPU if it can.


@dataclass(frozen=True, kw_only=True)
class Processes(Where):
    coordinator: str = ""  # Of several processes: HOST:PORT of the first, which also takes the next port.
    num_processes: int = 0  # How many they are; a scheduler such as SLURM tells it by itself.
    process_id: int = -1  # Which of them this one is, from 0.

    def joined(self) -> Any:
        """A context in which this process computes where it is to, and is one of several, if it is to be."""
        from rollax.programs.cluster import Place, joined

        return joined(Place(self.coordinator, self.num_processes, self.process_id), device=self.device)


@dataclass(frozen=True, kw_only=True)
class DebugFlags:
    debug: bool = False  # --check, --debug-key-reuse and --check-leaks together.
    check: bool = False  # Stop at the first NaN, division by zero or index out of bounds, and name its line; slow.
    jit: bool = True  # With --no-jit a chunk runs one operation after the other; for a few steps.
    debug_key_reuse: bool = False  # Look for random keys that are used twice, before anything runs.
    debug_nans: bool = False  # Stop after a chunk that leaves a NaN behind, and look for its line.
    check_leaks: bool = False  # Look for traced values that are kept where they must not be.
    debug_print: int = 0  # Print loss, return and more from inside the compiled program, every so many iterations.

    def debug_modes(self) -> Any:
        """What is looked for."""
        from rollax.programs.debugging import Debug

        return Debug(
            check=self.check or self.debug,
            jit=self.jit,
            key_reuse=self.debug_key_reuse or self.debug,
            nans=self.debug_nans,
            leaks=self.check_leaks or self.debug,
            print_every=self.debug_print,
        )


@dataclass(frozen=True, kw_only=True)
class TrainFlags(Processes, DebugFlags):
    """What `rollax train` is told beside the experiment."""


def starting_experiment(agent: str | None, flags: list[str]) -> Any:
    """What the flags will change: a configuration file, or the preset of the agent in its environment."""
    from rollax.experiment.experiment import (
        MAIN_AGENT,
        MAIN_ENV,
        MAIN_SEEDS,
        from_json,
        make_experiment,
        with_parts,
    )
    from rollax.experiment.parts import PARTS
    from rollax.runs.folder import read_json

    parts = {slot: name for slot in PARTS if (name := flag_value(flags, f"--{slot}"))}
    config = flag_value(flags, "--config")
    if config:
        if flag_value(flags, "--preset"):
            raise ConfigError("preset does not go with config, which holds every setting already; leave one out")
        loaded = from_json(read_json(Path(config), f"config={config} does not exist"))
        if agent is not None and agent != loaded.agent:
            raise ConfigError(f"agent={agent!r} is not that of {config}, which is {loaded.agent!r}; leave it out")
        return with_parts(loaded, parts)[0]
    env = flag_value(flags, "--env") or MAIN_ENV
    seeds = MAIN_SEEDS if agent is None else 1
    preset = flag_value(flags, "--preset") or "auto"
    return make_experiment(agent or MAIN_AGENT, env=env, seeds=seeds, preset=preset, **parts)


def flag_value(flags: list[str], name: str) -> str | None:
    """The value of a flag that decides the others' defaults, read ahead of the parser."""
    for index, flag in enumerate(flags):
        if flag == name and index + 1 < len(flags):
            return flags[index + 1]
        if flag.startswith(f"{name}="):
            return flag.removeprefix(f"{name}=")
    return None


def parse_experiment(
    start: Any, flags: list[str], base: type, own: list[tuple[str, Any, Any]], program: str, description: str
) -> tuple[dict[str, Any], Any]:
    """The leaves of an experiment that flags set, and all that was parsed, with the fields of `base` and `own`."""
    from rollax.experiment.experiment import field_comments, leaves, parts_of
    from rollax.experiment.parts import PART_HELP, PARTS

    fields: list[tuple[str, Any, Any]] = [
        described(slot, literal({**PARTS[slot], name: None}), name, PART_HELP[slot])
        for slot, name in parts_of(start).items()
    ]
    known = [leaf for leaf in leaves(start) if leaf.name != "agent"]
    for leaf in known:
        if leaf.traced:
            several = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
            fields.append(described(leaf.name, types.GenericAlias(tuple, (leaf.annotation, ...)), several, leaf.help))
        else:
            fields.append(described(leaf.name, leaf.annotation, leaf.value, leaf.help))
    fields += [
        *own,
        described("config", str, "", "A config.json to start from."),
        described("preset", str, "auto", "A preset by name; auto for the agent's own in the environment, or none."),
        described("quiet", bool, False, "Print nothing but warnings."),
        described("compile_cache", bool, True, "Keep compiled programs on disk for the next run."),
    ]
    # Again as fields of their own: the comments of a base are not found by whoever writes the help.
    kind: Any = base
    hints, comments = get_type_hints(base, include_extras=True), field_comments(base)
    inherited = [
        described(one.name, hints[one.name], one.default, comments[one.name])
        for one in dataclasses.fields(kind)
        if one.name in comments and one.default is not dataclasses.MISSING
    ]
    form = dataclasses.make_dataclass("Flags", [*fields, *inherited], bases=(base,), frozen=True, kw_only=True)
    parsed = parse(form, flags, program, description)
    return {leaf.name: getattr(parsed, leaf.name) for leaf in known}, parsed


def literal(values: Iterable[str]) -> Any:
    """The type of exactly these values."""
    return Literal.__getitem__(tuple(values))


def described(name: str, kind: Any, value: Any, text: str) -> tuple[str, Any, Any]:
    return name, Annotated[kind, tyro.conf.arg(help=text)], dataclasses.field(default=value)


def parse(form: Any, flags: list[str], program: str, description: str) -> Any:
    return tyro.cli(form, prog=program, description=description, args=flags)
