"""How much memory a program will need beside its arguments, from its jaxpr: before it is compiled.

The model is that of a compiler which fuses: what is computed element by element is not stored, unless something that is
not fused reads it.  What is stored lives from where it is computed to where it is last read.  Loops, updates and
what is computed element by element write in place where nobody reads the old value later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend import core

# Computed where it is read, unless it is read twice and is not cheap; everything else is stored.
CHEAP = {
    "and", "bitcast_convert_type", "broadcast_in_dim", "convert_element_type", "copy", "eq", "expand_dims", "ge", "gt",
    "iota", "is_finite", "le", "lt", "ne", "neg", "not", "or", "random_unwrap", "random_wrap", "reshape", "rev",
    "slice", "squeeze", "stop_gradient", "transpose", "xor",
}  # fmt: skip
FUSED = CHEAP | {
    "abs", "add", "add_any", "atan2", "cbrt", "ceil", "clamp", "concatenate", "cos", "div", "dynamic_slice", "erf",
    "exp", "exp2", "expm1", "floor", "integer_pow", "log", "log1p", "logistic", "max", "min", "mul", "nextafter", "pad",
    "population_count", "pow", "pvary", "random_bits", "real", "rem", "round", "rsqrt", "select_and_n", "select_n",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sqrt", "square", "sub", "tan",
    "tanh",
}  # fmt: skip
REDUCING = frozenset(
    {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"}
)
IN_PLACE = frozenset({"dynamic_update_slice", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"})
LOOPS = frozenset({"scan", "while"})


class Step(NamedTuple):
    """An operation of a program from which all calls have been taken out."""

    name: str
    fuses: bool  # what it reads need not be stored for it
    reads: list[Any]
    writes: list[Any]
    inner: int  # bytes that what is inside needs beside what it reads and writes
    carried: dict[int, Any]  # of what is written, by its place: the value that it may replace


def temporary_bytes(jaxpr: Any, carried: Iterable[Any] = ()) -> int:
    """The most bytes that a program has to hold at once beside its arguments, and what replaces these.

    In a loop's body those that it carries, which may be written over as soon as nobody reads them.
    """
    outputs: list[Any] = []
    steps = list(steps_of(jaxpr, {}, outputs))
    read_by: dict[Any, list[Step]] = {}
    for step in steps:
        for value in step.reads:
            read_by.setdefault(value, []).append(step)
    kept = set(outputs)
    stored: dict[Any, frozenset[Any]] = {}  # of each value, the stored ones that it is computed from
    for step in steps:
        sources = frozenset().union(*(stored.get(value, frozenset({value})) for value in step.reads))
        for value in step.writes:
            fused = step.name in FUSED and value not in kept
            readers = read_by.get(value, [])
            fused = fused and all(reader.fuses for reader in readers)
            fused = fused and (len(readers) < 2 or step.name in CHEAP)
            stored[value] = sources if fused else frozenset({value})
    last: dict[Any, int] = {}
    for index, step in enumerate(steps):
        for value in step.reads:
            for source in stored.get(value, frozenset({value})):
                last[source] = index
    for value in outputs:
        for source in stored.get(value, frozenset({value})):
            last[source] = len(steps)
    arguments, live, most = set(jaxpr.invars) | set(jaxpr.constvars), 0, 0
    held: dict[Any, int] = dict.fromkeys(carried, 0)
    dies: dict[int, list[Any]] = {}
    for value, index in last.items():
        dies.setdefault(index, []).append(value)
    for index, step in enumerate(steps):
        for place, value in enumerate(step.writes):
            if stored[value] != frozenset({value}):
                continue
            before = step.carried.get(place)
            replaced = next(iter(stored.get(before, frozenset({before})))) if before is not None else None
            if before is None and step.name in FUSED:
                read = (source for one in step.reads for source in stored.get(one, frozenset({one})))
                dying = (one for one in read if one in held and last.get(one, -1) == index)
                replaced = next((one for one in dying if size_of(one) == size_of(value)), None)
            if replaced is not None and last.get(replaced, -1) == index and (replaced in held or replaced in arguments):
                held[value] = held.pop(replaced, 0)
                arguments.discard(replaced)
                continue
            held[value] = size_of(value)
            live += held[value]
        most = max(most, live + step.inner)
        for value in dies.get(index, []):
            live -= held.pop(value, 0)
        for value in step.writes:
            if value not in last:
                live -= held.pop(value, 0)
    return most


class Value:
    """A variable of one call of a function that may be called several times."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval


