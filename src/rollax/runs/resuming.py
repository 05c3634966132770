"""Which checkpoint a run goes on from, and whether it may."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollax import __version__
from rollax.errors import CheckpointError, ConfigError, NewerFormatError
from rollax.experiment.experiment import Experiment
from rollax.experiment.looking import modules_in
from rollax.experiment.tree import differences, leaves, to_json
from rollax.programs import cluster
from rollax.programs.plan import Plan
from rollax.runs import checkpoint
from rollax.runs.folder import RunFolder
from rollax.runs.trust import experiment_in

FIRST_VERSION = "0.1.0"  # which did not say in a checkpoint that it had written it
RESUMABLE_SINCE = (0, 4)  # the first version whose checkpoints hold the arrays of a run of today


def chosen_checkpoint(folder: RunFolder, *, restart: bool = False) -> tuple[Path | None, dict[str, Any]]:
    """The newest good checkpoint; of several processes the first chooses it, and sets damaged ones aside.

    None where the run begins: because nothing of it would be lost, or because of `restart`.
    """
    path, meta = first_choice(folder, restart) if folder.writes else (None, {})
    name = cluster.from_first(path.name if path else "")
    if folder.writes or not name:
        return path, meta
    path = folder.checkpoints / name
    return path, checkpoint.verify(path)


def first_choice(folder: RunFolder, restart: bool) -> tuple[Path | None, dict[str, Any]]:
    """The same in the process that writes.  CheckpointError where rows or damaged checkpoints would be left behind."""
    hint = f"`rollax resume {folder.path} --restart` begins again at step 0 and keeps the old rows beside"
    try:
        path, meta = folder.newest_good_checkpoint(aside=True)
    except NewerFormatError:
        raise
    except CheckpointError as error:
        if not restart:
            raise CheckpointError(f"{error}; {hint}") from error
        path, meta = None, {}
    if path is not None and restart:
        raise ConfigError(f"restart: {path} is whole; leave --restart out to go on from it")
    if path is not None:
        return path, meta
    if restart:
        return None, {}
    if folder.damaged_checkpoints():
        raise CheckpointError(f"{folder.checkpoints} has only damaged checkpoints; {hint}")
    if folder.has_rows() and not folder.never_saved():
        raise CheckpointError(f"{folder.path} has rows but no checkpoint; {hint}")
    return None, {}


def check_version(path: Path, meta: dict[str, Any], folder: RunFolder) -> None:
    """Refuses the checkpoint of a version that kept other arrays of a run."""
    version = meta.get("rollax", FIRST_VERSION)
    if not re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}(?:[.\w+-]{0,40})", version):
        raise CheckpointError(f"{path} does not name the version that wrote it")
    if tuple(map(int, version.split(".")[:2])) < RESUMABLE_SINCE:
        raise CheckpointError(
            f"{path} was written by rollax {version}, whose runs {__version__} cannot resume; eval, load and report "
            f"work, and --init-from {folder.path} starts a new run from its weights"
        )


def check_origin(
    path: Path, meta: dict[str, Any], config: dict[str, Any], read: Callable[[Any], Experiment] | None = None
) -> None:
    """Refuses the checkpoint of another experiment and names what differs.

    A field that was not yet there when the checkpoint was written has its usual value, as it has in `config.json`.
    The modules that `config.json` names are trusted by now; others are not imported, and with `read`, such as
    `looked_at`, none is.
    """
    if "config" not in meta:
        raise CheckpointError(f"{path} does not say which experiment it is of")
    strange = modules_in(meta["config"]).keys() - modules_in(config).keys()
    if strange:
        raise CheckpointError(f"{path} is of another experiment: config.json does not name its module {min(strange)}")
    try:
        recorded = read(meta["config"]) if read else experiment_in(meta["config"], path, trust=True)
    except ConfigError as error:
        raise CheckpointError(f"{path / checkpoint.META}: {error.problems[0]}") from error
    free = {".".join(leaf.path) for leaf in leaves(recorded) if leaf.about.resumable}
    differ = [line for line in differences(to_json(recorded), config) if line.split(":")[0] not in free]
    if differ:
        raise CheckpointError(f"{path} is of another experiment (checkpoint -> config.json): {'; '.join(differ)}")


def check_arrays(path: Path, plan: Plan, folder: RunFolder) -> None:
    """Refuses a checkpoint whose arrays have other names, before anything is compiled for it."""
    differ = sorted(checkpoint.stored_names(path) ^ checkpoint.names_of(saved_shapes(plan)))
    if differ:
        raise CheckpointError(
            f"{path} holds other arrays than this experiment has now, such as {differ[0]}: the agent has changed, "
            f"and the run cannot be resumed; --init-from {folder.path} starts a new one from its weights"
        )


def saved_shapes(plan: Plan) -> dict[str, Any]:
    """What a checkpoint of a run holds, as shapes."""
    return dict(zip(("train", "best"), plan.shapes(), strict=True))
