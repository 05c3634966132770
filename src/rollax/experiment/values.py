"""A value as the type of a setting."""

from __future__ import annotations

import typing
from typing import Any, Literal

from rollax.settings import text_problem


def coerce(annotation: Any, value: Any, *, several: bool = False) -> Any:
    """The value as that type; several stay a sequence where there may be.  Raises TypeError or ValueError."""
    if several and isinstance(value, list | tuple):
        if not value:
            raise ValueError("holds no number")
        numbers = tuple(coerce(annotation, item) for item in value)
        return numbers[0] if len(numbers) == 1 else numbers
    if typing.get_origin(annotation) is Literal:
        if not isinstance(value, str) or value not in typing.get_args(annotation):
            raise ValueError(f"must be one of {', '.join(typing.get_args(annotation))}")
        return value
    if typing.get_origin(annotation) is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError("must be a list")
        return tuple(coerce(typing.get_args(annotation)[0], item) for item in value)
    if annotation is str:
        if problem := text_problem(value):
            raise TypeError(problem)
        return value
    if annotation is bool:
        if not isinstance(value, bool):
            raise TypeError("must be a bool")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("must be a number")
    if annotation is int:
        if isinstance(value, float) and not value.is_integer():
            raise TypeError("must be a whole number")
        return int(value)
    try:
        return float(value) + 0.0  # a negative zero is zero
    except OverflowError:
        raise ValueError("is too large") from None
