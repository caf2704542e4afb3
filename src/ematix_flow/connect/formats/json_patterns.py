"""Pieces of patterns for JSON messages that are written alike, and which messages a pattern is made of; it reads none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LARGEST = 1 << 30
"""Bytes of messages from which on they are read one by one: a column of texts ends at twice as many."""

SPACE = r"[ \t\n\r]*+"
DIGITS = "0|[1-9][0-9]*+"
UNQUOTED = rf"-?(?:{DIGITS})(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+|true|false|null"
"""A value that is neither a text nor made of others."""

_PLAIN_KEY = re.compile(r'[^"\\\x00-\x1f]*')


def are_plain(keys: Iterable[str]) -> bool:
    """Return whether keys stand in a message as they are."""
    return all(map(_PLAIN_KEY.fullmatch, keys))


def object_pattern(values: Mapping[str, str]) -> str:
    """Return the pattern of an object with these keys in this order, from the patterns of its values."""
    pairs = [f'"{re.escape(key)}"{SPACE}:{SPACE}{value}' for key, value in values.items()]
    return rf"\{{{SPACE}{f'{SPACE},{SPACE}'.join(pairs)}{SPACE}\}}"


def are_too_large(payloads: Iterable[bytes | None]) -> bool:
    """Return whether messages are too large together to be read as columns."""
    return sum(len(payload or b"") for payload in payloads) >= LARGEST


def decoded_text(payload: bytes | None) -> str | None:
    """Return a payload as text; None where it is no UTF-8."""
    try:
        return (payload or b"").decode()
    except UnicodeDecodeError:
        return None
