"""Configuration files of version 0.1 and before, in which all hyper-parameters lay beside one another."""

from __future__ import annotations

from typing import Any

# The numbers that went into each slot: those of the usual part, then of the one that has a number more or another.
MOVED: dict[str, dict[str, tuple[str, ...]]] = {
    "exploration": {
        "linear": ("epsilon_start", "epsilon_end", "epsilon_steps"),
        "shrinking": ("epsilon_start", "epsilon_end", "epsilon_decay"),
    },
    "target": {
        "periodic": ("target_period", "target_step"),
        "synced": ("target_period", "target_step", "sync_period"),
    },
    "objective": {"mean": (), "weighted": ("loss_weight",)},
}
# Values with which such a number did nothing, so that the usual part serves.
IDLE = {"epsilon_decay": 0.0, "sync_period": 0, "loss_weight": 1.0}


def regrouped(hparams: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters of a file as parts hold them; those of a newer file come back as they are."""
    numbers = dict(hparams)
    for slot, kinds in MOVED.items():
        names = {name for fields in kinds.values() for name in fields}
        old = {name: numbers.pop(name) for name in names & numbers.keys()}
        if not old:
            continue
        usual, other = kinds
        busy = any(old[name] != idle for name, idle in IDLE.items() if name in old)
        part = other if busy else usual
        numbers[slot] = {"part": part} | {name: old[name] for name in kinds[part] if name in old}
    return numbers
