"""Arrow tables without what only Arrow knows, for libraries and for loads; values stay what they are, and none is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNED = {"uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64(), "uint64": pa.decimal128(20, 0)}
"""What numbers without a sign become, which Spark lacks; its own readers make the same of them."""

_KNOWN = {
    **SIGNED,
    "halffloat": pa.float32(),
    "date64[ms]": pa.date32(),
    "time32[s]": pa.time64("us"),
    "time32[ms]": pa.time64("us"),
    "duration[s]": pa.duration("us"),
    "duration[ms]": pa.duration("us"),
    "duration[ns]": pa.duration("us"),
    "binary_view": pa.binary(),
}
"""Types that an engine lacks, and those in which it has the same values."""

_MOST_DIGITS = 38
"""Digits of the widest decimal that engines compute with."""


def decoded_table(table: pa.Table) -> pa.Table:
    """Return the table without dictionaries, runs, views of bytes and extension types, whose values not everybody knows."""
    return _with_columns(table, _decoded)


def plain_table(table: pa.Table) -> pa.Table:
    """Return the table in the types that both engines know."""
    return _with_columns(table, lambda column: _plain(_decoded(column)))


def _with_columns(table: pa.Table, converted: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    for number, field in enumerate(table.schema):
        try:
            column = converted(table.column(number))
        except pa.ArrowInvalid as error:
            message = f"column {field.name!r} of the frame is {field.type}, and a value of it is out of range: {error}"
            raise RunError(message, hint="convert the column, or leave such rows out.") from None
        if column.type != field.type:
            table = table.set_column(number, field.name, column)
    return table


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        return _decoded(pc.run_end_decode(column))
    if pa.types.is_dictionary(kind):
        return _decoded(pc.cast(column, kind.value_type))
    if pa.types.is_binary_view(kind):
        return pc.cast(column, pa.binary())
    if not isinstance(kind, pa.BaseExtensionType):
        return column
    if kind.extension_name == "arrow.uuid":
        return _texts(column, "{}")
    return pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    plain = _plain_type(kind)
    if plain == kind:
        return column
    if pa.types.is_decimal(kind) and pa.types.is_string(plain):
        return _texts(column, "{:f}")
    if _has_views(kind):
        # Arrow's own cast of a list view drops its values.
        return pa.chunked_array([pa.array(chunk.to_pylist(), plain) for chunk in column.chunks], plain)
    return pc.cast(column, options=pc.CastOptions(target_type=plain, allow_time_truncate=True))


def _texts(column: pa.ChunkedArray, form: str) -> pa.ChunkedArray:
    texts = [[None if value is None else form.format(value) for value in chunk.to_pylist()] for chunk in column.chunks]
    return pa.chunked_array(texts, pa.string())


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column of this one is loaded; the same where it is known as it is."""
    types = pa.types
    if types.is_nested(kind):
        return _plain_nested(kind)
    if types.is_decimal(kind):
        return _plain_decimal(kind)
    if types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", kind.tz)
    return _KNOWN.get(str(kind), kind)


def _plain_decimal(kind: pa.DataType) -> pa.DataType:
    """Return a decimal of 128 bits whose scale is not below zero, or text where the digits are too many for one."""
    digits, scale = kind.precision - min(kind.scale, 0), max(kind.scale, 0)
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.string()


def _plain_nested(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain_part(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_part(kind.key_type), _plain_part(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_item(kind), kind.list_size)
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(_plain_item(kind))
    return pa.list_(_plain_item(kind)) if types.is_list(kind) or types.is_list_view(kind) else kind


def _plain_item(kind: pa.DataType) -> pa.Field:
    return kind.value_field.with_type(_plain_part(kind.value_type))


def _plain_part(kind: pa.DataType) -> pa.DataType:
    """Return the type of a part of a document; the JSON of Spark knows no times of day."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_part(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _plain_part(kind.value_type)
    return pa.string() if pa.types.is_time(kind) or pa.types.is_string_view(kind) else _plain_type(kind)


def _has_views(kind: pa.DataType) -> bool:
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return True
    return any(_has_views(kind.field(number).type) for number in range(kind.num_fields))
