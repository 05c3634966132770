"""A run's programs as JAX and XLA have them: texts, compilations, costs, memory."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollax.programs.jit import Uncompiled
from rollax.programs.plan import Plan

COMPILED = "/jax/core/compile/backend_compile_duration"
NAMES = ("init", "warm_up", "advance", "evaluate")


@contextmanager
def own_cache_entries() -> Generator[None]:
    """Programs from the compilation cache then have the names of this source's scopes, and not an older one's."""
    name = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, name)
    jax.config.update(name, True)
    try:
        yield
    finally:
        jax.config.update(name, before)


class Compilation(NamedTuple):
    """A program that XLA was asked for, by the name of its function."""

    name: str
    seconds: float


@contextmanager
def compilations() -> Generator[list[Compilation]]:
    """Notes every compilation of the process while it is open; one that the cache answers counts as well."""
    found: list[Compilation] = []

    def note(event: str, duration_secs: float, **details: Any) -> None:
        if event == COMPILED:
            name = str(details.get("fun_name", "?")).removeprefix("jit(").rstrip(")")
            found.append(Compilation(name, duration_secs))

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def programs_of(plan: Plan) -> dict[str, Uncompiled]:
    """The four programs, not yet traced.  Raises ConfigError where there are none."""
    return plan.program.uncompiled(plan.keys, plan.hparams)


def count_of_a_run(plan: Plan) -> list[Compilation]:
    """Compiles a run and takes two chunks of different lengths of each kind and two evaluations; what was compiled."""
    program, block = plan.program, plan.program.block
    with compilations() as found, closing(program.compile(plan.keys, plan.hparams)) as running:
        state, best = running.begin(plan.keys, plan.hparams)
        for start in (0, plan.schedule.warm_up):  # without learning, and with it
            for blocks in (2, 3):
                state = running.advance_to(state, start + blocks * block).state
                _, best = running.evaluate(state, best)
        jax.block_until_ready(state)
    return [one for one in found if one.name in NAMES]


class Cost(NamedTuple):
    """What XLA says of a compiled program."""

    flops: float  # the body of each loop counted once
    bytes_accessed: float
    argument_bytes: int
    output_bytes: int
    alias_bytes: int  # of the outputs, in the place of donated arguments
    temporary_bytes: int

    @property
    def peak_bytes(self) -> int:
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.temporary_bytes


def cost_of(compiled: Any) -> Cost:
    analysis, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    sizes = (
        getattr(memory, f"{name}_size_in_bytes", 0) if memory else 0 for name in ("argument", "output", "alias", "temp")
    )
    return Cost(float(analysis.get("flops", 0)), float(analysis.get("bytes accessed", 0)), *sizes)


def flops_of_iteration(plan: Plan) -> dict[str, float]:
    """Floating-point operations of one iteration of all members, in matrix products and elsewhere.

    Counted in the jaxpr, where a loop of known length counts as often as it runs; one number of an elementwise
    operation's result is one operation.
    """
    loop, (state, _) = plan.program.loop, plan.shapes()
    if plan.grid.data > 1:
        return {}
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:] if leaf.ndim else (), leaf.dtype), state)
    one = one._replace(memory=jax.eval_shape(lambda key, hp: loop.init(key, hp), *_first(plan)).memory)
    traced = jax.make_jaxpr(lambda state: loop.iteration(state, learn=True))(one)
    products, others = _flops(traced.jaxpr)
    members = len(plan.members)
    return {"products": products * members, "others": others * members}


def _first(plan: Plan) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (plan.keys, plan.hparams))


def _flops(jaxpr: Any) -> tuple[float, float]:
    products = others = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inner = [_flops(getattr(sub, "jaxpr", sub)) for sub in _inside(params)]
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            left, out = equation.invars[0].aval, equation.outvars[0].aval
            products += 2.0 * math.prod(out.shape) * math.prod(left.shape[axis] for axis in contracted)
        elif inner:
            times = params.get("length", 1) if name == "scan" else 1
            chosen = [max(inner)] if name == "cond" else inner
            products += times * sum(one for one, _ in chosen)
            others += times * sum(other for _, other in chosen)
        else:
            floats = [v.aval for v in equation.outvars if jnp.issubdtype(v.aval.dtype, jnp.floating)]
            others += 0.0 if name in MOVES else sum(math.prod(aval.shape) for aval in floats)
    return products, others


# What moves numbers, and computes none.
MOVES = {
    "broadcast_in_dim", "reshape", "transpose", "squeeze", "slice", "dynamic_slice", "dynamic_update_slice", "gather",
    "scatter", "concatenate", "convert_element_type", "copy", "copy_p", "select_n", "iota", "rev", "pad", "split",
    "bitcast_convert_type", "stop_gradient",
}  # fmt: skip


def _inside(params: dict[str, Any]) -> list[Any]:
    values = [item for value in params.values() for item in (value if isinstance(value, tuple | list) else (value,))]
    return [value for value in values if hasattr(getattr(value, "jaxpr", value), "eqns")]
