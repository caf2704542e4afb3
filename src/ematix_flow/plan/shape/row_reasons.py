"""Why a row could not be read, in words, from the failure that a shape notes for it; it reads no rows."""

from __future__ import annotations

import json

from ematix_flow.connect.base.stage import UNPARSED

MAX_CHARS = 80
"""Characters of a value that a reason shows."""


def reason_of(failure: str, raw: str | None) -> tuple[str, str]:
    """Return the column that a failure names, and why its value was refused; `raw` is the source row as JSON."""
    column, _, reason = failure.partition(": ")
    if reason:
        return column, reason
    value = _value(column, raw)
    return column, UNPARSED if value is None else f"{_shortened(value)} {UNPARSED}"


def _value(column: str, raw: str | None) -> object:
    """Return the value of the source; None where the column is made of others or the row is not known."""
    try:
        row = json.loads(raw or "{}")
    except ValueError:
        return None
    return row.get(column) if isinstance(row, dict) else None


def _shortened(value: object) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
