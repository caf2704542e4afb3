"""The types that values show, inferred by partition and merged: the same as for all values at once."""

from __future__ import annotations

from contextlib import suppress
from types import NoneType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.run.read.infer_messages import WIDE, column_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEXT = pa.string()
_DIGITS = 38
_TEXTS, _FLOATS = {str, NoneType}, {float, NoneType}


def inferred_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return the values of each field of some rows in the type that they show, in the order of their appearance."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column_of([row.get(name) for row in rows], allow_null=True) for name in names}


def inferred_types(rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.DataType]:
    """Return the type of each field of some rows, in the order of their appearance; NULL where no value shows one."""
    return {name: column.type for name, column in inferred_columns(rows).items()}


def merged(one: Mapping[str, pa.DataType], other: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Return the types of the fields of two partitions, the first one's fields first."""
    return {
        name: _both(one.get(name, pa.null()), other.get(name, pa.null())) or TEXT
        for name in dict.fromkeys((*one, *other))
    }


def as_type(values: Sequence[Any], target_type: pa.DataType) -> pa.Array:
    """Return values in a type that fits all of them."""
    kinds = set(map(type, values))
    if target_type == TEXT and not kinds <= _TEXTS:
        return pa.array([text_of(value) for value in values], TEXT)
    if pa.types.is_floating(target_type) and not kinds <= _FLOATS:
        return pa.array([None if value is None else float(value) for value in values], target_type)
    return pa.array(values, target_type)


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type of a column that has both types; None where only text has room for them."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if all(map(_is_number, (one, other))):
        return WIDE if WIDE in (one, other) and not any(map(pa.types.is_floating, (one, other))) else pa.float64()
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return _decimal(one, other)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _struct(one, other)
    if pa.types.is_list(one) and pa.types.is_list(other):
        inside = _both(one.value_type, other.value_type)
        return None if inside is None else pa.list_(inside)
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or kind == WIDE)


def _struct(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    sides = [{field.name: field.type for field in kind} for kind in (one, other)]
    kinds = {
        name: _both(*(side.get(name, pa.null()) for side in sides)) for name in dict.fromkeys((*sides[0], *sides[1]))
    }
    return None if None in kinds.values() else pa.struct(list(kinds.items()))


def _decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    with suppress(ValueError):
        return pa.decimal128(digits, scale) if digits <= _DIGITS else None
    return None
