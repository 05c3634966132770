"""Which checkpoint a run goes on from, and whether it may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollax.errors import CheckpointError
from rollax.experiment.experiment import from_json
from rollax.experiment.tree import differences, leaves, to_json
from rollax.programs import cluster
from rollax.programs.plan import Plan
from rollax.runs import checkpoint
from rollax.runs.folder import RunFolder


def chosen_checkpoint(folder: RunFolder) -> tuple[Path | None, dict[str, Any]]:
    """The newest good checkpoint; of several processes the first chooses it, and sets damaged ones aside."""
    path, meta = folder.newest_good_checkpoint(set_aside=True) if folder.writes else (None, {})
    name = cluster.from_first(path.name if path else "")
    if folder.writes or not name:
        return path, meta
    path = folder.checkpoints / name
    return path, checkpoint.verify(path)


def check_origin(path: Path, meta: dict[str, Any], config: dict[str, Any]) -> None:
    """Refuses the checkpoint of another experiment and names what differs.

    A field that was not yet there when the checkpoint was written has its usual value, as it has in `config.json`.
    """
    recorded = from_json(meta["config"])
    free = {".".join(leaf.path) for leaf in leaves(recorded) if leaf.about.resumable}
    differ = [line for line in differences(to_json(recorded), config) if line.split(":")[0] not in free]
    if differ:
        raise CheckpointError(f"{path} is of another experiment (checkpoint -> config.json): {'; '.join(differ)}")


def check_arrays(path: Path, plan: Plan, folder: RunFolder) -> None:
    """Refuses a checkpoint whose arrays have other names, before anything is compiled for it."""
    differ = sorted(checkpoint.stored_names(path) ^ checkpoint.names_of(saved_shapes(plan)))
    if differ:
        summary = folder.read_summary() if folder.summary.exists() else {}
        version = summary.get("versions", {}).get("rollax", "nothing")
        raise CheckpointError(
            f"{path} holds other arrays than this experiment has now, such as {differ[0]}: it was written by another "
            f"version of rollax (it says {version}) or of the agent, and cannot be resumed; `rollax eval` plays it, "
            f"and --init-from {folder.path} starts from its weights"
        )


def saved_shapes(plan: Plan) -> dict[str, Any]:
    """What a checkpoint of a run holds, as shapes."""
    return dict(zip(("train", "best"), plan.shapes(), strict=True))
