"""What a folder of files holds for the crash tests: the rows that its records name, and every file too many or too few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.table.types import Text
from ematix_flow.failpoints import NAMES, STORE_NAMES
from tests.contracts.file_flows import rows_as_recorded

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.declare.table.schema import Table

FOLDER = "object_store_local"

FOLDER_POINTS = (
    *(name for name in NAMES if not name.startswith("post.")),
    *(f"{name}@{n}" for name in STORE_NAMES for n in ((1,) if name == "store.mid_settle" else (1, 2))),
)
"""The failpoints that a load passes; `@2` is the second passing, which commits its rows."""


def in_files(lake: Database, table: Table, *, resolved: bool = False) -> list[tuple[Any, ...]]:
    """Return the rows with the id of their load; a wrong file is a row that nobody expects, with a key below zero."""
    types = {column.name: column.type for column in table.columns} | {"_batch_id": Text()}
    try:
        rows = rows_as_recorded(lake, table.schema, table.name, types, resolved=resolved)  # type: ignore[arg-type]
    except AssertionError as error:
        return [(-1, -1, f"{error}", "")]
    return [tuple(row[name] for name in types) for row in rows]


def unsettled(lake: Database, table: Table) -> list[tuple[Any, ...]]:
    """Return what is wrong with the files when nobody has anything left to do."""
    return [row for row in in_files(lake, table, resolved=True) if row[0] < 0]
