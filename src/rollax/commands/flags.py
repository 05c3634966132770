"""How flags become an experiment: every setting of it is one, by its name."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rollax.commands.help import Flag, help_text
from rollax.commands.words import canonical, grouped
from rollax.envs.names import check_known
from rollax.errors import ConfigError
from rollax.settings import COUNT_OR_NONE, Limit, abouts, out_of_range, setting

PLACES = "devices and processes"


@dataclass(frozen=True, kw_only=True)
class Device:
    device: Literal["auto", "cpu", "gpu", "tpu"] = setting(
        "auto", "The device to compute on; auto takes a GPU or TPU if JAX finds one.", group=PLACES
    )


@dataclass(frozen=True, kw_only=True)
class Processes(Device):
    coordinator: str = setting(
        "", "HOST:PORT of the first of several processes, which also takes the next port.", group=PLACES, rare=True
    )
    num_processes: int = setting(
        0,
        "Number of processes of one run; 0 asks a scheduler such as SLURM.",
        group=PLACES,
        rare=True,
        limit=COUNT_OR_NONE,
    )
    process_id: int = setting(
        -1,
        "Number of this process among several, from 0; -1 asks a scheduler.",
        group=PLACES,
        rare=True,
        limit=Limit(-1, 2**31 - 1),
    )

    def joined(self) -> Any:
        """A context in which this process computes where it is to, and is one of several, if it is to be."""
        from rollax.programs.cluster import Place, joined

        return joined(Place(self.coordinator, self.num_processes, self.process_id), device=self.device)


@dataclass(frozen=True, kw_only=True)
class Trusting:
    """Of a command that reads a configuration, which may name modules."""

    trust: bool = setting(False, "Import whatever modules the folder or the file names: their code runs here.")


@dataclass(frozen=True, kw_only=True)
class ExperimentFlags(Trusting):
    """What a command that takes an experiment is told beside it."""

    config: str = setting("", "A config.json to start from.", group="run")
    preset: str = setting(
        "auto", "A preset by its name; auto takes the agent's in the environment, none takes no preset.", group="run"
    )
    trust: bool = setting(False, group="run")
    compile_cache: bool = setting(True, "Keep compiled programs on disk for the next run.", group="run", rare=True)


def read_experiment(arguments: list[str], options: type, command: str, text: str) -> tuple[Any, Any]:
    """The experiment of `[AGENT] [flags]`, and the command's options.

    Raises ConfigError for a wrong agent, flag or value; prints the help and exits where it is asked for.
    """
    agent = arguments[0] if arguments and not arguments[0].startswith("-") else None
    flags = arguments[1:] if agent else arguments
    program = f"rollax {command} [AGENT]"
    if env := dict(values_ahead(flags)).get("env"):
        check_known(env)  # before JAX is imported
    try:
        start = starting_experiment(agent, flags)
    except ConfigError as error:  # with parts that do not fit: what else is wrong, without them?
        flags, start = without_parts(agent, flags, error)
        try:
            parse_experiment(start, flags, options, program, text)
        except ConfigError as further:
            raise ConfigError(error.problems + further.problems) from None
        raise
    return parse_experiment(start, flags, options, program, text)


def without_parts(agent: str | None, flags: Sequence[str], error: ConfigError) -> tuple[list[str], Any]:
    """The flags that choose no part, and what they will change.  Raises the error if it does not come from parts."""
    from rollax.experiment.parts import PARTS

    def chooses(group: list[str]) -> bool:
        return any(name.split(".")[-1] in PARTS for name, _ in values_ahead([*group, ""]))

    rest = [word for group in grouped(flags) if not chooses(group) for word in group]
    if len(rest) == len(flags):
        raise error
    try:
        return rest, starting_experiment(agent, rest)
    except ConfigError:
        raise error from None


def starting_experiment(agent: str | None, flags: Sequence[str]) -> Any:
    """What the flags will change: a configuration file, or the preset of the agent in its environment."""
    from rollax.experiment.experiment import MAIN_AGENT, MAIN_ENV, MAIN_SEEDS, make_experiment, with_values
    from rollax.experiment.looking import modules_in
    from rollax.experiment.parts import PARTS
    from rollax.runs.reader import read_json
    from rollax.runs.trust import experiment_in

    ahead = dict(values_ahead(flags))
    parts = {name: value for name, value in ahead.items() if name.split(".")[-1] in PARTS}
    config = ahead.get("config")
    if config:
        if ahead.get("preset"):
            raise ConfigError("preset does not go with config, which holds every setting already; leave one out")
        spoken = {"agent": agent or "", "env": ahead.get("env", ""), **{name: {"part": parts[name]} for name in parts}}
        data = read_json(Path(config), f"config={config} does not exist", fail=ConfigError, links=True)
        loaded = experiment_in(data, config, trust="--trust" in flags, named=modules_in(spoken))
        if agent is not None and agent != loaded.agent:
            raise ConfigError(f"agent={agent!r} is not that of {config}, which is {loaded.agent!r}; leave it out")
        return with_values(loaded, parts)
    seeds = MAIN_SEEDS if agent is None else 1
    env, preset = ahead.get("env") or MAIN_ENV, ahead.get("preset") or "auto"
    return make_experiment(agent or MAIN_AGENT, env=env, seeds=seeds, preset=preset, **parts)


def values_ahead(flags: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Flags and their first values, read ahead of the parser: some decide which others there are."""
    for index, flag in enumerate(flags):
        name, equals, value = flag.removeprefix("--").partition("=")
        if flag.startswith("--") and (equals or index + 1 < len(flags)):
            yield name.replace("-", "_"), value if equals else flags[index + 1]


