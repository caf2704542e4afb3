"""Source rows as JSON for rejects, written as Spark's `to_json` writes them: NULL is left out, no digit is lost."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

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


def _object(labels: Sequence[str], values: Sequence[str | None]) -> str:
    pairs = (f"{label}:{value}" for label, value in zip(labels, values, strict=True) if value is not None)
    return "{" + ",".join(pairs) + "}"


def _json_values(column: ChunkedArray) -> list[str | None]:
    """Return the values of a column as JSON."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        # The shortest text that parses to a number of this width.
        return [None if value is None else _float(value) for value in pc.cast(column, pa.string()).to_pylist()]
    if pa.types.is_nested(kind):
        return [
            None if value is None else json.dumps(value, ensure_ascii=False, default=str)
            for value in column.to_pylist()
        ]
    return [None if value is None else _quoted(value) for value in column.to_pylist()]


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
    return f'"{value.isoformat()}"'