NUMBER = Value(None)  # a literal


def steps_of(jaxpr: Any, names: dict[Any, Any], outputs: list[Any]) -> Iterator[Step]:
    """The operations in order, those of plain calls in their place; fills `outputs` with what the program returns."""

    def known(atom: Any) -> Any:
        return NUMBER if isinstance(atom, core.Literal) else names.get(atom, atom)

    for equation in jaxpr.eqns:
        reads = [known(atom) for atom in equation.invars]
        body = called(equation)
        if body is not None:
            inside = {var: known(atom) for var, atom in zip(body.invars, equation.invars, strict=True)}
            returned: list[Any] = []
            yield from steps_of(body, inside, returned)
            names.update(zip(equation.outvars, returned, strict=True))
            continue
        writes = [Value(var.aval) for var in equation.outvars]
        names.update(zip(equation.outvars, writes, strict=True))
        name = equation.primitive.name
        yield Step(
            name, fuses_operands(equation), reads, writes, inner_bytes(equation), carried_by(equation, name, known)
        )
    outputs += [known(atom) for atom in jaxpr.outvars]


def fuses_operands(equation: Any) -> bool:
    """Whether an equation computes what it reads on the way; a CPU's sum over a leading axis does not."""
    if equation.primitive.name not in REDUCING:
        return equation.primitive.name in FUSED
    return jax.default_backend() != "cpu" or equation.invars[0].aval.ndim - 1 in equation.params["axes"]


def called(equation: Any) -> Any:
    """The function that an equation calls once, as if it were written there; None of any other equation."""
    if equation.primitive.name in LOOPS or equation.primitive.name in ("cond", "shard_map", "pure_callback"):
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr", "call"):
        inner = equation.params.get(name)
        body = getattr(inner, "jaxpr", inner)
        if body is not None and len(body.invars) == len(equation.invars) and not body.constvars:
            return body
    return None


def inner_bytes(equation: Any) -> int:
    """What the bodies of an equation need, of which one runs at a time; on a mesh, every device has its own."""
    bodies = [leaf for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr) if is_jaxpr(leaf)]
    plain = [getattr(body, "jaxpr", body) for body in bodies]
    most = max((temporary_bytes(body, carried_into(equation, body)) for body in plain), default=0)
    mesh = equation.params.get("mesh") if equation.primitive.name == "shard_map" else None
    return most * (mesh.size if mesh is not None else 1)


def carried_into(equation: Any, body: Any) -> list[Any]:
    """The arguments of a loop's body that the loop carries from one pass to the next; of no loop, none."""
    if equation.primitive.name == "scan":
        first, count = scan_counts(equation)
        return body.invars[first : first + count]
    if equation.primitive.name == "while" and len(body.outvars) == len(equation.outvars):
        return body.invars[equation.params["body_nconsts"] :]
    return []


def scan_counts(equation: Any) -> tuple[int, int]:
    """How many arguments of a scan are constants, and how many are carried; JAX 0.11 says it in another way."""
    if "ft_in" in equation.params:
        constants, carried, _ = equation.params["ft_in"].unpack()
        return len(constants), len(carried)
    return equation.params["num_consts"], equation.params["num_carry"]


def is_jaxpr(leaf: Any) -> bool:
    return isinstance(leaf, core.Jaxpr | core.ClosedJaxpr)


def carried_by(equation: Any, name: str, known: Any) -> dict[int, Any]:
    """Of what an equation writes, by its place, what it may write over."""
    if name in IN_PLACE:
        return {0: known(equation.invars[0])}
    if name == "scan":
        first, count = scan_counts(equation)
    elif name == "while":
        first = equation.params["cond_nconsts"] + equation.params["body_nconsts"]
        count = len(equation.outvars)
    else:
        return {}
    carried = equation.invars[first : first + count]
    return {place: known(atom) for place, atom in enumerate(carried)}


def size_of(value: Any) -> int:
    aval = value.aval
    if not hasattr(aval, "shape"):
        return 0
    count = 1
    for length in aval.shape:
        count *= length
    return count * getattr(aval.dtype, "itemsize", 4)
