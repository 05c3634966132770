"""Cells that remember: from the features of successive observations to features that know what came before.

A cell is two functions.  `project` is what does not depend on the past: it is computed for all steps at once.  `step`
mixes one step of that into the carry.  Stepping one by one and unrolling a rollout are the same call, so what is learnt
from is what acted.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from rollax.settings import COUNT, Limit, setting
from rollax.types import Array, Carry


def entered(initial: Carry, carry: Carry, fresh: Array) -> Carry:
    """The carry `[B, ...]` as it is at these observations: the initial one where an episode begins.

    Nothing else in the library clears one.
    """

    def cleared(start: Array, old: Array) -> Array:
        return jnp.where(fresh.reshape(fresh.shape + (1,) * (old.ndim - fresh.ndim)), start, old)

    return jax.tree.map(cleared, initial, carry)


class Recurrence(nn.Module):
    """What stands between torso and head.

    One of your own is a subclass with `initial_carry` and `step`, and mostly with `setup`.
    """

    remembers: ClassVar[bool] = True

    def initial_carry(self, num: int) -> Carry:
        """What it remembers where an episode begins, for so many environments: a tree of `[num, ...]`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method initial_carry(num)")

    def project(self, features: Array) -> Any:
        """What it takes from features `[T, B, D]` without the past: a tree of `[T, B, ...]`."""
        return features

    def step(self, carry: Carry, projected: Any) -> tuple[Carry, Array]:
        """The carry after one step `[B, ...]` of what `project` made, and features `[B, units]`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method step(carry, projected)")

    def __call__(self, carry: Carry, features: Array, fresh: Array) -> tuple[Carry, Array, Carry]:
        """Unrolls features `[T, B, D]`, of which `fresh` `bool[T, B]` are the first of an episode.

        Returns the carry after the last step, features `[T, B, units]`, and the carries after every step `[T, B, ...]`.
        """
        initial = self.initial_carry(fresh.shape[1])

        def step(cell: Recurrence, carry: Carry, inputs: tuple[Any, Array]) -> tuple[Carry, tuple[Array, Carry]]:
            projected, fresh = inputs
            carry, output = cell.step(entered(initial, carry, fresh), projected)
            return carry, (output, carry)

        unroll = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        carry, (outputs, carries) = unroll(self, carry, (self.project(features), fresh))
        return carry, outputs, carries


class NoRecurrence(Recurrence):
    """Nothing is remembered: an observation is all that is known."""

    remembers: ClassVar[bool] = False

    def initial_carry(self, num: int) -> Carry:
        return ()

    def __call__(self, carry: Carry, features: Array, fresh: Array) -> tuple[Carry, Array, Carry]:
        return carry, features, carry


def spread_bias(start: float, end: float) -> Any:
    """An initial bias that runs from one value to another over the units.

    With the gate of every unit half open at first, as usual, a hundred steps are forgotten before anything can be
    learnt of them.  Spread gates give some units a long memory from the beginning, and others a short one.
    """

    def values(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        del key
        return jnp.linspace(start, end, shape[-1], dtype=dtype)

    return values


def orthogonal_squares(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Initial weights `[units, count * units]`: orthogonal squares side by side, which keep the length of a carry.

    By Newton's iteration for the polar factor, and not by QR: LAPACK's in a batch of members hangs on machines of two
    cores (jaxlib 0.10.2), where it waits for the thread that it occupies.
    """
    units, count = shape[0], shape[1] // shape[0]
    drawn = jax.random.normal(key, (count, units, units), dtype) / (2 * units**0.5)  # no singular value is above 1

    def closer(_: Any, x: Array) -> Array:
        return 1.5 * x - 0.5 * x @ (jnp.swapaxes(x, 1, 2) @ x)

    squares = jax.lax.fori_loop(0, 40, closer, drawn)
    return jnp.moveaxis(squares, 0, 1).reshape(shape)


class GatedCell(Recurrence):
    """A cell whose gates say what is kept."""

    units: int = setting(128, "Number of units of the recurrent cell.", limit=COUNT, memory=True)
    gate_bias: float = setting(
        4.5,
        "Largest initial bias of the gates that keep the cell's state; a bias b keeps it for about e**b steps.",
        limit=Limit(0.0, 20.0),
        rare=True,
    )

    def initial_carry(self, num: int) -> Carry:
        return jnp.zeros((num, self.units), jnp.float32)


