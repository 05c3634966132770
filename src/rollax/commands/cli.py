"""The commands.  Each reads its flags, calls the library, and turns an error into one line and an exit code."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rollax.commands.bench import bench_command
from rollax.commands.flags import Processes, TrainFlags, described, parse, parse_experiment, starting_experiment
from rollax.commands.inspect import inspect_command, plan_command, profile_command
from rollax.commands.report import export_command, plot_command, report_command
from rollax.commands.search import sweep_command, tune_command
from rollax.errors import INTERRUPTED, ConfigError, ResourceError, RollaxError, did_you_mean


def run_command(name: str, arguments: list[str]) -> int:
    """Runs one command and returns its exit code."""
    try:
        if name not in COMMANDS:
            raise ConfigError(f"{name!r} is no command; {did_you_mean(name, COMMANDS)}")
        return COMMANDS[name](arguments)
    except RollaxError as error:
        for line in str(error).splitlines():
            print(f"rollax: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("rollax: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def train_command(arguments: list[str]) -> int:
    """`rollax train [AGENT] [flags]`."""
    agent = arguments[0] if arguments and not arguments[0].startswith("-") else None
    flags = arguments[1:] if agent else arguments
    start = starting_experiment(agent, flags)
    values, options = parse_train(start, flags)
    from rollax.experiment.experiment import with_values
    from rollax.runs.run import train, use_all_cores

    experiment = with_values(start, values)
    use_all_cores()
    with options["joined"]():
        if options["auto_tune"]:
            from rollax.runs.run import use_compile_cache
            from rollax.tools.sizes import fit_to_device

            if options["compile_cache"]:
                use_compile_cache()  # what is compiled to be measured is what will run
            experiment, reason = fit_to_device(experiment)
            if not options["quiet"]:
                print(reason, flush=True)
        debug = options["debug_modes"]()
        if experiment.loop.actors:
            from rollax.programs.debugging import NO_DEBUG
            from rollax.runs import asynchronous as asynchronous

            if debug != NO_DEBUG:
                raise ConfigError("actors: the debug modes are for runs without; leave --actors out")
            folder, saving = options["run_dir"] or None, options["compile_cache"]
            return asynchronous.train(experiment, folder, quiet=options["quiet"], compile_cache=saving).exit_code
        return train(
            experiment,
            options["run_dir"] or None,
            quiet=options["quiet"],
            compile_cache=options["compile_cache"],
            debug=debug,
        ).exit_code


def parse_train(start: Any, flags: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The leaves that flags set, and the options that are not part of an experiment."""
    from rollax.agents.names import AGENTS

    help_text = TRAIN_HELP.format(agents=", ".join(AGENTS), agent=start.agent)
    own = [
        described("run_dir", str, "", "The folder of the run; by default a new one below runs/."),
        described("auto_tune", bool, False, "Choose num_envs for this device, and say why; the result depends on it."),
    ]
    values, parsed = parse_experiment(start, flags, TrainFlags, own, "rollax train [AGENT]", help_text)
    names = ("run_dir", "quiet", "compile_cache", "auto_tune", "joined", "debug_modes")
    options = {name: getattr(parsed, name) for name in names}
    return values, options


TRAIN_HELP = (
    "Train an agent: {agents}; or package.module:RECIPE of your own. A list of numbers for a hyper-parameter makes a "
    "population: settings x seeds, all in one compiled program. The defaults shown are those of {agent} in this "
    "environment."
)


@dataclass(frozen=True)
class Resume(Processes):
    run_dir: Annotated[str, tyro.conf.Positional]  # The folder of the run.
    steps: int = 0  # Extend a finished run to so many steps of each member.
    devices: int | None = None  # Devices that share the work from here on, 0 for all that fit; by default as before.
    quiet: bool = False  # Print nothing but warnings.
    compile_cache: bool = True  # Keep compiled programs on disk for the next run.


def resume_command(arguments: list[str]) -> int:
    options = parse(Resume, arguments, "rollax resume", "Continue a run from its newest good checkpoint.")
    if options.steps < 0:
        raise ConfigError(f"steps={options.steps} must be at least 1")
    from rollax.runs.run import resume, use_all_cores

    use_all_cores()
    with options.joined():
        if has_actors(options.run_dir):
            from rollax.runs import asynchronous as asynchronous

            saving = options.compile_cache
            return asynchronous.resume(options.run_dir, quiet=options.quiet, compile_cache=saving).exit_code
        return resume(
            options.run_dir,
            options.steps or None,
            devices=options.devices,
            quiet=options.quiet,
            compile_cache=options.compile_cache,
        ).exit_code


