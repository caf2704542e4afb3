"""Checks of single values in declarations: words, whole numbers, texts and names of columns; it knows no declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

_LARGEST_PORT = 65_535

LONGEST_MS = 10_000 * 366 * 86_400_000
"""More than lies between any two times; in microseconds, and a few times that, it is still a whole number to Java."""


def one_of(option: str, value: object, allowed: Iterable[str | None]) -> None:
    """Refuse a word that is not among the allowed ones, naming the nearest."""
    known = tuple(allowed)
    if value not in known:
        names = [name for name in known if name is not None]
        message = f"{option}={value!r} is not known"
        raise DeclareError(message, hint=did_you_mean(str(value), names))


def whole_number(option: str, value: object, least: int = 0) -> int:
    """Return a whole number that is not smaller than `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{option}= takes a whole number, not {type(value).__name__}"
        raise DeclareTypeError(message)
    if value < least:
        message = f"{option}={value} is smaller than {least}"
        raise DeclareError(message)
    return value


def milliseconds(option: str, value: object, least: int = 0) -> int:
    """Return a length of time that is not shorter than `least` and not longer than all the years that times may have."""
    length = whole_number(option, value, least)
    if length > LONGEST_MS:
        message = f"{option}={length} is longer than 10,000 years"
        raise DeclareError(message, hint="it is a number of milliseconds.")
    return length


def port_number(option: str, value: object) -> int:
    """Return a port; 0 means any free one."""
    port = whole_number(option, value)
    if port > _LARGEST_PORT:
        message = f"{option}={port} is no port"
        raise DeclareError(message, hint=f"ports end at {_LARGEST_PORT}.")
    return port


def filled_text(option: str, value: object) -> str:
    """Return a text that is not blank."""
    if not isinstance(value, str):
        message = f"{option}= takes text, not {type(value).__name__}"
        raise DeclareTypeError(message)
    if not value.strip():
        message = f"{option}= is empty"
        raise DeclareError(message)
    return value


def switch(option: str, value: object) -> bool:
    """Return true or false, and nothing that only looks like it."""
    if not isinstance(value, bool):
        message = f"{option}= takes true or false, not {type(value).__name__}"
        raise DeclareTypeError(message)
    return value


def column_names(option: str, value: Any) -> tuple[str, ...]:
    """Return at least one name of a column; a single text is one name."""
    if isinstance(value, str):
        return (filled_text(option, value),)
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        message = f"{option}= takes column names, not {type(value).__name__}"
        raise DeclareTypeError(message, hint=f'write a list, for example {option}=["id"].')
    names = tuple(value)
    if not names or not all(isinstance(name, str) and name for name in names):
        message = f"{option}= needs at least one column name"
        raise DeclareError(message)
    return names
