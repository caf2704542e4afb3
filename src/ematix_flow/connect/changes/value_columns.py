"""Columns of plain values as JSON writes them, converted at once: the same values as `values.converted` gives one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.changes.change import ChangeError, Semantic
from ematix_flow.connect.changes.values import (
    BITS,
    CLOCKS,
    DATES,
    DECIMAL,
    PER_MICRO,
    TIME_KINDS,
    UNITS,
    converted,
    unit_of,
)
from ematix_flow.connect.formats.json_lines import Number
from ematix_flow.connect.formats.values import WHOLE

NULL = "null"
_LAST_MICROSECOND = 253_402_300_799_999_999
_LAST_DAY = 2_932_896
"""The end of the year 9999."""

_LITERALS = {NULL: None, "true": True, "false": False}
_PLAIN = Semantic()


def value_column(
    written: pa.Array, kind: str, semantic: Semantic | None = None, time_unit: str | None = None
) -> tuple[pa.Array, list[int]]:
    """Return written values as their column takes them, and the numbers of those that cannot be read."""
    semantic = semantic or _PLAIN
    is_text = pc.starts_with(written, '"')
    if kind == "bytes" or semantic.name in (DECIMAL, BITS):
        return _one_by_one(written, kind, semantic, time_unit)
    if not _counts(kind, semantic) or pc.all(pc.or_(is_text, pc.equal(written, NULL))).as_py() in (True, None):
        return _texts(written, is_text, kind), []
    counted = None if pc.any(is_text).as_py() else _counted(written, kind, semantic, time_unit)
    return (counted, []) if counted is not None else _one_by_one(written, kind, semantic, time_unit)


def value_of(written: str) -> Any:
    """Return the value that is written, a number as it is."""
    if written.startswith('"'):
        return json.loads(written) if "\\" in written else written[1:-1]
    return _LITERALS[written] if written in _LITERALS else Number(written)


def known(written: pa.Array) -> pa.Array:
    """Return written values without those that are NULL."""
    return pc.if_else(pc.equal(written, NULL), pa.scalar(None, pa.string()), written)


def _counts(kind: str, semantic: Semantic) -> bool:
    """Return whether a number in a column counts days or parts of seconds."""
    name = semantic.name
    return kind == "date" or kind in TIME_KINDS or name in DATES or name in CLOCKS or name in UNITS


def _texts(written: pa.Array, is_text: pa.Array, kind: str) -> pa.Array:
    """Return values as they are written, texts without their quotes."""
    values = written
    if pc.any(is_text).as_py():
        values = pc.if_else(is_text, _unquoted(written), written)
    if kind in (*WHOLE, "numeric"):
        for literal, digit in (("true", "1"), ("false", "0")):
            values = pc.if_else(pc.equal(written, literal), digit, values)
    return pc.if_else(pc.equal(written, NULL), pa.scalar(None, pa.string()), values)


def _unquoted(written: pa.Array) -> pa.Array:
    """Return what stands between the first and the last character of values, in texts without their escapes."""
    content = written.buffers()[2]
    if content is not None and b"\\" in content.to_pybytes():
        return pa.array([value_of(one) if "\\" in one else one[1:-1] for one in written.to_pylist()], pa.string())
    return pc.binary_slice(written.cast(pa.binary()), 1, -1).cast(pa.string())


def _counted(written: pa.Array, kind: str, semantic: Semantic, time_unit: str | None) -> pa.Array | None:
    """Return whole numbers as dates or instants; None where one of them has to be looked at by itself."""
    try:
        numbers = pc.cast(known(written), pa.int64())
    except pa.ArrowInvalid:
        return None
    least, most = pc.min_max(numbers).as_py().values()
    if least is None or least < 0:
        return None
    if semantic.name in DATES or (kind == "date" and semantic.name not in UNITS):
        return None if most > _LAST_DAY else numbers.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    if kind == "date" or semantic.name in CLOCKS:
        return None
    unit = UNITS.get(semantic.name) or time_unit or _unit_of_all(least, most)
    if not unit:
        return None
    times, parts = PER_MICRO[unit]
    if most * times // parts > _LAST_MICROSECOND:
        return None
    micros = pc.divide(pc.multiply(numbers, times), parts)
    return pc.binary_replace_slice(micros.cast(pa.timestamp("us")).cast(pa.string()), 10, 11, "T")


def _unit_of_all(least: int, most: int) -> str:
    """Return what numbers between two others count, by their size; empty where that is not the same for all of them."""
    try:
        unit = unit_of(most)
        return unit if least and unit_of(least) == unit else ""
    except ChangeError:
        return ""


def _one_by_one(written: pa.Array, kind: str, semantic: Semantic, time_unit: str | None) -> tuple[pa.Array, list[int]]:
    values: list[str | bytes | None] = []
    unfit: list[int] = []
    for number, one in enumerate(written.to_pylist()):
        try:
            values.append(converted(value_of(one), kind, semantic, time_unit))
        except ChangeError:
            values.append(None)
            unfit.append(number)
    return pa.array(values, pa.binary() if kind == "bytes" else pa.string()), unfit
