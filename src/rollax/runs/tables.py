"""From what the programs return to the rows and numbers that a run folder holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rollax.experiment.experiment import Member
from rollax.experiment.tree import leaves, parts_of
from rollax.programs.evaluate import Evaluation
from rollax.programs.loop import WINDOW_COLUMNS, Health
from rollax.programs.machine import device_name, versions
from rollax.programs.plan import Plan
from rollax.programs.program import Chunk
from rollax.runs.checkpoint import params_sha256
from rollax.runs.files import METRIC_COLUMNS
from rollax.runs.reader import FORMAT
from rollax.tracing import fetch


def failures(plan: Plan, health: Health) -> dict[int, dict[str, Any]]:
    """The members that met a number that is not finite: where, and in which tensor."""
    causes, iterations = fetch((health.cause, health.iteration))
    if not causes.any():
        return {}
    watched = plan.program.loop.watched(plan.shapes()[0].learner)
    return {
        int(member): {
            "step": (int(iterations[member]) + 1) * plan.steps_per_iteration,
            "tensor": watched[causes[member] - 1],
        }
        for member in np.flatnonzero(causes)
    }


def metric_columns(plan: Plan) -> tuple[str, ...]:
    """Of metrics.csv."""
    return (*METRIC_COLUMNS, *plan.program.agent.metric_names, *plan.program.columns)


def metric_rows(
    plan: Plan, chunk: Chunk, start: int, wall: tuple[float, float], failed: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of metrics.csv for the windows that ended in a chunk that began with iteration `start`.

    `wall` are the seconds at which the chunk began and ended.  A member has no rows from the window on in which it
    failed.
    """
    rows, names, (began, ended) = [], plan.program.agent.metric_names, wall
    advanced, seconds = max(chunk.reached - start, 1), ended - began
    for window in chunk.windows:
        for member, (seed, _) in enumerate(plan.members):
            if member in failed and failed[member]["step"] <= window.step:
                continue
            sums = dict(zip((*WINDOW_COLUMNS, *names), window.sums[member], strict=True))
            episodes, learnt = sums["episodes"], sums["learnt"]
            rows.append(
                {
                    "step": window.step,
                    "member": member,
                    "seed": seed,
                    "wall_seconds": round(began + seconds * (window.end - start) / advanced, 3),
                    "steps_per_second": round(advanced * plan.steps_per_iteration * len(plan.members) / seconds),
                    "episodes": int(episodes),
                    "episode_return_mean": sums["return_sum"] / episodes if episodes else None,
                    "episode_length_mean": sums["length_sum"] / episodes if episodes else None,
                }
                | {name: sums[name] / learnt if learnt else None for name in names}
                | window.remarks
            )
    return rows


def evaluation_rows(
    plan: Plan, result: Evaluation, step: int, failed: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of evaluations.csv; a member that failed has none."""
    returns, lengths, truncated = (fetch(array).astype(np.float64) for array in result)
    return [
        {"step": step, "member": member, "seed": seed}
        | episode_statistics(returns[member], lengths[member], truncated[member])
        for member, (seed, _) in enumerate(plan.members)
        if member not in failed
    ]


def episode_statistics(returns: np.ndarray, lengths: np.ndarray, truncated: np.ndarray) -> dict[str, Any]:
    """What an evaluation's row says of one member's episodes."""
    return {
        "episodes": len(returns),
        "truncated": int(truncated.sum()),
        "return_mean": returns.mean(),
        "return_std": returns.std(),
        "return_min": returns.min(),
        "return_max": returns.max(),
        "length_mean": lengths.mean(),
    }


def summarize(
    plan: Plan,
    evaluations: list[dict[str, str]],
    status: str,
    step: int,
    times: dict[str, float],
    memory_bytes: int,
    params: Any,
    failed: dict[int, dict[str, Any]],
) -> dict[str, Any]:
    """The content of summary.json.  `params` are the weights of all members, or None before there are any."""
    last = {int(row["member"]): row for row in evaluations}
    members = []
    for member, (seed, hparams) in enumerate(plan.members):
        row = last.get(member, {}) if member not in failed else {}
        entry = {
            "member": member,
            "seed": seed,
            "hparams": hparams,
            "status": "failed" if member in failed else status if status != "failed" else "finished",
            "eval_return_mean": _finite(row.get("return_mean")),
            "eval_return_std": _finite(row.get("return_std")),
            "params_sha256": None,
        }
        if params is not None:
            entry["params_sha256"] = params_sha256(jax.tree.map(lambda leaf, i=member: leaf[i], params))
        if member in failed:
            entry["failure"] = failed[member]
        members.append(entry)
    train_seconds = times["train_seconds"]
    return {
        "format": FORMAT,
        "status": status,
        "agent": plan.experiment.agent,
        "env": plan.experiment.env,
        "total_steps": step,
        **{name: round(seconds, 3) for name, seconds in times.items()},
        "steps_per_second": round(step * len(members) / train_seconds) if train_seconds else None,
        "memory_bytes": memory_bytes or None,
        "device": device_name(),
        "versions": versions(),
        **({"protocol": plan.protocol} if plan.protocol else {}),
        "members": members,
    }


def member_settings(plan: Plan) -> list[dict[str, bool | str | float]]:
    """The settings of each member by their names: numbers as they are, all else as text."""
    experiment = plan.experiment
    given = [leaf for leaf in leaves(experiment) if leaf.value is not None and not leaf.about.incidental]
    plain = {
        leaf.name: leaf.value if isinstance(leaf.value, bool | str | int | float) else str(leaf.value) for leaf in given
    }
    common = {"env": experiment.env, **parts_of(experiment), **plain}
    return [common | member.hparams | {"seed": member.seed} for member in plan.members]


def bare_summary(
    members: Sequence[Member], evaluations: list[dict[str, str]], metrics: list[dict[str, str]]
) -> dict[str, Any]:
    """What the other files of a run still tell where its summary is damaged."""
    last = {row["member"]: row for row in evaluations}
    own = [
        {
            "member": number,
            "seed": member.seed,
            "hparams": member.hparams,
            "status": "unknown",
            "eval_return_mean": _finite(last.get(str(number), {}).get("return_mean")),
            "eval_return_std": _finite(last.get(str(number), {}).get("return_std")),
            "params_sha256": None,
        }
        for number, member in enumerate(members)
    ]
    seconds = dict.fromkeys(("wall_seconds", "compile_seconds", "train_seconds"), 0.0)
    steps = max((int(row["step"]) for row in metrics), default=0)
    beside = {"steps_per_second": None, "device": "unknown", "versions": {}}
    return {"status": "unknown", "total_steps": steps, **seconds, **beside, "members": own}


def protocol_line(protocol: dict[str, Any]) -> str:
    """What a score depends on beside the agent, in a line."""
    return "protocol: " + ", ".join(f"{name} {value}" for name, value in protocol.items())


def _finite(cell: str | None) -> float | None:
    return float(cell) if cell and math.isfinite(float(cell)) else None
