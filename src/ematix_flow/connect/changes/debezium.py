"""Debezium's envelope, with or without its schema, and rows that its own flattening made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.changes.change import (
    CREATE,
    DELETE,
    READ,
    TRUNCATE,
    UPDATE,
    Change,
    ChangeError,
    Semantic,
    declared_operation,
)
from ematix_flow.connect.changes.order import field_order, log_order, milliseconds
from ematix_flow.connect.changes.paths import at_path, object_at, same_key
from ematix_flow.connect.changes.values import BYTES, FLOATS, count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from ematix_flow.declare.stream.cdc import CDC

ABSENT = "__debezium_unavailable_value"
_AS_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
ABSENT_TEXTS = (ABSENT, _AS_BYTES, f'{{"{ABSENT}":"{ABSENT}"}}')
"""What stands for a value that the log does not have because it was not changed, also as bytes and as a map."""

WHOLE = "whole"
"""Says of a row, in the block of its source, that it has every column that its table had; logs that are read here say so."""

_ABSENT_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
_ABSENT_LISTS = ([ABSENT], [_AS_BYTES], [_ABSENT_UUID], [str(code) for code in ABSENT.encode()])
"""The same for arrays of texts, bytes, UUIDs and whole numbers, as texts."""

_LENGTHS = {len(one) for one in _ABSENT_LISTS}

_NAMELESS = (BYTES, *FLOATS)
"""Types of a schema that say what a value means, without a name."""

_OPERATIONS = {"c": CREATE, "r": READ, "u": UPDATE, "d": DELETE, "t": TRUNCATE}
_FLAT = "__"
"""How the fields begin that a flattened row has besides its columns."""
_SOURCE = "source_"
"""How those of them go on that are of its source."""


def read_debezium(document: Mapping[str, Any], cdc: CDC, keys: Sequence[str]) -> list[Change]:
    """Return the changes of a message; none for one that changes no row."""
    payload, semantics = unwrapped(document)
    if payload is None:
        return []
    code = at_path(payload, cdc.op_field or "op")
    operation = declared_operation(code, cdc.op_map) or _OPERATIONS.get(str(code))
    if operation is None or (is_flattened(payload) and not cdc.op_field):
        return _flattened(payload, cdc, keys, semantics)
    source = payload.get("source")
    order, unique = log_order(source if isinstance(source, dict) else {})
    if cdc.order_field:
        order, unique = field_order(payload, cdc.order_field, operation), False
    at_ms = _time(payload, source, cdc)
    before, after = object_at(payload, cdc.before_field or "before"), object_at(payload, cdc.after_field or "after")
    common: dict[str, Any] = {"order": order, "unique": unique, "at_ms": at_ms, "semantics": semantics}
    if operation == TRUNCATE:
        return [Change(TRUNCATE, **common, of_snapshot=_is_snapshot(source))]
    if operation == DELETE:
        return [Change(DELETE, _before(before or {}), **common)]
    if after is None:
        raise ChangeError("a change without the row that it leaves (after)")
    ended = [Change(DELETE, _before(before), **common)] if _is_moved(before, after, keys) else []
    carried = _carried(after)
    whole = isinstance(source, dict) and source.get(WHOLE) is True
    change = Change(operation, carried, **common, moved=bool(ended), lost=_lost(operation, after, carried), whole=whole)
    return [*ended, change]


def unwrapped(document: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, dict[str, Semantic]]:
    """Return the payload without its schema, and what that says of the columns."""
    is_change = "op" in document or is_flattened(document)
    if "payload" not in document or is_change:  # a row may have a column of that name
        return document, {}
    payload = document["payload"]
    semantics = _semantics(document.get("schema"))
    return (payload if isinstance(payload, dict) else None), semantics


def is_flattened(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload is a row that Debezium flattened, whose columns may be named as fields of an envelope."""
    return f"{_FLAT}op" in payload or f"{_FLAT}deleted" in payload