def has_actors(run_dir: str) -> bool:
    from rollax.experiment.experiment import from_json
    from rollax.runs.folder import RunFolder

    return from_json(RunFolder(run_dir).read_config()).loop.actors > 0


@dataclass(frozen=True)
class Eval:
    run_dir: Annotated[str, tyro.conf.Positional]  # The folder of the run, or of an exported policy.
    episodes: int = 100  # Episodes of each member.
    epsilon: float | None = None  # Share of random actions; by default that of the run's own evaluations.
    seed: int = 0  # Of the environments; the same seed plays the same episodes.
    best: bool = False  # Play the weights of the best evaluation instead of the last.
    json: bool = False  # Print a JSON list, an object for each member, instead of a table.


def eval_command(arguments: list[str]) -> int:
    options = parse(Eval, arguments, "rollax eval", "Play episodes with every member of a run, without exploring.")
    from rollax.runs.console import table
    from rollax.runs.result import evaluate_run
    from rollax.runs.tables import protocol_line

    if options.episodes < 1 or not 0 <= options.seed < 2**32:
        raise ConfigError("episodes must be at least 1, and seed in [0, 4294967295]")
    from rollax.reports.export import ExportedPolicy, is_export

    if is_export(options.run_dir):
        if options.epsilon is not None or options.best:
            raise ConfigError("epsilon and best were decided when the policy was exported; leave them out")
        rows = ExportedPolicy(Path(options.run_dir)).evaluate(options.episodes, options.seed)
    else:
        rows = evaluate_run(
            options.run_dir, options.episodes, epsilon=options.epsilon, seed=options.seed, best=options.best
        )
    if options.json:
        print(json.dumps(rows))
        return 0
    header = ["member", "seed", "episodes", "truncated", "return_mean", "return_std", "return_min", "return_max"]
    cells = [
        [f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in header] for row in rows
    ]
    print(table(header, cells))
    if "protocol" in rows[0]:
        print(protocol_line(rows[0]["protocol"]))
    return 0


@dataclass(frozen=True)
class Watch:
    run_dir: Annotated[str, tyro.conf.Positional]  # The folder of the run.
    member: int = 0  # Whose agent.
    best: bool = False  # The weights of its best evaluation instead of the last.
    seed: int = 0  # Of the episode; the same seed plays the same one.
    max_steps: int = 0  # Where an episode that does not end is left; 0 for as suits the environment.
    fps: int = 0  # Pictures in a second; 0 for as suits the environment.
    out: str = ""  # The moving picture's path, .gif or .mp4; by default watch.gif in the run folder.
    quiet: bool = False  # Write the picture only.


def watch_command(arguments: list[str]) -> int:
    options = parse(Watch, arguments, "rollax watch", "See a trained agent play: in the terminal, and as a GIF or MP4.")
    if options.max_steps < 0 or not 0 <= options.fps <= 60 or not 0 <= options.seed < 2**31:
        raise ConfigError("max_steps must not be negative, fps be in [0, 60], and seed in [0, 2147483647]")
    from rollax.reports.films import watch

    screen = sys.stdout if sys.stdout.isatty() and not options.quiet else None
    path, ending = watch(
        options.run_dir,
        member=options.member,
        best=options.best,
        seed=options.seed,
        most=options.max_steps,
        frames_per_second=options.fps,
        out=options.out or None,
        screen=screen,
    )
    print(told(ending))
    print(path)
    return 0


@dataclass(frozen=True)
class Play:
    env: Annotated[str, tyro.conf.Positional]  # The environment's name, or package.module:function.
    seed: int = 0  # The same seed is the same game.


def play_command(arguments: list[str]) -> int:
    options = parse(Play, arguments, "rollax play", "Play an environment yourself: a key for each action, Q to leave.")
    if not 0 <= options.seed < 2**32:
        raise ConfigError(f"seed={options.seed} must be in [0, 4294967295]")
    from rollax.reports.playing import play

    print(told(play(options.env, seed=options.seed)))
    return 0


def told(ending: Any) -> str:
    """How an episode ended, in a line."""
    facts = "".join(f", {name} {value}" for name, value in ending.info.items())
    return f"return {ending.total:.2f} after {ending.steps} steps{facts}"


