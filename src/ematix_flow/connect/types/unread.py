"""Values that Arrow cannot carry from a database: their rows are marked, with the texts of the values; it reads none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.stage import FAILED, UNREAD

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Unread:
    """Values of a column that could not be carried."""

    column: str
    texts: pa.Array
    """The values as text; NULL where there was nothing to refuse."""
    reason: str
    """Why, with `{!r}` in place of the value."""


def marked_batch(names: Sequence[str], arrays: Sequence[pa.Array], unread: Sequence[Unread]) -> pa.RecordBatch:
    """Return a batch in which rows with such values are marked as failed; columns have NULL in place of them."""
    if not unread:
        return pa.RecordBatch.from_arrays(list(arrays), names=list(names))
    values: dict[int, dict[str, str]] = {}
    reasons: dict[int, str] = {}
    for one in unread:
        for row in pc.indices_nonzero(pc.is_valid(one.texts)).to_pylist():
            text = one.texts[row].as_py()
            values.setdefault(row, {})[one.column] = text
            reasons.setdefault(row, f"{one.column}: {one.reason.format(text)}")
    rows = range(len(unread[0].texts))
    columns = dict(zip(names, arrays, strict=True))
    failed = pa.array([reasons.get(row) for row in rows], pa.string())
    columns[FAILED] = pc.coalesce(columns[FAILED], failed) if FAILED in columns else failed
    texts = [json.dumps(values[row], ensure_ascii=False) if row in values else None for row in rows]
    columns[UNREAD] = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
