"""Reads how an Iceberg table is divided from the output of DESCRIBE; it queries nothing itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.table.partitions import TRANSFORMS, Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS, _TRANSFORMS = "# Partition Information", "# Partitioning"
_CALL = re.compile(r"(\w+)\((?:(\d+), )?(.*?)(?:, (\d+))?\)", re.DOTALL)


def described_partitions(rows: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    """Return the partitions as a declaration spells them; one that it cannot spell stays as Spark writes it."""
    begins = [number for number, row in enumerate(rows) if row[0] in (_COLUMNS, _TRANSFORMS) and not row[1]]
    if not begins:
        return ()
    # Columns come first and may be called anything, so the last such line is the one that begins the partitions.
    first, section = begins[-1], rows[begins[-1] + 1 :]
    if rows[first][0] == _COLUMNS:
        return tuple(_unquoted(str(row[0])) for row in section[1:])
    return tuple(_spelled(str(row[1])) for row in section if str(row[0]).startswith("Part "))


def _spelled(transform: str) -> str:
    call = _CALL.fullmatch(transform)
    if call is None:
        return _unquoted(transform)
    number = call[2] or call[4]
    if call[1] == "identity":
        return _unquoted(call[3])
    if call[1] not in TRANSFORMS:
        return transform
    return str(Partition(_unquoted(call[3]), call[1], int(number) if number else None))


def _unquoted(name: str) -> str:
    """Return a name without the quotes that Spark puts around one that needs them."""
    quoted = len(name) > 1 and name[0] == name[-1] == "`"
    return name[1:-1].replace("``", "`") if quoted else name
