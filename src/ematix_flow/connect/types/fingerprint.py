"""Fingerprints of tables: the number of rows and a sum of their hashes.

What a row's hash is computed from, each system defines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.columns import TableName


EMPTY = "empty"
"""The fingerprint of every table without rows."""


def sum_sql(table: str, row_hash: str) -> str:
    """Return the query; a sum does not depend on the order of rows, and distinguishes one row from two equal ones."""
    return f"SELECT COUNT(*), COALESCE(SUM({row_hash}), 0) FROM {table}"


def format_fingerprint(rows: Sequence[tuple[Any, ...]]) -> str:
    """Return what the query answered as a text."""
    count, total = rows[0]
    return f"{int(count)}:{int(total)}" if count else EMPTY


def shortest(decimal: str) -> str:
    """Return the text of a decimal number without the zeros that a larger scale would add."""
    trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {decimal}))"
    return f"CASE WHEN {decimal} LIKE '%.%' THEN {trimmed} ELSE {decimal} END"


def qualified(table: TableName) -> str:
    """Return a table's name in double quotes."""
    return ".".join(quoted(name) for name in (table.schema, table.name) if name)