def _semantics(schema: Any) -> dict[str, Semantic]:
    """Return the logical types of the columns, which the schema tells for the row before and after alike."""
    blocks = _fields(schema)
    rows = (_fields(one) for one in blocks if one.get("field") in ("after", "before"))
    return {
        str(one.get("field")): _semantic(one)
        for one in next(rows, blocks)
        if one.get("name") or one.get("type") in _NAMELESS
    }


def _fields(schema: Any) -> list[dict[str, Any]]:
    """Return the fields of a schema, as far as it has any."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [one for one in fields if isinstance(one, dict)] if isinstance(fields, list) else []


def _semantic(field: Mapping[str, Any]) -> Semantic:
    reported = field.get("parameters")
    parameters = reported if isinstance(reported, dict) else {}
    length = count_of(parameters.get("length"))
    return Semantic(str(field.get("name") or field.get("type")), count_of(parameters.get("scale")), length or 0)


def _is_snapshot(source: Any) -> bool:
    """Return whether a message is of a snapshot, as its source block says."""
    reported = source.get("snapshot") if isinstance(source, dict) else None
    return str(reported or "false").lower() != "false"


def _time(payload: Mapping[str, Any], source: Any, cdc: CDC) -> int | Decimal | None:
    if cdc.ts_field:
        return milliseconds(at_path(payload, cdc.ts_field))
    reported = source.get("ts_ms") if isinstance(source, dict) else None
    return milliseconds(payload.get("ts_ms") if reported is None else reported)


def _carried(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not _is_absent(value)}


def _lost(operation: str, row: Mapping[str, Any], carried: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that a row lacks though it is a new one: an update changed its key, and not them."""
    return () if operation == UPDATE or len(row) == len(carried) else tuple(name for name in row if name not in carried)


def _is_absent(value: Any) -> bool:
    """Return whether a value stands for one that the log does not have."""
    if isinstance(value, str):
        return value in ABSENT_TEXTS
    if isinstance(value, dict):
        return value == {ABSENT: ABSENT}
    return isinstance(value, list) and len(value) in _LENGTHS and [str(one) for one in value] in _ABSENT_LISTS


def _before(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what is known of a row that is gone: a log that keeps only its key has NULL for the rest."""
    return {name: value for name, value in _carried(row or {}).items() if value is not None}


def _is_moved(before: Mapping[str, Any] | None, after: Mapping[str, Any], keys: Sequence[str]) -> bool:
    if before is None or any(before.get(key) is None for key in keys):
        return False
    return not same_key(before, after, keys)


def _flattened(row: Mapping[str, Any], cdc: CDC, keys: Sequence[str], semantics: dict[str, Semantic]) -> list[Change]:
    """Return the change of a row that Debezium flattened, which tells its operation in a field of its own."""
    if not is_flattened(row):
        return []
    deleted = str(row.get(f"{_FLAT}deleted", "")).lower() == "true"
    code = row.get(f"{_FLAT}op", "u")
    operation = DELETE if deleted else declared_operation(code, cdc.op_map) or _OPERATIONS.get(str(code))
    if operation is None:
        return []
    source = _reported(row)
    order, unique = log_order(source)
    if cdc.order_field:
        order, unique = field_order(row, cdc.order_field, operation), False
    named = at_path(row, cdc.ts_field) if cdc.ts_field else None
    at_ms = milliseconds(source.get("ts_ms") if named is None else named)
    values = {name: value for name, value in row.items() if not name.startswith(_FLAT) or name in keys}
    carried = _before(values) if operation == DELETE else _carried(values)
    return [Change(operation, carried, order, unique, at_ms, semantics)]


def _reported(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a flattened row tells of its source; what the connector says of itself counts only where that is silent."""
    fields = {name.removeprefix(_FLAT): value for name, value in row.items() if name.startswith(_FLAT)}
    source = {name.removeprefix(_SOURCE): value for name, value in fields.items() if name.startswith(_SOURCE)}
    return fields | {name: value for name, value in source.items() if value is not None}