@dataclass(frozen=True)
class Compare:
    what: Annotated[Literal["treasurehunt"], tyro.conf.Positional]  # The experiment that all modes run.
    epochs: int = 1_000  # Of the run from the beginning, whose returns are shown.
    agents: int = 5  # Players, each with a learner of its own.
    profile: Literal["corrected", "reference"] = "corrected"  # The learner, or the reference's with all its quirks.
    obs_timing: Literal["sequential", "simultaneous"] = "sequential"  # Players decide after, or before, others' moves.
    seed: int = 0  # The first seed.
    seeds: int = 1  # Runs from the beginning, in each mode.
    timed_epochs: int = 200  # Epochs of each timing at a fixed epsilon; 0 for none ...
    repeats: int = 3  # ... and how often it is repeated.
    modes: tuple[Literal["pytorch", "jax_sequential", "jax_parallel"], ...] = (
        "pytorch",
        "jax_sequential",
        "jax_parallel",
    )  # Which modes run.
    act_levels: int = 32  # Levels of the quantile network when it acts, the same in every mode.
    torch_device: Literal["cpu", "cuda"] = "cpu"  # Where PyTorch's networks are.
    out: str = ""  # The folder for bench.json and its picture; by default a new one below runs/.


def compare_command(arguments: list[str]) -> int:
    options = parse(
        Compare,
        arguments,
        "rollax compare",
        "One experiment in PyTorch, in JAX one agent after the other, and in JAX all at once, measured side by side.",
    )
    if "pytorch" in options.modes and importlib.util.find_spec("torch") is None:
        raise ConfigError("the mode pytorch needs PyTorch: pip install 'rollax[torch]', or leave it out of --modes")
    from rollax.experiment.experiment import make_experiment
    from rollax.runs.run import unused_folder
    from rollax.tools.comparison.measure import Protocol, compare

    preset = "irainbow/TreasureHunt-v0" + ("/reference" if options.profile == "reference" else "")
    experiment = make_experiment(
        "irainbow",
        env="TreasureHunt-v0",
        preset=preset,
        agents=options.agents,
        obs_timing=options.obs_timing,
        act_levels=options.act_levels,
        seed=options.seed,
    )
    protocol = Protocol(options.epochs, options.timed_epochs, options.repeats, options.seeds)
    folder = Path(options.out) if options.out else unused_folder("compare_treasurehunt")
    compare(experiment, folder, protocol, options.modes, options.torch_device, lambda line: print(line, flush=True))
    return 0


@dataclass(frozen=True)
class List:
    json: bool = False  # Print one JSON object.


def list_command(arguments: list[str]) -> int:
    options = parse(List, arguments, "rollax list", "Agents, environments and presets.")
    from rollax.agents.names import AGENTS
    from rollax.envs import registry
    from rollax.experiment.presets import PRESETS

    groups = {"agents": list(AGENTS), "environments": registry.names(), "presets": list(PRESETS)}
    if options.json:
        print(json.dumps(groups))
        return 0
    for title, names in groups.items():
        print(f"{title}:")
        for name in names:
            print(f"  {name}")
    return 0


@dataclass(frozen=True)
class CheckEnv:
    name: Annotated[str, tyro.conf.Positional]  # The environment's name, or package.module:function.
    steps: int = 200  # Random steps to take.


def check_env_command(arguments: list[str]) -> int:
    options = parse(CheckEnv, arguments, "rollax check-env", "See whether an environment keeps to the protocol.")
    from rollax.envs.check import check_environment

    for line in check_environment(options.name, options.steps):
        print(line)
    return 0


@dataclass(frozen=True)
class Doctor(Processes):
    json: bool = False  # Print one JSON object.
    distributed: bool = False  # Also take a mean over all processes, which must all be started.


def doctor_command(arguments: list[str]) -> int:
    options = parse(Doctor, arguments, "rollax doctor", "Versions, backend, devices and memory.")
    from rollax.runs.tables import machine

    try:
        with options.joined():
            facts = machine() | (mean_over_processes() if options.distributed else {})
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).splitlines() or ["there is no plugin for it"])[0]
        raise ResourceError(f"JAX cannot start its backend: {reason}") from error
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
    found = mean_of_processes()
    wanted = (count + 1) / 2
    return {
        "processes": count,
        "process": jax.process_index(),
        "pmean": f"{found:g} over {jax.device_count()} devices, {'right' if found == wanted else f'not {wanted:g}'}",
    }


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train_command,
    "sweep": sweep_command,
    "tune": tune_command,
    "resume": resume_command,
    "eval": eval_command,
    "plot": plot_command,
    "report": report_command,
    "export": export_command,
    "watch": watch_command,
    "play": play_command,
    "compare": compare_command,
    "bench": bench_command,
    "plan": plan_command,
    "inspect": inspect_command,
    "profile": profile_command,
    "list": list_command,
    "check-env": check_env_command,
    "doctor": doctor_command,
}
