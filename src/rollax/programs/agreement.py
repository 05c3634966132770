"""Several processes run one experiment: they are the same before they begin, and learn the same."""

from __future__ import annotations

import json
from typing import Any

import jax

from rollax.errors import ConfigError, NumericError, RollaxError
from rollax.experiment.tree import differences
from rollax.programs import cluster
from rollax.programs.machine import versions


def check_agreement(config: dict[str, Any], **more: Any) -> None:
    """Raises ConfigError, in every process, where one would run something else than the first, and names the fields.

    Compared are the configuration, what is said beside it, versions, and the kind of device.  All must ask.
    """
    if jax.process_count() == 1:
        return
    device = jax.local_devices()[0]
    own = {**config, **more, "versions": versions(), "device": f"{device.platform} {device.device_kind}"}
    problems = disagreements([json.loads(text) for text in cluster.gathered(json.dumps(own))])
    if problems:
        raise by_all(ConfigError(problems))


def disagreements(told: list[dict[str, Any]]) -> list[str]:
    """What each process tells otherwise than the first, a line for each field."""
    return [
        f"process {index} differs from process 0 in {line} (process 0 -> process {index}); start all of them alike"
        for index, theirs in enumerate(told)
        for line in differences(told[0], theirs)
    ]


def check_weights(fingerprint: str, step: int) -> None:
    """Raises NumericError, in every process, where one has other weights than the first.  All must ask."""
    told = cluster.gathered(fingerprint)
    others = [str(index) for index, theirs in enumerate(told) if theirs != told[0]]
    if others:
        drifted = NumericError(
            f"process {' and '.join(others)} has other weights than process 0 at step {step:,}, which are not saved; "
            "look for code that differs, and continue from the last checkpoint with `rollax resume`"
        )
        raise by_all(drifted)


def by_all(error: RollaxError) -> RollaxError:
    """The error, of which is known that all processes raise it: they end together, and nobody is missed."""
    error.together = True
    return error
