"""Several small numbers in one word, read and changed by name.

Half of a game's numbers have two to six bits.  In words they are an eighth of the memory, one choice between two states
instead of eight, and a snapshot needs no more than to be copied.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax.numpy as jnp
from flax import struct

from rollax.types import Array


class Field:
    """A number of some bits in one of the words of a `Packed`; a flag has one bit."""

    def __init__(self, word: str, place: int, width: int, lowest: int = 0) -> None:
        self.word, self.place, self.width, self.lowest = word, place, width, lowest

    def __get__(self, packed: Any, owner: type) -> Array:
        words = getattr(packed, self.word)
        if self.width == 1:
            return (words & (1 << self.place)) != 0
        return ((words >> self.place) & self.mask) + self.lowest

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1

    def put(self, words: Array, values: Array | int) -> Array:
        """The words with these values in place of the old ones, which must fit."""
        return (words & ~(self.mask << self.place)) | self.shifted(values)

    def shifted(self, values: Array | int) -> Array:
        return (jnp.asarray(values).astype(jnp.int32) - self.lowest) << self.place


@struct.dataclass
class Packed:
    """A base of flax dataclasses whose fields are words and whose `Field`s are the numbers in them."""

    def change(self, **values: Any) -> Self:
        """With other values for some of its numbers."""
        words: dict[str, Array] = {}
        for name, value in values.items():
            field = type(self).__dict__[name]
            words[field.word] = field.put(words.get(field.word, getattr(self, field.word)), value)
        return dataclasses.replace(self, **words)

    @classmethod
    def pack(cls, **values: Any) -> Self:
        """From a value for each number; words that are no numbers of several are given as they are."""
        words: dict[str, Any] = {}
        for name, value in values.items():
            field = cls.__dict__.get(name)
            if isinstance(field, Field):
                words[field.word] = words.get(field.word, 0) + field.shifted(value)
            else:
                words[name] = value
        return cls(**words)