def parse_experiment(
    start: Any, flags: Sequence[str], options: type, program: str = "rollax", text: str = ""
) -> tuple[Any, Any]:
    """The experiment with what flags change, and the options."""
    from rollax.experiment.experiment import with_values
    from rollax.experiment.tree import leaves, range_problems

    beside = flags_of(options)
    settings = setting_flags(start, {flag.name for flag in beside})
    known = [*settings.values(), *beside]
    answer_help(flags, program, text, known)
    fields = {path: f"setting_{number}" for number, path in enumerate(settings)}
    form = dataclasses.make_dataclass(
        "Flags",
        [
            (fields[path], Annotated[flag.kind, tyro.conf.arg(name=flag.name)], dataclasses.field(default=flag.default))
            for path, flag in settings.items()
        ],
        bases=(options,),
        frozen=True,
        kw_only=True,
    )
    good, problems = canonical(flags, known, list(settings))
    try:
        parsed = parsed_by_tyro(form, good, program)
        values = {path: getattr(parsed, field) for path, field in fields.items()}
        changed = {path for path, value in values.items() if value != settings[path].default}
        asked = {leaf.name: values[leaf.path] for leaf in leaves(start) if leaf.path in changed}
        experiment = with_values(start, asked)
        problems += option_problems(options, parsed)
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems + range_problems(experiment))
    return experiment, parsed


def option_problems(options: Any, parsed: Any) -> list[str]:
    """The options of a command that are out of their ranges."""
    given = ((flag, getattr(parsed, flag.name)) for flag in flags_of(options))
    return [
        problem
        for flag, value in given
        if isinstance(value, int | float) and not isinstance(value, bool)
        for problem in out_of_range(flag.name, type(value), flag.about.limit, value)
    ]


def setting_flags(start: Any, taken: set[str]) -> dict[tuple[str, ...], Flag]:
    """A flag for each part and each setting of an experiment, by its path; the agent is named before the flags.

    One that is named like an option of the command, which are the names that are taken, has its qualified name.
    """
    from rollax.experiment.parts import PART_ABOUT, PARTS
    from rollax.experiment.tree import leaves, places, shortest_names

    settings = [leaf for leaf in leaves(start) if leaf.path != ("agent",)]
    held = places(start)
    shortest = shortest_names([*(leaf.path for leaf in settings), *held])
    names = {path: ".".join(path[-2:]) if name in taken else name for path, name in shortest.items()}
    flags: dict[tuple[str, ...], Flag] = {}
    for path, part in held.items():
        kind = Literal.__getitem__(tuple({**PARTS[path[-1]], part: None}))
        flags[path] = Flag(names[path], kind, part, PART_ABOUT[path[-1]])
    for leaf in settings:
        kind, value = leaf.annotation, leaf.value
        if leaf.traced:
            kind = types.GenericAlias(tuple, (str if leaf.scheduled else kind, ...))
            value = value if isinstance(value, tuple) else () if value is None else (value,)
        flags[leaf.path] = Flag(names[leaf.path], kind, value, leaf.about)
    return flags


def parse(form: Any, flags: Sequence[str], program: str, text: str) -> Any:
    """The options of a command that takes no experiment."""
    known = flags_of(form)
    answer_help(flags, program, text, known)
    good, problems = canonical(flags, known, [])
    if problems:
        raise ConfigError(problems)
    parsed = parsed_by_tyro(form, good, program)
    if problems := option_problems(form, parsed):
        raise ConfigError(problems)
    return parsed


def parsed_by_tyro(form: Any, flags: Sequence[str], program: str) -> Any:
    """The form as flags fill it.  Raises ConfigError, in a line, where tyro would show a box with a title."""
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            return tyro.cli(form, prog=program, args=flags)
    except SystemExit:
        text = re.sub("[│╭╮╰╯]", " ", shown.getvalue())
        _, reason, *_ = (" ".join(block.split()) for block in re.split("[-─]{9,}", text))
        raise ConfigError(f"{reason.rstrip('.')}; see {program} --help") from None


def flags_of(options: Any) -> list[Flag]:
    """The flags and arguments of a dataclass of options."""
    hints, about = typing.get_type_hints(options, include_extras=True), abouts(options)
    flags = []
    for item in dataclasses.fields(options):
        kind, *marks = typing.get_args(hints[item.name]) if is_annotated(hints[item.name]) else (hints[item.name],)
        positional = tyro.conf.Positional in marks or item.default is dataclasses.MISSING
        flags.append(Flag(item.name, kind, item.default, about[item.name], positional))
    return flags


def is_annotated(hint: Any) -> bool:
    return typing.get_origin(hint) is Annotated


def answer_help(flags: Sequence[str], program: str, text: str, known: Sequence[Flag]) -> None:
    """Prints the help and exits where flags ask for it."""
    if {"-h", "--help", "--help-all"}.intersection(flags):
        print(help_text(program, text, known, everything="--help-all" in flags))
        raise SystemExit(0)
