"""Values of PostgreSQL, in the text that its output functions write, as fragments of JSON; no digit is lost.

Sessions that read changes have dates in ISO, times in UTC and bytes in hexadecimal digits.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.change_log.messages import json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Converter = Callable[[str], str]

_BOOL, _BYTEA = 16, 17
_NUMBERS = (20, 21, 23, 26, 700, 701, 1700)
"""int8, int2, int4, oid, float4, float8 and numeric."""
_TIMESTAMP, _TIMESTAMP_TZ = 1114, 1184

_ARRAYS = {
    1000: 16, 1001: 17, 1005: 21, 1007: 23, 1016: 20, 1028: 26, 1021: 700, 1022: 701, 1231: 1700, 1115: 1114, 1185: 1184,
    1002: 18, 1003: 19, 1009: 25, 1014: 1042, 1015: 1043, 1182: 1082, 1183: 1083, 1270: 1266, 1187: 1186, 2951: 2950,
    199: 114, 3807: 3802, 1041: 869, 651: 650, 1040: 829, 1561: 1560, 1563: 1562,
}  # fmt: skip
"""Built-in types of arrays, with the types of their elements."""

_DIGITS = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_INSTANT = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(\+00)?")
_BOUNDS = re.compile(r"(?:\[[+-]?\d+:[+-]?\d+\])+=")
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Types:
    """How values become JSON, by the number of their type; types of users count as what they are made of."""

    def __init__(self, user_types: Mapping[int, tuple[int, int]] | None = None) -> None:
        self._user_types = dict(user_types or {})
        """Number of a type -> the base type of a domain, and the type of the elements of an array; 0 where it has none."""
        self._converters: dict[int, Converter] = {}

    def converter(self, type_oid: int) -> Converter:
        """Return what makes JSON of values of a type."""
        if type_oid not in self._converters:
            self._converters[type_oid] = self._new_converter(type_oid)
        return self._converters[type_oid]

    def fragments(self, type_oid: int, texts: pa.Array) -> pa.Array | None:
        """Return the JSON of many values, the same that their converter makes of each; None where one is no plain value."""
        base, element = self._user_types.get(type_oid, (0, 0))
        if base:
            return self.fragments(base, texts)
        if element or type_oid in _ARRAYS or type_oid == _BYTEA:
            return None
        if type_oid == _BOOL:
            written = pc.if_else(pc.equal(texts, "t"), "true", "false")
        elif type_oid in _NUMBERS:
            written = _numbers(texts)
        else:
            written = _timestamps(texts) if type_oid in (_TIMESTAMP, _TIMESTAMP_TZ) else _json_texts(texts)
        return None if written is None else pc.fill_null(written, "null")

    def converted(self, type_oid: int, texts: pa.Array) -> pa.Array:
        """Return the JSON of many values, each by itself."""
        convert = self.converter(type_oid)
        return pa.array(["null" if one is None else convert(one) for one in texts.to_pylist()], pa.string())

    def _new_converter(self, type_oid: int) -> Converter:
        base, element = self._user_types.get(type_oid, (0, 0))
        if base:
            return self.converter(base)
        element = element or _ARRAYS.get(type_oid, 0)
        if element:
            inner = self.converter(element)
            return lambda text: _array(text, inner)
        if type_oid in _NUMBERS:
            return _number
        if type_oid in (_TIMESTAMP, _TIMESTAMP_TZ):
            return _timestamp
        return {_BOOL: _boolean, _BYTEA: _binary}.get(type_oid, json_text)


def _have(texts: pa.Array, *parts: str) -> bool:
    return any(pc.any(pc.match_substring(texts, part)).as_py() for part in parts)


def _numbers(texts: pa.Array) -> pa.Array | None:
    """Return numbers as they are; None where one is NaN or infinite."""
    return None if _have(texts, "N", "I") else texts


def _timestamps(texts: pa.Array) -> pa.Array | None:
    """Return instants in ISO; None where one is infinite, or before the first year."""
    if _have(texts, "i", "B"):
        return None
    written = pc.replace_substring(pc.replace_substring(texts, " ", "T"), "+00", "Z")
    return pc.binary_join_element_wise('"', written, '"', "")


def _json_texts(texts: pa.Array) -> pa.Array | None:
    """Return texts as JSON; None where one has a character that is written in another way."""
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        return None
    if _have(texts, "\\", '"'):
        texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return pc.binary_join_element_wise('"', texts, '"', "")


def _number(text: str) -> str:
    """Return a number with all its digits; NaN and the infinities, which JSON does not have, are texts."""
    return text if _DIGITS.fullmatch(text) else json_text(text)


def _boolean(text: str) -> str:
    return "true" if text == "t" else "false"


def _timestamp(text: str) -> str:
    """Return an instant in ISO; `infinity` and years before the first are texts as PostgreSQL writes them."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return json_text(text)
    return f'"{match[1]}T{match[2]}{"Z" if match[3] else ""}"'


def _binary(text: str) -> str:
    return f'"{base64.b64encode(bytes.fromhex(text.removeprefix(chr(92) + "x"))).decode()}"'


def _array(text: str, element: Converter) -> str:
    """Return an array as one of JSON, of arrays where it has several dimensions."""
    bounds = _BOUNDS.match(text)
    at, fragments = (bounds.end() if bounds else 0), []
    while at < len(text):
        if text[at] in "{},":
            fragments.append({"{": "[", "}": "]", ",": ","}[text[at]])
            at += 1
            continue
        match = _ELEMENT.match(text, at)
        if match is None:
            return json_text(text)
        quoted, plain = match[1], match[2]
        if quoted is not None:
            fragments.append(element(_ESCAPE.sub(r"\1", quoted)))
        else:
            fragments.append("null" if plain.upper() == "NULL" else element(plain))
        at = match.end()
    return "".join(fragments)
