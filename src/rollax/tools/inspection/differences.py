"""What a transformation does to a small function of the agent: its jaxpr before and after."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from rollax.agents.base import Agent
from rollax.agents.players import Players
from rollax.errors import ConfigError
from rollax.programs.plan import Plan
from rollax.tracing import DATA
from rollax.types import Array, Observation

BATCH = 8


class Difference(NamedTuple):
    """A function's text before and after, and what has changed."""

    before: str
    after: str
    comments: list[str]

    @property
    def lines(self) -> list[str]:
        return list(
            difflib.unified_diff(
                self.before.splitlines(), self.after.splitlines(), "before", "after", lineterm="", n=99
            )
        )


def difference(plan: Plan, transformation: Literal["vmap", "shard_map"]) -> Difference:
    """What `vmap` or `shard_map` makes of the agent's view of one observation, or of a batch."""
    agent = plan.program.agent
    single = agent.agent if isinstance(agent, Players) else agent
    learner = one_learner(single, plan)
    params, obs = learner.params, single.spec.observation
    several = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((BATCH, *leaf.shape), leaf.dtype), obs)
    seen = view_of(single, learner)
    batched = jax.vmap(seen, in_axes=(None, 0))
    if transformation == "vmap":
        return compare(seen, (params, obs), batched, (params, several), f"one observation, then {BATCH} of them")

    def mean(params: Any, obs: Observation) -> Array:
        return jnp.mean(batched(params, obs))

    def shared(params: Any, obs: Observation) -> Array:
        return jax.lax.pmean(mean(params, obs), DATA)

    devices = jax.local_devices()
    count = max(number for number in range(1, len(devices) + 1) if BATCH % number == 0)
    mesh = Mesh(np.array(devices[:count]), (DATA,), axis_types=(AxisType.Auto,))
    spread = jax.shard_map(
        shared, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec(DATA)), out_specs=PartitionSpec(), check_vma=False
    )
    what = f"the mean over {BATCH} observations, then over {count} device{'s' if count > 1 else ''}"
    return compare(mean, (params, several), spread, (params, several), what)


def one_learner(agent: Agent, plan: Plan) -> Any:
    """A learner, as shapes."""
    hparams = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), plan.hparams)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(agent.init, key, hparams)[0]


def view_of(agent: Agent, learner: Any) -> Callable[[Any, Observation], Array]:
    """What the agent makes of one observation, with weights in place of those of a learner: its scores."""
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), learner._replace(params=()))

    def view(params: Any, obs: Observation) -> Array:
        alone = jax.tree.map(lambda leaf: leaf[None], obs)
        scores = agent.scores(blank._replace(params=params), agent.greedy_carry(1), alone, jnp.zeros(1, bool))
        if scores is None:
            raise ConfigError(f"diff: {type(agent).__name__} has no `scores` to show; leave --diff out")
        return scores[0]

    return view


def compare(before: Callable, old: tuple, after: Callable, new: tuple, what: str) -> Difference:
    first, second = jax.make_jaxpr(before)(*old), jax.make_jaxpr(after)(*new)
    counts = [Counter(operations(traced.jaxpr)) for traced in (first, second)]
    added, gone = counts[1] - counts[0], counts[0] - counts[1]
    weights = len(jax.tree.leaves(old[0]))
    same = all(a.aval.shape == b.aval.shape for a, b in zip(first.jaxpr.invars, second.jaxpr.invars, strict=True))
    comments = [
        f"# {what}",
        f"# operations: {counts[0].total()} before, {counts[1].total()} after"
        + (f"; added: {listed(added)}" if added else "; none was added")
        + (f"; gone: {listed(gone)}" if gone else ""),
        f"# the {weights} arrays of weights keep their shapes: "
        + ("every device has all of them" if same else "all observations share one product with each"),
    ]
    return Difference(str(first), str(second), comments)


def operations(jaxpr: Any) -> list[str]:
    """The names of all operations, those inside others included."""
    found = []
    for equation in jaxpr.eqns:
        found.append(equation.primitive.name)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += operations(inner)
    return found


def listed(counter: Counter) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(counter.items()))