class GRU(GatedCell):
    """A gated recurrent unit (Cho et al. 2014), whose update gates begin with biases from 0 to `gate_bias`."""

    def setup(self) -> None:
        self.inputs = nn.Dense(3 * self.units, use_bias=False)
        self.keeping = self.param("keeping", spread_bias(0.0, self.gate_bias), (self.units,))
        self.biases = self.param("biases", nn.initializers.zeros, (2 * self.units,))
        self.past = nn.Dense(2 * self.units, use_bias=False, kernel_init=orthogonal_squares)
        self.past_candidate = nn.Dense(self.units, kernel_init=orthogonal_squares)

    def project(self, features: Array) -> Array:
        return self.inputs(features) + jnp.concatenate([self.keeping, self.biases])

    def step(self, carry: Array, projected: Array) -> tuple[Array, Array]:
        keep, reset, candidate = jnp.split(projected, 3, axis=-1)
        past_keep, past_reset = jnp.split(self.past(carry), 2, axis=-1)
        keep, reset = nn.sigmoid(keep + past_keep), nn.sigmoid(reset + past_reset)
        new = nn.tanh(candidate + reset * self.past_candidate(carry))
        carry = keep * carry + (1 - keep) * new
        return carry, carry


class LSTM(GatedCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997).

    The forget gates begin with biases from 0 to `gate_bias`, the input gates with the opposite ones: what is kept for
    long is filled slowly (Tallec and Ollivier 2018).
    """

    def initial_carry(self, num: int) -> tuple[Array, Array]:
        """What is remembered, and what was last shown of it."""
        return jnp.zeros((num, self.units), jnp.float32), jnp.zeros((num, self.units), jnp.float32)

    def setup(self) -> None:
        self.inputs = nn.Dense(4 * self.units, use_bias=False)
        self.keeping = self.param("keeping", spread_bias(0.0, self.gate_bias), (self.units,))
        self.adding = self.param("adding", spread_bias(0.0, -self.gate_bias), (self.units,))
        self.biases = self.param("biases", nn.initializers.zeros, (2 * self.units,))
        self.past = nn.Dense(4 * self.units, use_bias=False, kernel_init=orthogonal_squares)

    def project(self, features: Array) -> Array:
        return self.inputs(features) + jnp.concatenate([self.keeping, self.adding, self.biases])

    def step(self, carry: tuple[Array, Array], projected: Array) -> tuple[tuple[Array, Array], Array]:
        cell, shown = carry
        keep, add, show, new = jnp.split(projected + self.past(shown), 4, axis=-1)
        cell = nn.sigmoid(keep) * cell + nn.sigmoid(add) * nn.tanh(new)
        shown = nn.sigmoid(show) * nn.tanh(cell)
        return (cell, shown), shown


class MinGRU(GatedCell):
    """A GRU whose gates do not look at the past (Feng et al. 2024): cheaper, and a weaker memory."""

    def setup(self) -> None:
        self.inputs = nn.Dense(2 * self.units, use_bias=False)
        self.opening = self.param("opening", spread_bias(-self.gate_bias, 0.0), (self.units,))
        self.bias = self.param("bias", nn.initializers.zeros, (self.units,))

    def project(self, features: Array) -> tuple[Array, Array]:
        """What is kept of the carry, and what is added to it."""
        opened, new = jnp.split(self.inputs(features), 2, axis=-1)
        opened = nn.sigmoid(opened + self.opening)
        return 1 - opened, opened * (new + self.bias)

    def step(self, carry: Array, projected: tuple[Array, Array]) -> tuple[Array, Array]:
        kept, added = projected
        carry = kept * carry + added
        return carry, carry

    def __call__(self, carry: Array, features: Array, fresh: Array) -> tuple[Array, Array, Array]:
        """As any other; on a GPU all steps at once, which a CPU would be slower with."""
        if jax.default_backend() == "cpu" or fresh.shape[0] == 1 or self.is_initializing():
            return super().__call__(carry, features, fresh)
        kept, added = self.project(features)
        kept = jnp.where(fresh[..., None], 0.0, kept)

        def joined(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
            return first[0] * second[0], first[1] * second[0] + second[1]

        through, carries = jax.lax.associative_scan(joined, (kept, added))
        carries = carries + through * carry
        return carries[-1], carries, carries
