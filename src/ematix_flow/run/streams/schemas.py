"""Types of values in the state of a stream: those of earlier rows and of later ones together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.run.read.merged_types import merged

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""How many digits the whole numbers of so many bits have."""

_MOST_DIGITS = 38


def schema_of(text: str) -> StructType:
    """Return the types that Spark has written as a text."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text, object_hook=_nullable))


def merged_schema(one: str | None, other: str) -> str:
    """Return the types in which values of both schemas can be read, as Spark writes them; there may be no first one."""
    if one is None or one == other:
        return other
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    before, now = schema_of(one), schema_of(other)
    one_by_name, other_by_name = (
        {field.name: field.type for field in to_arrow_schema(schema)} for schema in (before, now)
    )
    kinds = merged(one_by_name, other_by_name)
    for name in one_by_name.keys() & other_by_name.keys():
        kinds[name] = _numbers(one_by_name[name], other_by_name[name]) or kinds[name]
    both = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
    known = {field.name: field for field in before.fields}
    # Types that both have stay as Spark has them.
    same = {field.name: field for field in now.fields if known.get(field.name) == field}
    wider = from_arrow_schema(both, prefer_timestamp_ntz=True)
    return StructType([same.get(field.name, field) for field in wider.fields]).json()


def _numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type for numbers of both types, or for lists of them; None where not all are numbers.

    As text they would be compared letter by letter. Where no decimal has room, a number with fewer digits is one still.
    """
    if pa.types.is_list(one) and pa.types.is_list(other):
        inside = _numbers(one.value_type, other.value_type)
        return None if inside is None else pa.list_(inside)
    if not all(_is_number(kind) for kind in (one, other)):
        return None
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return pa.float64()
    (whole, scale), (other_whole, other_scale) = _digits(one), _digits(other)
    scale = max(scale, other_scale)
    digits = max(whole, other_whole) + scale
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.float64()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return how many digits numbers without an exponent have before and behind the point."""
    return (_DIGITS[kind.bit_width], 0) if pa.types.is_integer(kind) else (kind.precision - kind.scale, kind.scale)


def is_typed(kind: DataType) -> bool:
    """Return whether values have shown a type: of a column, or of the elements of its lists."""
    from pyspark.sql.types import ArrayType, NullType

    inside = kind.elementType if isinstance(kind, ArrayType) else kind
    return not isinstance(inside, NullType)


def readable(schema: StructType) -> StructType:
    """Return types in which Spark can read values: text where no value has shown a type."""
    from pyspark.sql.types import StructType

    fields = json.loads(schema.json(), object_hook=_with_text)
    return StructType.fromJson(fields)


def _nullable(one: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema that says of no value that it is there; Arrow knows no list of nothing otherwise."""
    return {
        name: True if name in ("nullable", "containsNull", "valueContainsNull") else kind for name, kind in one.items()
    }


def _with_text(one: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema with text instead of types that are not known."""
    return {
        name: "string" if name in ("type", "elementType", "valueType") and kind == "void" else kind
        for name, kind in one.items()
    }
