"""Columns that change events have and their table lacks, with the types of the source, or those that their values show."""

from __future__ import annotations

from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.combined_source import CombinedSource
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, MOST_FIELDS, VALUE, from_text
from ematix_flow.connect.change_log.source import ChangeLogSource
from ematix_flow.connect.changes.change import DELETE, KEY, ChangeError
from ematix_flow.connect.changes.values import BYTES, CLOCKS, DATES, DECIMAL, FLOATS, UNITS, VARIABLE, converted
from ematix_flow.connect.formats.json_lines import Number
from ematix_flow.connect.types.existing import MOST_DIGITS
from ematix_flow.connect.types.reflected import mirrored_type
from ematix_flow.declare.table.schema import Column, check_name
from ematix_flow.declare.table.types import (
    JSONB,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Numeric,
    Text,
    Timestamp,
    TimestampTZ,
)
from ematix_flow.errors import OWN_PREFIX, DeclareError, PlanError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.connect.changes.change import Change, Semantic
    from ematix_flow.connect.changes.decoder import ChangeDecoder
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.plan.steps import OffsetRange

_LARGEST = 2**63 - 1
_LARGEST_DIGITS = len(str(_LARGEST))
_MOST_DECIMALS = 30
"""Digits behind the point that every system can store."""
_DECIMALS = 18
"""Digits behind the point for which a column has room, because later values may have more than the first ones."""

_NAMED: dict[str, ColumnType] = {
    **dict.fromkeys(DATES, Date()),
    **dict.fromkeys(UNITS, Timestamp()),
    **dict.fromkeys(CLOCKS, Text()),
    **dict.fromkeys(FLOATS, Double()),
    BYTES: Bytes(),
}
"""What the types of schemas become; a time of day is written as text."""


def new_columns(source: StreamSource, offsets: OffsetRange, decoder: ChangeDecoder) -> tuple[Column, ...]:
    """Return the columns of changes in a range that the table lacks; one without any value shows no type yet.

    Of names that differ only in case, which are one column to most databases, the first is added.
    """
    known = {name.lower() for name, _ in decoder.table.columns}
    types: dict[str, ColumnType] = {}
    spelled: dict[str, str] = {}
    for change in _changes(source, offsets, decoder):
        for name, value in change.values.items():
            if value is None or name.lower() in known or name.lower().startswith(OWN_PREFIX):
                continue
            if spelled.setdefault(name.lower(), name) == name:
                types[name] = _wider(types.get(name), _type_of(value, change.semantics.get(name)))
    types = {name: _roomy(kind) for name, kind in types.items()} | _catalog_types(source, types)
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
    for partition in source.plan_partitions(begin, end, decoder.metadata):
        for messages in partition.read():
            assert MESSAGE_OFFSET in messages.column_names  # noqa: S101 - as every source returns them
            keyed = decoder.keyed and KEY in messages.column_names
            keys = messages.column(KEY).to_pylist() if keyed else [None] * messages.num_rows
            for payload, key in zip(messages.column(VALUE).to_pylist(), keys, strict=True):
                changes = decoder.changes_of(payload, key)
                if not isinstance(changes, str):
                    yield from (change for change in changes if change.operation != DELETE)


def _catalog_types(source: StreamSource, names: Collection[str]) -> dict[str, ColumnType]:
    """Return the types that columns have in the tables whose log is read; none where messages are all that is known."""
    catalogued: dict[str, ColumnType] = {}
    for part in source.parts if isinstance(source, CombinedSource) else (source,):
        if not names or not isinstance(part, ChangeLogSource):
            continue
        database = part.catalog()
        with closing(database.session()) as session:
            tables = [database.find_table(session, database.table_name(one.schema, one.name)) for one in part.tables()]
        for column in (column for table in tables if table is not None for column in table.columns):
            if column.name in names:
                catalogued[column.name] = _wider(catalogued.get(column.name), mirrored_type(database, column))
    return catalogued


def _type_of(value: Any, semantic: Semantic | None) -> ColumnType:
    """Return the type of a value: the one that its schema says, or the one that it shows."""
    if semantic is None:
        return _shown_type(value)
    if semantic.name == DECIMAL and semantic.scale is not None and 0 <= semantic.scale <= MOST_DIGITS:
        return Numeric(MOST_DIGITS, semantic.scale)
    if semantic.name == VARIABLE:
        return _variable_type(value, semantic)
    return _NAMED.get(semantic.name) or _shown_type(value)


def _shown_type(value: Any) -> ColumnType:
    if isinstance(value, bool):
        return Boolean()
    if isinstance(value, float):
        return Double()
    if isinstance(value, Number | int | Decimal):
        return _number_type(format(value, "f") if isinstance(value, Decimal) else str(value))
    if isinstance(value, bytes):
        return Bytes()
    if isinstance(value, date):
        return _time_type(value)
    return JSONB() if isinstance(value, dict | list) else Text()


def _time_type(value: date) -> ColumnType:
    """Return the type of a date or an instant, as which a schema of Avro has them."""
    if not isinstance(value, datetime):
        return Date()
    return Timestamp() if value.tzinfo is None else TimestampTZ()


def _variable_type(value: Any, semantic: Semantic) -> ColumnType:
    """Return the type of a number that says its own scale; one that cannot be read is told where it is converted."""
    try:
        return _number_type(str(converted(value, "numeric", semantic)))
    except ChangeError:
        return Text()


def _number_type(written: str) -> ColumnType:
    """Return the type that has all digits of a number; one with an exponent is no exact number."""
    if "e" in written.lower():
        return Double()
    whole, _, decimals = written.lstrip("-").partition(".")
    if not decimals and len(whole) <= _LARGEST_DIGITS and int(whole) <= _LARGEST:
        return BigInt()
    return _exact(len(whole.lstrip("0")), len(decimals))


def _exact(whole: int, decimals: int) -> ColumnType:
    digits = whole + decimals
    return Numeric(digits, decimals) if digits <= MOST_DIGITS and decimals <= _MOST_DECIMALS else Text()


def _roomy(kind: ColumnType) -> ColumnType:
    """Return a type that has room for more digits than were seen."""
    if not isinstance(kind, Numeric):
        return kind
    free = MOST_DIGITS - (kind.precision - kind.scale)
    return Numeric(MOST_DIGITS, min(max(kind.scale, _DECIMALS), free) if kind.scale else 0)


def _wider(first: ColumnType | None, second: ColumnType) -> ColumnType:
    if first is None or first == second:
        return second
    match sorted((first, second), key=lambda one: one.kind):
        case [BigInt(), Double()] | [Double(), Numeric()]:
            return Double()
        case [BigInt(), Numeric(precision=precision, scale=scale)]:
            return _exact(max(_LARGEST_DIGITS, precision - scale), scale)
        case [Numeric(precision=one, scale=few), Numeric(precision=other, scale=many)]:
            return _exact(max(one - few, other - many), max(few, many))
    return Text()


def _is_nameable(name: str) -> bool:
    try:
        check_name("column", name, None)
    except DeclareError:
        return False
    return True
