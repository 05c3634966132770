"""Deep reinforcement learning in JAX where a whole training run, environments included, is one compiled program.

`make_experiment` says what a run is, `train` and `resume` do it, `load` gives back a trained policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.4.0"

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rollax.agents.names import JAXIQN
    from rollax.envs.check import check_env
    from rollax.errors import Interrupted, Preempted, RollaxError
    from rollax.experiment.experiment import Experiment, make_experiment
    from rollax.programs.debugging import Debug
    from rollax.runs.loggers import STOP, OnRows
    from rollax.runs.result import Policy, Result, load
    from rollax.types import Observation

# Heavy packages are imported where a name is first used, so that `import rollax` takes no time.
_HOME = {
    "JAXIQN": "rollax.agents.names",
    "Experiment": "rollax.experiment.experiment",
    "Interrupted": "rollax.errors",
    "Observation": "rollax.types",
    "Policy": "rollax.runs.result",
    "Preempted": "rollax.errors",
    "Result": "rollax.runs.result",
    "RollaxError": "rollax.errors",
    "STOP": "rollax.runs.loggers",
    "check_env": "rollax.envs.check",
    "make_experiment": "rollax.experiment.experiment",
    "load": "rollax.runs.result",
}
__all__ = [
    "JAXIQN",
    "STOP",
    "Experiment",
    "Interrupted",
    "Observation",
    "Policy",
    "Preempted",
    "Result",
    "RollaxError",
    "check_env",
    "load",
    "make_experiment",
    "resume",
    "train",
]


def train(
    experiment: Experiment,
    run_dir: str | Path | None = None,
    *,
    quiet: bool = False,
    compile_cache: bool = True,
    on_rows: OnRows | None = None,
    debug: Debug | None = None,
) -> Result:
    """Runs an experiment in a new folder.  Whatever is wrong with it is raised before anything is compiled.

    Without `run_dir` the folder is a new one below `runs/`.  `on_rows(kind, rows)` is told of new rows of metrics.csv
    ("train") and evaluations.csv ("eval") as they come; if it returns `rollax.STOP`, the run is saved and ends.
    `debug` looks for mistakes.
    After Ctrl-C or SIGTERM the run is saved, and `Interrupted` or `Preempted` is raised.
    """
    from rollax.programs.debugging import NO_DEBUG
    from rollax.reports.drawing import CURVES
    from rollax.runs import run
    from rollax.runs.result import not_stopped

    return not_stopped(
        run.train(
            experiment,
            run_dir,
            quiet=quiet,
            compile_cache=compile_cache,
            on_rows=on_rows,
            debug=debug or NO_DEBUG,
            draw=CURVES,
        )
    )


def resume(
    run_dir: str | Path,
    steps: int | None = None,
    *,
    devices: int | None = None,
    max_memory: str | None = None,
    restart: bool = False,
    quiet: bool = False,
    compile_cache: bool = True,
    on_rows: OnRows | None = None,
    trust: bool = False,
    env: Any = None,
    schedules: Mapping[str, Any] | None = None,
) -> Result:
    """Continues a run from its newest good checkpoint, or extends a finished one to `steps`.

    A run that has lost its checkpoints begins again only with `restart`, which keeps the old rows beside.
    The number of devices may be another than before: what was learnt goes on, with other random numbers.
    Modules that the run names are imported if they are installed, if a run of yours has imported them, or with `trust`.
    A run whose environment was an object needs it again: `env`.  One that followed a function which cannot be imported
    by a name needs that again: `schedules` has it, or several of a population, by the setting's name.
    """
    from rollax.envs.given import hand_over
    from rollax.experiment.tree import hand_over_schedules
    from rollax.reports.drawing import CURVES
    from rollax.runs import run
    from rollax.runs.folder import RunFolder
    from rollax.runs.result import not_stopped

    if env is not None:
        hand_over(str(RunFolder(run_dir).read_config().get("env")), env)
    if schedules:
        hand_over_schedules(RunFolder(run_dir).read_description(), schedules)
    return not_stopped(
        run.resume(
            run_dir,
            steps,
            devices=devices,
            max_memory=max_memory,
            restart=restart,
            quiet=quiet,
            compile_cache=compile_cache,
            on_rows=on_rows,
            draw=CURVES,
            trust=trust,
        )
    )


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rollax' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
