"""The declared type of a column that is there already: the one whose DDL gives what was found; it asks nobody."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.declare import types

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database
    from ematix_flow.declare.types import ColumnType

_SIZE = re.compile(r"\((\d+)(?:,\s*(\d+))?\)")
_PLAIN: tuple[ColumnType, ...] = (
    types.BigInt(),
    types.Integer(),
    types.SmallInt(),
    types.Double(),
    types.Float(),
    types.Boolean(),
    types.TimestampTZ(),
    types.Timestamp(),
    types.Date(),
    types.UUID(),
    types.JSONB(),
    types.JSON(),
    types.Bytes(),
    types.Text(),
)
_LOOSE: tuple[tuple[str, ColumnType], ...] = (
    ("numeric", types.Numeric(38, 18)),
    ("decimal", types.Numeric(38, 18)),
    ("varchar", types.Text()),
    ("char", types.Text()),
    ("int", types.BigInt()),
    ("float", types.Double()),
    ("real", types.Double()),
    ("timestamp", types.TimestampTZ()),
)
"""Types that say less than ours do, by how they begin."""


def found_type(database: Database, native: str) -> ColumnType | None:
    """Give the declared type for the type of a column as a database names it; None where no declaration has it."""
    for candidate in (*_sized(native), *_PLAIN):
        if database.same_type(native, database.ddl_type(candidate)):
            return candidate
    plain = native.lower()
    return next((kind for word, kind in _LOOSE if plain.startswith(word)), None)


def _sized(native: str) -> tuple[ColumnType, ...]:
    size = _SIZE.search(native)
    if size is None:
        return ()
    first = int(size[1])
    if size[2] is None:
        return (types.String(first), types.Numeric(first, 0))
    return (types.Numeric(first, int(size[2])),)
