"""Where trained weights come from: the checkpoints of a run folder, or the zoo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rollax.errors import CheckpointError, ConfigError
from rollax.experiment.experiment import Experiment, from_json, population
from rollax.experiment.looking import looked_at
from rollax.experiment.tree import to_json
from rollax.programs.loop import leaf_name
from rollax.runs import checkpoint, zoo
from rollax.runs.folder import RunFolder
from rollax.runs.resuming import check_origin
from rollax.types import Params


class Weights(Protocol):
    def __call__(self, like: Params, *, best: bool) -> Params: ...


class Source(NamedTuple):
    """What was trained, for how many steps, and what came of it."""

    experiment: Experiment
    steps: int
    weights: Weights  # of all members, the last or those of their best evaluation, in the shapes of `like`


def source_of(where: str | Path, *, trust: bool = False) -> Source:
    """The weights that a run folder holds, or an entry of the zoo by its name."""
    if zoo.is_named(where):
        return zoo_source(zoo.entry(where))
    folder = RunFolder(where)
    return run_source(folder, folder.read_experiment(trust=trust))


def run_source(folder: RunFolder, experiment: Experiment) -> Source:
    path, meta = existing_checkpoint(folder, experiment)
    return Source(experiment, meta["step"], lambda like, *, best: stored_params(path, like, best=best))


def zoo_source(entry: zoo.Entry) -> Source:
    """An entry has one kind of weights; they are brought to the data types of an experiment."""
    where = str(entry.folder / zoo.WEIGHTS)

    def weights(like: Params, *, best: bool) -> Params:
        del best
        dtypes = {leaf_name(path): leaf.dtype for path, leaf in jax.tree_util.tree_leaves_with_path(like)}
        found = entry.arrays().items()
        stored = {
            path: array[None].astype(dtypes.get(path, array.dtype)) for path, array in found
        }  # of its only member
        return checkpoint.unflatten(stored, like, where)

    return Source(from_json(entry.config), entry.card["steps"], weights)


def experiment_of(where: str | Path, *, trust: bool = False) -> Experiment:
    """What was trained, without its weights."""
    if zoo.is_named(where):
        return from_json(zoo.entry(where).config)
    return RunFolder(where).read_experiment(trust=trust)


def existing_checkpoint(
    folder: RunFolder, experiment: Experiment, read: Callable[[Any], Experiment] | None = None
) -> tuple[Path, dict[str, Any]]:
    """The newest good checkpoint of an experiment.  CheckpointError where there is none, or where it is another's."""
    path, meta = folder.newest_good_checkpoint()
    if path is None:
        raise CheckpointError(f"{folder.path} has no checkpoint yet")
    check_origin(path, meta, to_json(experiment), read)
    return path, meta


def stored_params(path: Path, like: Params, *, best: bool) -> Params:
    """The weights of all members: the last, or those of their best evaluation, if there was one by then."""
    last = checkpoint.restore(path, like, "train/learner/params")
    if not best:
        return last
    members = jax.tree.leaves(like)[0].shape[0]
    score = checkpoint.restore(path, jax.ShapeDtypeStruct((members,), jnp.float32), "best/score")
    if np.isinf(score).any():
        return last
    return checkpoint.restore(path, like, "best/params")


def starting_weights(where: str, members: int, like: Params) -> Params:
    """The best weights of another run, member by member, or those of its only member, or of the zoo, for all."""
    if zoo.is_named(where):
        source, theirs = zoo_source(zoo.entry(where)), 1
    else:
        folder = RunFolder(where)
        described = folder.read_description()
        theirs = len(population(described))
        if theirs not in (1, members):
            raise ConfigError(f"init_from={where} has {theirs} members; it needs 1 or {members}")
        path, _ = existing_checkpoint(folder, described, looked_at)
        source = Source(described, 0, lambda like, *, best: stored_params(path, like, best=best))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((theirs, *leaf.shape[1:]), leaf.dtype), like)
    params = source.weights(shapes, best=True)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise CheckpointError(f"init_from={where}: its weights are not all finite; begin from another run")
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (members, *leaf.shape[1:])), params)
