"""Deep reinforcement learning in JAX where a whole training run, environments included, is one compiled program.

`make_experiment` says what a run is, `train` and `resume` do it, `load` gives back a trained policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rollax.experiment.experiment import Experiment, make_experiment
    from rollax.runs.result import Policy, Result, load
    from rollax.runs.run import resume, train
    from rollax.types import Observation

# Heavy packages are imported where a name is first used, so that `import rollax` takes no time.
_HOME = {
    "Experiment": "rollax.experiment.experiment",
    "Observation": "rollax.types",
    "Policy": "rollax.runs.result",
    "Result": "rollax.runs.result",
    "make_experiment": "rollax.experiment.experiment",
    "load": "rollax.runs.result",
    "resume": "rollax.runs.run",
    "train": "rollax.runs.run",
}
__all__ = [
    "Experiment",
    "Observation",
    "Policy",
    "Result",
    "load",
    "make_experiment",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rollax' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
