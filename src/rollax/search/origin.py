"""Whose search a folder or a study is: its experiment, its space, and how it is searched."""

from __future__ import annotations

import json
from typing import Any

from rollax import __version__
from rollax.errors import ConfigError
from rollax.experiment.experiment import Experiment
from rollax.experiment.tree import differences, leaves, to_json
from rollax.runs.reader import check_shape
from rollax.search.space import Space

Origin = dict[str, Any]  # plain data, as JSON gives it back
SHAPE = {"rollax": str, "experiment": dict, "space": dict, "search": dict}


def origin_of(experiment: Experiment, space: Space, **how: Any) -> Origin:
    """All that the scores of a search depend on."""
    searched = {dimension.name: dimension._asdict() for dimension in space.dimensions}
    found = {"rollax": __version__, "experiment": to_json(experiment), "space": searched, "search": how}
    return json.loads(json.dumps(found))


def check_origin(where: Any, recorded: Any, origin: Origin, experiment: Experiment) -> None:
    """Refuses the results of another search with what differs; CheckpointError for what is no origin at all.

    Where and how often it computes, saves and logs may differ: no score depends on it.
    """
    check_shape(recorded, SHAPE, f"{where} is damaged")
    free = {".".join(leaf.path) for leaf in leaves(experiment) if leaf.about.incidental and len(leaf.path) > 1}
    differ = [
        line
        for part in ("experiment", "space", "search")
        for line in differences(recorded[part], origin[part])
        if part != "experiment" or line.split(":")[0] not in free
    ]
    if differ:
        raise ConfigError(f"{where} is of another search (there -> here): {'; '.join(differ)}; name another folder")
