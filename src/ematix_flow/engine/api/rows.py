"""Rows given as Python values, as an Arrow table; they get the declared types where the values allow it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ematix_flow.connect.formats.json_lines import written
from ematix_flow.connect.formats.values import tree
from ematix_flow.connect.types.frames import arrow_table, is_frame
from ematix_flow.errors import DeclareTypeError, RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.declare.table.schema import Column, Table


def is_rows(value: Any) -> bool:
    """Return whether a value is a list of dicts."""
    return isinstance(value, list | tuple) and all(isinstance(row, dict) for row in value)


def arrow_frame(rows: Any, table: Table) -> Any:
    """Return rows or a frame as an Arrow table; a Spark frame stays as it is."""
    if is_rows(rows):
        return arrow_rows(rows, table)
    if is_frame(rows):
        return arrow_table(rows)
    message = f"rows cannot be {type(rows).__name__}"
    raise DeclareTypeError(message, hint="use a list of dicts, or a frame of pyarrow, pandas, polars or Spark.")


def arrow_rows(rows: Sequence[dict[str, Any]], table: Table) -> pa.Table:
    """Return the rows as an Arrow table: every name that a row has, and every declared one if there are no rows."""
    import pyarrow as pa

    declared = {column.name: column for column in table.columns}
    names = _names(rows) or dict.fromkeys(declared)
    arrays = [_array([row.get(name) for row in rows], declared.get(name)) for name in names]
    return pa.table(arrays, names=list(names))


def inferred_rows(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return the rows as an Arrow table in the types that their values show: every name that a row has."""
    import pyarrow as pa

    columns = {}
    for name in _names(rows):
        try:
            columns[name] = pa.array([_shown(row.get(name)) for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            message = f"the rows have values of several types as {name!r}, or of none: {error}"
            raise RunError(message, hint="convert them to one type, or pass target= a table class.") from None
    return pa.table(columns)


def _names(rows: Sequence[dict[str, Any]]) -> dict[str, None]:
    """Return every name that a row has, in the order of their appearance."""
    return dict.fromkeys(name for row in rows for name in row)


def _shown(value: Any) -> Any:
    """Return a value that shows Arrow its type: ids, which it knows only outside of documents, are text."""
    if isinstance(value, dict):
        return {name: _shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


def _array(values: list[Any], column: Column | None) -> pa.Array:
    """Return one column: in its declared type, else in the type the values have, else as text."""
    import pyarrow as pa

    from ematix_flow.connect.types.arrow import arrow_type

    plain = [_arrow_value(value) for value in values]
    bare = all(value is None for value in plain)
    # A normaliser may require the value as the source has it, for example text that it parses.
    declared_type = arrow_type(column.type) if column is not None and (bare or not column.normalizers) else None
    for data_type in (declared_type, None):
        if data_type is None and bare:
            continue
        try:
            return pa.array(plain, data_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            continue
    return pa.array([None if value is None else str(value) for value in plain], pa.string())


def _arrow_value(value: Any) -> Any:
    """Return a value that Arrow knows: documents and ids as text."""
    if isinstance(value, dict | list):
        return _document(value)
    return str(value) if isinstance(value, UUID) else value


def _document(value: dict[str, Any] | list[Any]) -> str:
    """Return JSON for a document; what JSON has no word for is a text, and a decimal a number with all its digits."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(written(tree(value)))
