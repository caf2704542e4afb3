"""The envelopes of change events besides Debezium's: Maxwell, Canal, AWS DMS, and those that a declaration describes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.changes.change import (
    CREATE,
    DELETE,
    READ,
    TRUNCATE,
    UPDATE,
    Change,
    ChangeError,
    declared_operation,
)
from ematix_flow.connect.changes.debezium import read_debezium
from ematix_flow.connect.changes.order import LAST_ROW, field_order, milliseconds, position_order
from ematix_flow.connect.changes.paths import at_path, key_at, object_at, same_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from ematix_flow.declare.stream.cdc import CDC

    Envelope: TypeAlias = Callable[[Mapping[str, Any], CDC, Sequence[str]], list[Change]]

_MAXWELL = {"insert": CREATE, "update": UPDATE, "delete": DELETE, "bootstrap-insert": READ}
_CANAL = {"INSERT": CREATE, "UPDATE": UPDATE, "DELETE": DELETE, "TRUNCATE": TRUNCATE}
_DMS = {"load": READ, "insert": CREATE, "update": UPDATE, "delete": DELETE, "truncate-table": TRUNCATE}


def read_maxwell(document: Mapping[str, Any], cdc: CDC, keys: Sequence[str]) -> list[Change]:
    """Return the changes of a message of Maxwell, its bootstrap included."""
    code = at_path(document, cdc.op_field or "type")
    operation = declared_operation(code, cdc.op_map) or _MAXWELL.get(str(code))
    if operation is None:
        return []
    common: dict[str, Any] = {
        "order": _declared_order(document, cdc, operation)
        or position_order(document.get("position"), _row_number(document)),
        "at_ms": milliseconds(at_path(document, cdc.ts_field or "ts")),
    }
    if operation == TRUNCATE:
        return [Change(TRUNCATE, **common)]
    row = object_at(document, cdc.after_field or "data")
    if row is None:
        raise ChangeError("a change without its row (data)")
    old = object_at(document, cdc.before_field or "old") if operation == UPDATE else None
    return _with_move(operation, row, {**row, **old} if old else None, keys, common)


def _row_number(document: Mapping[str, Any]) -> object:
    """Return the number of a row in its transaction; the last one, which commits that, is told without its number."""
    number = document.get("xoffset")
    return LAST_ROW if number is None and document.get("commit") is True else number


def read_canal(document: Mapping[str, Any], cdc: CDC, keys: Sequence[str]) -> list[Change]:
    """Return the changes of a message of Canal, which has the rows of one statement."""
    code = at_path(document, cdc.op_field or "type")
    operation = declared_operation(code, cdc.op_map) or _CANAL.get(str(code).upper())
    if operation is None:
        return []
    common: dict[str, Any] = {
        "order": _declared_order(document, cdc, operation),
        "at_ms": milliseconds(at_path(document, cdc.ts_field or "es")),
    }
    if operation == TRUNCATE:
        return [Change(TRUNCATE, **common)]
    rows, old = at_path(document, cdc.after_field or "data"), at_path(document, cdc.before_field or "old")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ChangeError("a change without its rows (data)")
    changes = []
    for number, row in enumerate(rows):
        before = old[number] if isinstance(old, list) and number < len(old) and operation == UPDATE else None
        earlier = {**row, **before} if isinstance(before, dict) else None
        changes += _with_move(operation, row, earlier, keys, common)
    return changes


def read_dms(document: Mapping[str, Any], cdc: CDC, keys: Sequence[str]) -> list[Change]:
    """Return the changes of a message of AWS DMS."""
    reported = document.get("metadata")
    metadata = reported if isinstance(reported, dict) else {}
    code = at_path(document, cdc.op_field) if cdc.op_field else metadata.get("operation")
    operation = declared_operation(code, cdc.op_map) or _DMS.get(str(code))
    if operation is None:
        return []
    at = (
        at_path(document, cdc.ts_field) if cdc.ts_field else metadata.get("commit-timestamp", metadata.get("timestamp"))
    )
    common: dict[str, Any] = {"order": _declared_order(document, cdc, operation), "at_ms": milliseconds(at)}
    if operation == TRUNCATE:
        return [Change(TRUNCATE, **common)]
    row = object_at(document, cdc.after_field or "data")
    if row is None:
        raise ChangeError("a change without its row (data)")
    before = object_at(document, cdc.before_field or "before-image") if operation == UPDATE else None
    return _with_move(operation, row, {**row, **before} if before else None, keys, common)


def read_custom(document: Mapping[str, Any], cdc: CDC, keys: Sequence[str]) -> list[Change]:
    """Return the changes of a message whose fields the declaration names."""
    operation = declared_operation(at_path(document, str(cdc.op_field)), cdc.op_map)
    if operation is None:
        return []
    common: dict[str, Any] = {
        "order": _declared_order(document, cdc, operation),
        "at_ms": milliseconds(at_path(document, cdc.ts_field)) if cdc.ts_field else None,
    }
    if operation == TRUNCATE:
        return [Change(TRUNCATE, **common)]
    after = object_at(document, str(cdc.after_field))
    before = object_at(document, cdc.before_field) if cdc.before_field else None
    key = key_at(document, str(cdc.key_field), keys)
    known = {name: value for name, value in (before or {}).items() if value is not None}
    earlier = {**key, **(after or {}), **known}
    if operation == DELETE:
        return [Change(DELETE, {**earlier, **key}, **common)]
    if after is None:
        raise ChangeError(f"a change without the row that it leaves ({cdc.after_field})")
    row = {**{name: known[name] for name in keys if name in known}, **key, **after}
    return _with_move(operation, row, earlier if operation == UPDATE else None, keys, common)


def _declared_order(document: Mapping[str, Any], cdc: CDC, operation: str) -> str:
    """Return the place of an event in the field that the declaration names for it; empty where it names none."""
    return field_order(document, cdc.order_field, operation) if cdc.order_field else ""


def _with_move(
    operation: str,
    row: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    keys: Sequence[str],
    common: Mapping[str, Any],
) -> list[Change]:
    """Return a change, after the end of the old key where an update changed that."""
    change = Change(operation, dict(row), **common)
    if before is None or any(before.get(key) is None for key in keys) or same_key(before, row, keys):
        return [change]
    return [Change(DELETE, {key: before[key] for key in keys}, **common), replace(change, moved=True)]


ENVELOPES: dict[str, Envelope] = {
    "debezium": read_debezium,
    "maxwell": read_maxwell,
    "canal": read_canal,
    "aws_dms": read_dms,
    "custom": read_custom,
}
