"""From what a network says to a distribution over actions, whatever space they are of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rollax.rules.distributions import Choices, Distribution, Normal, Product, SquashedNormal, masked_categorical
from rollax.settings import POSITIVE, setting
from rollax.types import Array, Box, Discrete, Joint, MultiDiscrete, Space

LOWEST, HIGHEST = -5.0, 2.0  # logarithms of a standard deviation that depends on the state


@dataclass(frozen=True)
class NumberPolicy:
    """How a policy draws actions that are numbers, of which agents speak in [-1, 1]."""

    squashed: bool = setting(
        False,
        "Squash continuous actions into their bounds by tanh; else they are drawn unbounded and clipped.",
        group="continuous actions",
    )
    state_deviation: bool = setting(
        False,
        "Let the standard deviation of continuous actions depend on the state; else it is one number for each action.",
        group="continuous actions",
    )
    initial_deviation: float = setting(
        1.0,
        "Initial standard deviation of continuous actions, on the scale where their bounds are -1 and 1.",
        limit=POSITIVE,
        group="continuous actions",
    )

    def of(self, mean: Array, log_deviation: Array) -> Distribution:
        """The policy with this mean and, in logarithms, standard deviation, `[..., size]` each."""
        return SquashedNormal(mean, log_deviation) if self.squashed else Normal(mean, log_deviation)


class PolicyHead(NamedTuple):
    """What a network must say of actions of a space, and what that means.

    It says `outputs` numbers of each state, and `free` ones that are the same for all and start at `start`.
    """

    space: Space
    numbers: NumberPolicy

    @property
    def parts(self) -> tuple[Discrete | MultiDiscrete | Box, ...]:
        return self.space.parts if isinstance(self.space, Joint) else (self.space,)

    @property
    def boxed(self) -> int:
        """Numbers of boxes in an action."""
        return sum(len(part.low) for part in self.parts if isinstance(part, Box))

    @property
    def outputs(self) -> int:
        choices = sum(sum(counts_of(part)) for part in self.parts)
        return choices + self.boxed * (2 if self.numbers.state_deviation else 1)

    @property
    def free(self) -> int:
        return 0 if self.numbers.state_deviation else self.boxed

    @property
    def start(self) -> float:
        return math.log(self.numbers.initial_deviation)

    def distribution(self, said: Array, legal: Array | None) -> Distribution:
        """The policy that a network means by `outputs + free` numbers `[..., N]`, in the order of the parts.

        Logits come first, then means, then logarithms of deviations.
        """
        if isinstance(self.space, Discrete):
            return masked_categorical(said, legal)
        choices = [count for part in self.parts for count in counts_of(part)]
        pieces = jnp.split(said, np.cumsum([*choices, self.boxed]), axis=-1)
        *logits, means, deviations = pieces
        if self.numbers.state_deviation:
            # Within bounds by a smooth curve, whose gradient never vanishes, through the initial value at 0.
            room = HIGHEST - LOWEST
            deviations = LOWEST + room * sigmoid_from(deviations, (self.start - LOWEST) / room)
        found, sizes, choice, number = [], [], 0, 0
        for part in self.parts:
            if isinstance(part, Box):
                size = len(part.low)
                own = slice(number, number + size)
                found.append(self.numbers.of(means[..., own], deviations[..., own]))
                number += size
            else:
                size = len(counts_of(part))
                own_logits = logits[choice : choice + size]
                found.append(Choices(tuple(masked_categorical(scores, None) for scores in own_logits)))
                choice += size
            sizes.append(size)
        return found[0] if len(found) == 1 else Product(tuple(found), tuple(sizes))


def counts_of(part: Discrete | MultiDiscrete | Box) -> tuple[int, ...]:
    """The counts of the choices in a part."""
    if isinstance(part, Discrete):
        return (part.n,)
    return part.counts if isinstance(part, MultiDiscrete) else ()


def sigmoid_from(x: Array, share: float) -> Array:
    """A smooth curve from 0 to 1 that has this share at 0."""
    share = min(max(share, 0.01), 0.99)
    return 1.0 / (1.0 + (1.0 - share) / share * jnp.exp(-x))
