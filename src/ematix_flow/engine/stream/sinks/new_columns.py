"""Columns that change events have and their table lacks, with the types that their values show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, MOST_FIELDS, VALUE, from_text
from ematix_flow.connect.changes.change import DELETE
from ematix_flow.connect.changes.values import DATES, DECIMAL, UNITS
from ematix_flow.connect.formats.json_lines import Number
from ematix_flow.declare.table.schema import Column, check_name
from ematix_flow.declare.table.types import JSONB, BigInt, Boolean, Date, Double, Numeric, Text, Timestamp
from ematix_flow.errors import OWN_PREFIX, DeclareError, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.connect.changes.change import Change, Semantic
    from ematix_flow.connect.changes.decoder import ChangeDecoder
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.plan.steps import OffsetRange

_WIDER = {(BigInt, Double): Double, (Double, BigInt): Double}


def new_columns(source: StreamSource, offsets: OffsetRange, decoder: ChangeDecoder) -> tuple[Column, ...]:
    """Return the columns of changes in a range that the table lacks; one without any value shows no type yet."""
    known = {name.lower() for name, _ in decoder.table.columns}
    types: dict[str, ColumnType] = {}
    for change in _changes(source, offsets, decoder):
        for name, value in change.values.items():
            if value is None or name.lower() in known or name.lower().startswith(OWN_PREFIX):
                continue
            types[name] = _wider(types.get(name), _type_of(value, change.semantics.get(name)))
    if len(types) + len(known) > MOST_FIELDS:
        message = f"the changes of one batch have {len(types)} columns that {decoder.table.name} lacks"
        raise PlanError(message, hint='schema_evolution="skip" leaves them out.')
    keys = decoder.table.keys
    return tuple(
        Column(kind, nullable=name not in keys, primary_key=name in keys, name=name)
        for name, kind in types.items()
        if _is_nameable(name)
    )


def _changes(source: StreamSource, offsets: OffsetRange, decoder: ChangeDecoder) -> Iterator[Change]:
    begin, end = from_text(offsets.begin), from_text(offsets.end)
    for partition in source.plan_partitions(begin, end, ()):
        for messages in partition.read():
            assert MESSAGE_OFFSET in messages.column_names  # noqa: S101 - as every source returns them
            for payload in messages.column(VALUE).to_pylist():
                changes = decoder.changes_of(payload)
                if not isinstance(changes, str):
                    yield from (change for change in changes if change.operation != DELETE)


def _type_of(value: Any, semantic: Semantic | None) -> ColumnType:
    name = "" if semantic is None else semantic.name
    if name in DATES:
        return Date()
    if name in UNITS:
        return Timestamp()
    if name == DECIMAL and semantic is not None:
        return Numeric(38, semantic.scale)
    if isinstance(value, bool):
        return Boolean()
    if isinstance(value, Number | int | float):
        return BigInt() if str(value).lstrip("-").isdigit() else Double()
    return JSONB() if isinstance(value, dict | list) else Text()


def _wider(first: ColumnType | None, second: ColumnType) -> ColumnType:
    if first is None or first == second:
        return second
    wider = _WIDER.get((type(first), type(second)))
    return wider() if wider is not None else Text()


def _is_nameable(name: str) -> bool:
    try:
        check_name("column", name, None)
    except DeclareError:
        return False
    return True
