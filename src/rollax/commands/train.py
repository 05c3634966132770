"""The commands that train: `train`, `resume`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

import rollax
from rollax.commands.flags import ExperimentFlags, Processes, Trusting, parse, read_experiment, values_ahead
from rollax.commands.kept import HELP
from rollax.errors import Stopped
from rollax.settings import COUNT_OR_NONE, Limit, setting


@dataclass(frozen=True, kw_only=True)
class DebugFlags:
    debug: bool = setting(False, "Switch on --check, --debug-key-reuse and --check-leaks.", group="debugging")
    check: bool = setting(
        False,
        "Stop at the first NaN, division by zero or index out of bounds, and name its line; slow.",
        group="debugging",
    )
    jit: bool = setting(
        True,
        "Compile the program; without it, operations run one by one, for a few steps.",
        group="debugging",
        rare=True,
    )
    debug_key_reuse: bool = setting(
        False, "Look for random keys that are used twice, before anything runs.", group="debugging", rare=True
    )
    debug_nans: bool = setting(
        False, "Stop after a chunk that leaves a NaN behind, and look for its line.", group="debugging", rare=True
    )
    check_leaks: bool = setting(
        False, "Look for traced values that are kept where they must not be.", group="debugging", rare=True
    )
    debug_print: int = setting(
        0,
        "Number of iterations between prints of loss and return from inside the program; 0 prints none.",
        group="debugging",
        rare=True,
        limit=COUNT_OR_NONE,
    )

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
class TrainFlags(DebugFlags, Processes, ExperimentFlags):
    """What `rollax train` is told beside the experiment."""

    run_dir: str = setting("", "The folder of the run; by default a new one below runs/.", group="run")
    auto_tune: bool = setting(
        False, "Choose num_envs for this device, and say why; the result depends on it.", group="run", rare=True
    )
    quiet: bool = setting(False, "Print nothing but warnings.", group="run")


def train_command(arguments: list[str]) -> int:
    """`rollax train [AGENT] [flags]`."""
    say_first("loading JAX", arguments)
    experiment, options = read_experiment(arguments, TrainFlags, "train", TRAIN_HELP)
    from rollax.programs.machine import use_all_cores

    use_all_cores()
    with options.joined():
        if options.auto_tune:
            from rollax.programs.machine import use_compile_cache
            from rollax.tools.sizes import fit_to_device

            if options.compile_cache:
                use_compile_cache()  # what is compiled to be measured is what will run
            experiment, reason = fit_to_device(experiment)
            if not options.quiet:
                print(reason, flush=True)
        debug = options.debug_modes()
        return exit_code(
            rollax.train,
            experiment,
            options.run_dir or None,
            quiet=options.quiet,
            compile_cache=options.compile_cache,
            debug=debug,
        )


def say_first(line: str, arguments: list[str]) -> None:
    """What a person reads while JAX is imported, which takes longer than all else that is done before a run."""
    asked = dict(values_ahead(arguments))
    if "--quiet" in arguments or HELP.intersection(arguments) or asked.get("process_id", "0") != "0":
        return
    print(f"rollax {rollax.__version__}: {line} ...", flush=True)


def exit_code(run: Callable[..., rollax.Result], *arguments: Any, **options: Any) -> int:
    """How a run ends; one that a signal has stopped has told so itself."""
    try:
        return run(*arguments, **options).exit_code
    except Stopped as stopped:
        return stopped.exit_code


TRAIN_HELP = (
    "Train AGENT, a name that `rollax list` shows or package.module:RECIPE of your own. Several numbers for a "
    "hyper-parameter make a population of settings x seeds, all in one compiled program. The defaults are those of "
    "this agent in this environment."
)


@dataclass(frozen=True)
class Resume(Trusting, Processes):
    run_dir: Annotated[str, tyro.conf.Positional] = setting(help="The folder of the run.")
    steps: int = setting(
        0, "Number of steps of each member to extend a finished run to; 0 extends none.", limit=Limit(0, 2**53)
    )
    devices: int | None = setting(
        None,
        "Number of devices that share the work from here on, 0 for all that fit; by default as before.",
        limit=COUNT_OR_NONE,
    )
    restart: bool = setting(
        False, "Begin again at step 0 where every checkpoint is damaged or gone, and keep the old rows beside."
    )
    max_memory: str | None = setting(
        None, "The most memory that the run may take from here on, as in 4GiB; by default as before."
    )
    quiet: bool = setting(False, "Print nothing but warnings.")
    compile_cache: bool = setting(True, "Keep compiled programs on disk for the next run.")


def resume_command(arguments: list[str]) -> int:
    say_first("loading JAX", arguments)
    options = parse(Resume, arguments, "rollax resume", "Continue a run from its newest good checkpoint.")
    from rollax.programs.machine import use_all_cores

    use_all_cores()
    with options.joined():
        return exit_code(
            rollax.resume,
            options.run_dir,
            options.steps or None,
            devices=options.devices,
            max_memory=options.max_memory,
            restart=options.restart,
            quiet=options.quiet,
            compile_cache=options.compile_cache,
            trust=options.trust,
        )
