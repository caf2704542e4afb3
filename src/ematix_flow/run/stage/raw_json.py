"""Source rows as JSON for rejects, written as Spark's `to_json` writes them: NULL is left out, no digit is lost."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.types.arrow import family_of
from ematix_flow.connect.types.reject_rows import json_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import ChunkedArray

_SPECIAL_FLOATS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_rows(rows: pa.Table, names: Sequence[str], *, nulls: bool = False) -> list[str]:
    """Return each row as one JSON object of the named columns; with `nulls` every one of them is in it."""
    labels = [json.dumps(name, ensure_ascii=False) for name in names]
    columns = [_json_values(rows.column(name)) for name in names]
    if nulls:
        columns = [["null" if value is None else value for value in column] for column in columns]
    return [_object(labels, values) for values in zip(*columns, strict=True)]


def loadable_table(table: pa.Table) -> pa.Table:
    """Return a table in types that every system can take: lists, structs and maps as JSON, times and durations as text.

    The JSON is written as Spark writes that of its frames, with every NULL.
    """
    for number, field in enumerate(table.schema):
        column = _loadable_column(table.column(number))
        if column.type != field.type:
            table = table.set_column(number, field.name, column)
    return table


def _loadable_column(column: ChunkedArray) -> ChunkedArray:
    kind, family = column.type, family_of(column.type)
    if pa.types.is_float16(kind):
        return pc.cast(column, pa.float32())
    if family not in ("json", "other"):
        return column
    if pa.types.is_time64(kind):
        column = pc.cast(column, pa.time64("us"), safe=False)
    texts = (
        None if value is None else _document(value, kind) if family == "json" else str(value)
        for value in column.to_pylist()
    )
    return pa.chunked_array([pa.array(texts, pa.string())])


def _document(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "null"
    if pa.types.is_map(kind):
        pairs = (f"{json.dumps(str(key), ensure_ascii=False)}:{_document(one, kind.item_type)}" for key, one in value)
        return "{" + ",".join(pairs) + "}"
    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        pairs = (f"{json.dumps(f.name, ensure_ascii=False)}:{_document(value[f.name], f.type)}" for f in fields)
        return "{" + ",".join(pairs) + "}"
    if pa.types.is_nested(kind):
        return "[" + ",".join(_document(one, kind.value_type) for one in value) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return _float(repr(value))
    return _quoted(value)


def _object(labels: Sequence[str], values: Sequence[str | None]) -> str:
    pairs = (f"{label}:{value}" for label, value in zip(labels, values, strict=True) if value is not None)
    return "{" + ",".join(pairs) + "}"


def _json_values(column: ChunkedArray) -> list[str | None]:
    """Return the values of a column as JSON."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        # As doubles: the text of a shorter float means another number when it is read as a double.
        texts = pc.cast(pc.cast(column, pa.float64()), pa.string()).to_pylist()
        return [None if value is None else _float(value) for value in texts]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [None if value is None else json_value(value) for value in column.to_pylist()]
    if pa.types.is_nested(kind):
        return [None if value is None else _document(value, kind) for value in column.to_pylist()]
    return [None if value is None else _quoted(value) for value in python_values(column)]


def python_values(column: pa.Array | ChunkedArray) -> list[Any]:
    """Return the values of a column; dates and times of years that Python does not know as texts."""
    try:
        values: list[Any] = column.to_pylist()
    except OverflowError:
        texts = column.to_numpy(zero_copy_only=False).astype(str)
        return [text if is_there else None for text, is_there in zip(texts, column.is_valid().to_pylist(), strict=True)]
    return values


def _float(text: str) -> str:
    return f"{text}.0" if text.lstrip("-").isdigit() else _SPECIAL_FLOATS.get(text, text)


def _quoted(value: Any) -> str:
    if isinstance(value, bool | int | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if hasattr(value, "hour"):
        zone = "" if value.tzinfo is None else "Z"
        return f'"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}{zone}"'
    if isinstance(value, timedelta):
        return f'"{_interval(value)}"'
    return f'"{value.isoformat()}"'


def _interval(value: timedelta) -> str:
    """Return a duration as Spark writes it."""
    size = abs(value)
    fraction = f".{size.microseconds:06}".rstrip("0").rstrip(".")
    clock = f"{size.seconds // 3600:02}:{size.seconds // 60 % 60:02}:{size.seconds % 60:02}{fraction}"
    return f"INTERVAL '{'-' if value < timedelta(0) else ''}{size.days} {clock}' DAY TO SECOND"
