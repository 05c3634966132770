"""Above the torso: noisy layers, streams, heads, and the whole networks that agents are made of.

A pass draws what is random in it anew: the noise of noisy layers from the key `noise`, the levels of implicit
quantiles from the key `levels`.  Without keys it is the mean network, the same every time.  Both can also be given:
a pass is then a pure function of weights, features, noise and levels.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from rollax.networks.recurrence import NoRecurrence, Recurrence
from rollax.networks.torsos import Torso
from rollax.networks.weights import orthogonal
from rollax.rules.returns import Categorical, Quantiles, Rescaled, ReturnDistribution, Scalar
from rollax.settings import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, Limit, setting
from rollax.types import Array, Carry


class NoisyDense(nn.Module):
    """A dense layer whose weights are spread by noise around means that are learnt (Fortunato et al. 2018).

    `factorised` noise is an outer product of noise for inputs and for outputs, `independent` noise has a number for
    each weight.  Means and spreads start as in the paper.
    """

    features: int
    noise: str
    noise_scale: float

    def noise_size(self, inputs: int) -> int:
        """How many standard normal numbers one pass takes."""
        return inputs + self.features if self.noise == "factorised" else (inputs + 1) * self.features

    @nn.compact
    def __call__(self, x: Array, normals: Array | None) -> Array:
        """Without `normals`, as many as `noise_size` says, the layer of the means."""
        inputs, outputs = x.shape[-1], self.features
        factorised = self.noise == "factorised"
        reach = math.sqrt((1 if factorised else 3) / inputs)
        # The paper's spread of independent noise, 0.017, at its scale of 0.5.
        spread = self.noise_scale / math.sqrt(inputs) if factorised else 0.034 * self.noise_scale

        def mean(key: Any, shape: tuple[int, ...]) -> Array:
            return jax.random.uniform(key, shape, minval=-reach, maxval=reach)

        kernel, bias = self.param("kernel", mean, (inputs, outputs)), self.param("bias", mean, (outputs,))
        constant = nn.initializers.constant(spread)
        kernel_spread = self.param("kernel_spread", constant, (inputs, outputs))
        bias_spread = self.param("bias_spread", constant, (outputs,))
        if normals is None:
            return x @ kernel + bias
        of_weights, of_outputs = normals[:-outputs], normals[-outputs:]
        if factorised:
            of_weights, of_outputs = signed_root(of_weights)[:, None], signed_root(of_outputs)
            of_weights = of_weights * of_outputs
        return x @ (kernel + kernel_spread * of_weights.reshape(inputs, outputs)) + bias + bias_spread * of_outputs


def signed_root(x: Array) -> Array:
    """The root of the size, with the sign."""
    return jnp.sign(x) * jnp.sqrt(jnp.abs(x))


class Streams(nn.Module):
    """From features to numbers for each action; dueling adds a state's value to centred advantages."""

    dueling: bool = setting(False, "Use a dueling network: a state value and the advantages of its actions.")
    shared_hidden: int = setting(
        0,
        "Number of units of a hidden layer before a dueling network's streams part; 0 leaves it out.",
        limit=COUNT_OR_NONE,
        rare=True,
    )
    stream_hidden: int = setting(
        0,
        "Number of units of the hidden layer in each stream of the network's last layers; 0 leaves it out.",
        limit=COUNT_OR_NONE,
        rare=True,
    )
    noise: Literal["none", "factorised", "independent"] = setting(
        "none",
        "Kind of noise in the weights of the last layers, which explores; none leaves exploration to epsilon.",
        group="exploration",
        rare=True,
    )
    noise_scale: float = setting(
        0.5,
        "Initial standard deviation of noisy linear layers, before it is divided by the root of their inputs.",
        limit=NOT_NEGATIVE,
        group="exploration",
        rare=True,
    )

    @nn.compact
    def __call__(self, x: Array, num_actions: int, width: int, normals: Array | None = None) -> Array:
        """Features `[B, D]` to `[B, num_actions, width]`; `normals` are the noise of all layers, in turn."""
        outputs = {"advantage": num_actions} | ({"value": 1} if self.dueling else {})
        inputs = self.shared_hidden or x.shape[-1]
        sizes = {"shared": (x.shape[-1], self.shared_hidden)} if self.shared_hidden else {}  # inputs and units
        for name, count in outputs.items():
            if self.stream_hidden:
                sizes[f"{name}_hidden"] = inputs, self.stream_hidden
            sizes[name] = self.stream_hidden or inputs, count * width
        layers = self.noisy_layers(sizes, normals) if self.noise != "none" else self.plain_layers(sizes)
        x = nn.relu(layers["shared"](x)) if self.shared_hidden else x

        def stream(name: str) -> Array:
            inner = nn.relu(layers[f"{name}_hidden"](x)) if self.stream_hidden else x
            return layers[name](inner).reshape(-1, outputs[name], width)

        advantage = stream("advantage")
        if not self.dueling:
            return advantage
        return stream("value") + advantage - jnp.mean(advantage, axis=1, keepdims=True)

    def plain_layers(self, sizes: dict[str, tuple[int, int]]) -> dict[str, Callable[[Array], Array]]:
        return {name: nn.Dense(units, name=name) for name, (_, units) in sizes.items()}

    def noisy_layers(
        self, sizes: dict[str, tuple[int, int]], normals: Array | None
    ) -> dict[str, Callable[[Array], Array]]:
        made = {name: NoisyDense(units, self.noise, self.noise_scale, name=name) for name, (_, units) in sizes.items()}
        parts: list[Array | None] = [None] * len(made)
        counts = [made[name].noise_size(inputs) for name, (inputs, _) in sizes.items()]
        if normals is None and self.has_rng("noise"):
            # One draw for all layers: each draw of its own would be a hundred lines more to compile.  It is of whole
            # vectors: XLA draws an odd number of numbers one by one on a CPU, which takes five times as long.
            normals = jax.random.normal(self.make_rng("noise"), (-(-sum(counts) // 64) * 64,))
        if normals is not None:
            parts = [*jnp.split(normals[: sum(counts)], list(itertools.accumulate(counts))[:-1])]
        return {
            name: functools.partial(layer, normals=part)
            for (name, layer), part in zip(made.items(), parts, strict=True)
        }


class Head(nn.Module):
    """Says what the return of each action is made of.

    Called with features `[B, D]`, the streams and the number of actions, it gives a `ReturnDistribution`; with the
    streams' noise and the levels `[B, N]` of its quantiles, if it has any, for those.
    """

    hides_nans: ClassVar[bool] = False  # its loss makes NaNs that it does not use

    def problems(self) -> list[str]:
        """What is wrong with its numbers."""
        return []


class ScalarHead(Head):
    """One number for each action: its expected return."""

    def __call__(
        self, x: Array, streams: Streams, num_actions: int, noise: Array | None = None, levels: Array | None = None
    ) -> ReturnDistribution:
        return Scalar(streams(x, num_actions, 1, noise)[..., 0])


class RescaledHead(Head):
    """One number for each action on a scale that grows like its root: for returns of very different sizes."""

    def __call__(
        self, x: Array, streams: Streams, num_actions: int, noise: Array | None = None, levels: Array | None = None
    ) -> ReturnDistribution:
        return Rescaled(streams(x, num_actions, 1, noise)[..., 0])


class CategoricalHead(Head):
    """Probabilities on a fixed support for each action (C51, Bellemare et al. 2017)."""

    atoms: int = setting(51, "Number of atoms of the categorical return distribution.", limit=Limit(2, 100_000))
    value_min: float = setting(
        -10.0, "Lowest return of the categorical distribution's support.", limit=Limit(-1e9, 1e9)
    )
    value_max: float = setting(
        10.0, "Highest return of the categorical distribution's support.", limit=Limit(-1e9, 1e9)
    )

    hides_nans: ClassVar[bool] = True  # where a chance is 0

    def problems(self) -> list[str]:
        if self.value_min < self.value_max:
            return []
        return [f"value_min={self.value_min} must be below value_max={self.value_max}; exchange them or move one"]

    def __call__(
        self, x: Array, streams: Streams, num_actions: int, noise: Array | None = None, levels: Array | None = None
    ) -> ReturnDistribution:
        support = jnp.linspace(self.value_min, self.value_max, self.atoms)
        return Categorical(streams(x, num_actions, self.atoms, noise), support)


class QuantileHead(Head):
    """Returns at evenly spaced levels for each action (QR-DQN, Dabney et al. 2018)."""

    quantiles: int = setting(51, "Number of quantiles of the return distribution.", limit=COUNT)

    def __call__(
        self, x: Array, streams: Streams, num_actions: int, noise: Array | None = None, levels: Array | None = None
    ) -> ReturnDistribution:
        taus = jnp.broadcast_to(midpoints(self.quantiles), (x.shape[0], self.quantiles))
        return Quantiles(streams(x, num_actions, self.quantiles, noise), taus)


class ImplicitQuantileHead(Head):
    """Returns at levels that are drawn for each pass and row (IQN, Dabney et al. 2018); without a key, even ones."""

    quantiles: int = setting(16, "Number of quantile levels that are drawn for each state.", limit=COUNT)
    cosines: int = setting(
        64, "Number of cosines cos(pi * i * level) that embed a quantile level.", limit=COUNT, rare=True
    )
    cosine_start: int = setting(
        0, "First i of the cosines cos(pi * i * level) that embed a quantile level.", limit=COUNT_OR_NONE, rare=True
    )

    @nn.compact
    def __call__(
        self, x: Array, streams: Streams, num_actions: int, noise: Array | None = None, levels: Array | None = None
    ) -> ReturnDistribution:
        taus = levels
        if taus is None:
            shape = (x.shape[0], self.quantiles)
            drawn = self.has_rng("levels")
            taus = jax.random.uniform(self.make_rng("levels"), shape) if drawn else midpoints(self.quantiles)
            taus = jnp.broadcast_to(taus, shape)
        waves = cos_pi((self.cosine_start + jnp.arange(self.cosines)) * taus[..., None])
        # Two axes: the gradient of a product of three would transpose it all.
        described = nn.relu(nn.Dense(x.shape[-1], name="tau")(waves.reshape(-1, self.cosines)))
        joined = (x[:, None] * described.reshape(*taus.shape, -1)).reshape(-1, x.shape[-1])
        values = streams(joined, num_actions, 1, noise).reshape(*taus.shape, num_actions)
        return Quantiles(jnp.swapaxes(values, 1, 2), taus)


def cos_pi(x: Array) -> Array:
    """`cos(pi * x)`: whole turns are taken off before pi comes in, so that large `x` lose no digits to it.

    Four times as fast as the compiler's cosine on a CPU, and three times as exact for the levels' 64 waves.
    """
    turned = x - 2 * jnp.round(x / 2)  # in [-1, 1]
    angle = jnp.pi * (0.5 - jnp.abs(turned))  # whose sine it is, in [-pi / 2, pi / 2]
    square, series = angle * angle, jnp.zeros_like(angle)
    for power in range(17, 0, -2):
        series = series * square + (-1) ** (power // 2) / math.factorial(power)
    return angle * series


def midpoints(count: int) -> Array:
    """The middles of `count` equal parts of (0, 1)."""
    return (jnp.arange(count) + 0.5) / count


class QNetwork(nn.Module):
    """A torso, a memory, streams over its features, and a head that says what the return of each action is made of."""

    num_actions: int
    torso: Torso
    streams: Streams
    head: Head
    recurrence: Recurrence = NoRecurrence()

    def __call__(self, features: Any, noise: Array | None = None, levels: Array | None = None) -> ReturnDistribution:
        """Returns of features `[B, ...]`, for a network that remembers nothing."""
        return self.judge(self.torso(features), noise, levels)

    def judge(self, seen: Array, noise: Array | None = None, levels: Array | None = None) -> ReturnDistribution:
        """Returns of what has been seen, rows `[N, D]`."""
        return self.head(seen, self.streams, self.num_actions, noise, levels)

    def remember(self, carry: Carry, features: Any, fresh: Array) -> tuple[Carry, Array, Carry]:
        """What has been seen by the time of each of features `[T, B, ...]`; as a `Recurrence` when it is called."""
        return self.recurrence(carry, through_time(self.torso, features), fresh)

    def whole(self, carry: Carry, features: Any, fresh: Array) -> ReturnDistribution:
        """All of it, for features `[T, B, ...]`: what the weights are made for."""
        seen = self.remember(carry, features, fresh)[1]
        return self.judge(seen.reshape(-1, seen.shape[-1]))


class ActorCritic(nn.Module):
    """A torso with a policy and a value on top of it, or one torso for each; each torso has a memory of its own.

    The policy is `outputs` numbers of each state, as a score for each action, and `free` ones that no state changes.
    """

    outputs: int
    torso: Torso
    shared: bool
    recurrence: Recurrence = NoRecurrence()
    free: int = 0
    start: float = 0.0  # of the free numbers

    def __call__(self, features: Any) -> tuple[Array, Array]:
        """The policy's numbers of each state, `[N, outputs + free]`, and values `[N]`, without a memory."""
        return self.through(features)[:2]

    def initial_carry(self, num: int) -> Carry:
        """What is remembered where episodes begin: a tuple with the carry of each torso."""
        if not self.recurrence.remembers:
            return ()
        return tuple(self.recurrence.initial_carry(num) for _ in range(1 if self.shared else 2))

    @nn.compact
    def through(self, features: Any, carry: Carry = (), fresh: Array | None = None) -> tuple[Array, Array, Carry]:
        """The policy's numbers, and values, of rows `[N]`, and the carry after them.

        Without a memory, of features `[N, ...]`.  With one, of features `[T, B, ...]`, of which `fresh` are the first
        of an episode: rows are the first step's, then the second's.
        """
        names = ["actor"] if self.shared else ["actor", "critic"]
        seen, after = zip(*(self.see(features, carry, fresh, *named) for named in enumerate(names)), strict=True)
        # A policy that begins near uniform has nothing to unlearn.
        said = nn.Dense(self.outputs, kernel_init=orthogonal(0.01), name="policy")(seen[0])
        if self.free:
            free = self.param("free", nn.initializers.constant(self.start), (self.free,))
            said = jnp.concatenate([said, jnp.broadcast_to(free, (*said.shape[:-1], self.free))], axis=-1)
        value = nn.Dense(1, kernel_init=orthogonal(1.0), name="value")(seen[-1])
        return said, value[..., 0], after if self.recurrence.remembers else ()

    def see(self, features: Any, carry: Carry, fresh: Array | None, number: int, name: str) -> tuple[Array, Carry]:
        """What one torso makes of features, rows `[N, D]`, and the carry after them."""
        torso = self.torso.clone(parent=self, name=name)
        if not self.recurrence.remembers:
            return torso(features), ()
        assert fresh is not None
        cell = self.recurrence.clone(parent=self, name=f"{name}_memory")
        after, seen, _ = cell(carry[number], through_time(torso, features), fresh)
        return seen.reshape(-1, seen.shape[-1]), after


def through_time(torso: Torso, features: Any) -> Array:
    """What a torso makes of features `[T, B, ...]`: `[T, B, D]`."""
    length, num = jax.tree.leaves(features)[0].shape[:2]
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), features)
    return torso(rows).reshape(length, num, -1)
