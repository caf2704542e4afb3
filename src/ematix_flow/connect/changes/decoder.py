"""Messages with change events as rows: the columns of the table, and those that say what a change does and when.

A message is no, one or several rows. One that changes nothing is a row that only says so, because it is counted where
the changes are; one that cannot be applied is reported with its message.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.connect.changes.change import (
    CHANGE_COLUMNS,
    DELETE,
    SKIP,
    TRUNCATE,
    UPDATE,
    ChangeError,
)
from ematix_flow.connect.changes.envelopes import ENVELOPES
from ematix_flow.connect.changes.left_out import note_left_out
from ematix_flow.connect.changes.order import arrival_order, version_of
from ematix_flow.connect.changes.values import converted
from ematix_flow.connect.formats.decoders import Decoded, Decoder
from ematix_flow.connect.formats.json_lines import object_of, row_of
from ematix_flow.connect.types.arrow import family_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.changes.change import Change
    from ematix_flow.connect.changes.schemas import ChangeReader
    from ematix_flow.declare.stream.cdc import CDC

KEY = "_key"
"""Column of a message's own key, which has the key of a row where a log does not keep deleted rows."""

_LOST = (
    "the row has got another key, and the log does not have this large value, which stayed as it was; with "
    "REPLICA IDENTITY FULL of its table it does"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """What a decoder knows of the table that changes are applied to."""

    name: str
    columns: tuple[tuple[str, str], ...]
    """Names of columns, with their declared kinds."""
    keys: tuple[str, ...]
    required: tuple[str, ...] = ()
    """Columns that are never NULL."""
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(name for name, _ in self.columns))


@dataclass(frozen=True, slots=True)
class ChangeDecoder(Decoder):
    """Change events of one envelope for one table."""

    cdc: CDC
    table: ChangeTable
    reader: ChangeReader | None = None
    """Reads payloads that have schemas in a registry; None where they are JSON."""
    keyed: bool = False
    """Whether messages have keys."""
    whole: bool = False
    """Whether a change that lacks columns cannot be applied, because it is a version of its own."""
    notes: str = ""
    """The id of the source under which columns that the table lacks are noted; empty where nobody asks."""
    format: ClassVar[str] = "json_lines"
    tombstones: ClassVar[bool] = False

    @property
    def metadata(self) -> tuple[str, ...]:
        """Return the message's own key, where there is one."""
        return (KEY,) if self.keyed else ()

    @property
    def changes(self) -> bool:
        """Return True: every row is a change."""
        return True

    @property
    def replays_messages(self) -> bool:
        """Return True: without its message nobody knows what a row would change."""
        return True

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the table, and those of a change."""
        import pyarrow as pa

        more = [pa.field(name, kind) for name, kind in zip(CHANGE_COLUMNS, change_types(), strict=True)]
        return pa.schema([*self.table_fields(), *more])

    @property
    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns of the table."""
        return tuple(SourceColumn(one.name, family_of(one.type), str(one.type)) for one in self.table_fields())

    def table_fields(self) -> list[pa.Field]:
        """Return the columns of the table."""
        import pyarrow as pa

        return [pa.field(name, pa.binary() if kind == "bytes" else pa.string()) for name, kind in self.table.columns]

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Return the changes of payloads whose messages have no place."""
        rows = _Rows(self)
        for number, payload in enumerate(payloads):
            rows.add(number, payload, "", None, None)
        return rows.decoded()

    def decode_messages(self, messages: pa.Table) -> Decoded:
        """Return the changes of messages, which have a place and mostly a time and a key."""
        names = messages.column_names
        none = [None] * messages.num_rows
        times = messages.column(EVENT_TIME).to_pylist() if EVENT_TIME in names else none
        keys = messages.column(KEY).to_pylist() if self.keyed and KEY in names else none
        offsets, payloads = messages.column(MESSAGE_OFFSET).to_pylist(), messages.column(VALUE).to_pylist()
        rows = _Rows(self)
        for number, (payload, offset, at, key) in enumerate(zip(payloads, offsets, times, keys, strict=True)):
            rows.add(number, payload, offset or "", at, key)
        return rows.decoded()

    def document_of(self, payload: bytes) -> dict[str, Any] | str:
        """Return the values of a message, or what is wrong with it."""
        if self.reader is not None:
            return self.reader.read(payload)
        if b"\\ud" in payload.lower() and isinstance(half := row_of(payload), str):
            return half
        return object_of(payload)

    def changes_of(self, payload: bytes | None, key: Any = None) -> list[Change] | str:
        """Return the changes of a message, none where it is no change, or why they cannot be applied."""
        if payload is None:
            return []
        document = self.document_of(payload)
        if isinstance(document, str):
            return document
        try:
            changes = ENVELOPES[self.cdc.envelope](document, self.cdc, self.table.keys)
            return [self._with_key(change, key) for change in changes if not self._is_left_out(change)]
        except ChangeError as error:
            return f"({error})"

    def _is_left_out(self, change: Change) -> bool:
        return change.operation == TRUNCATE and self.cdc.on_truncate == "skip"

    def _with_key(self, change: Change, key: Any) -> Change:
        """Return a change that has its key, from the message's own where the event lacks it; refuse one without."""
        if change.operation == TRUNCATE:
            return change
        values = change.values
        missing = [name for name in self.table.keys if values.get(name) is None]
        if missing:
            values = {**values, **{name: value for name, value in _key_values(key).items() if name in missing}}
            missing = [name for name in self.table.keys if values.get(name) is None]
        if missing:
            message = f"a change of {self.table.name} without its key {', '.join(missing)}"
            raise ChangeError(message)
        return replace(change, values=values)


@dataclass(slots=True)
class _Rows:
    """The rows of some messages while they are put together."""

    decoder: ChangeDecoder
    values: list[list[Any]] = field(default_factory=list)
    wrong: list[str | None] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """How many changes have each column that the table lacks."""

    def add(self, number: int, payload: bytes | None, offset: str, at: datetime | None, key: Any) -> None:
        """Add the rows of a message."""
        changes = self.decoder.changes_of(payload, key)
        none: list[Any] = [None] * len(self.decoder.table.columns)
        if isinstance(changes, str):
            self._row(number, [*none, SKIP, "", None, None, None], changes)
            return
        if not changes:
            self._row(number, [*none, SKIP, "", None, None, None], None)
        for index, change in enumerate(changes):
            try:
                self._row(number, self._change(change, arrival_order(offset, index), at), None)
            except ChangeError as error:
                self._row(number, [*none, SKIP, "", None, None, None], f"({error})")

    def decoded(self) -> Decoded:
        """Return all rows."""
        import pyarrow as pa

        types = [*(one.type for one in self.decoder.table_fields()), *change_types()]
        columns = zip(*self.values, strict=True) if self.values else [()] * len(types)
        arrays = tuple(pa.array(one, kind) for one, kind in zip(columns, types, strict=True))
        if self.decoder.notes:
            note_left_out(self.decoder.notes, self.left_out)
        return Decoded(arrays, self.wrong, self.messages)

    def _row(self, number: int, row: list[Any], wrong: str | None) -> None:
        self.values.append(row)
        self.wrong.append(wrong)
        self.messages.append(number)

    def _change(self, change: Change, arrival: str, at: datetime | None) -> list[Any]:
        cdc, table = self.decoder.cdc, self.decoder.table
        self._check_unknown(change)
        if self.decoder.whole and change.operation == TRUNCATE:
            message = 'a history does not know which rows a truncated table had; on_truncate="skip" leaves it out'
            raise ChangeError(message)
        row, carries = [], ""
        for name, kind in table.columns:
            value, carried = self._value(change, name, kind)
            row.append(value)
            carries += "1" if carried else "0"
        at_ms = change.at_ms
        if at_ms is None and at is not None:
            at_ms = (at - _EPOCH) // timedelta(milliseconds=1)
        if self.decoder.whole and at_ms is None:
            message = "a version needs the time of its change"
            raise ChangeError(message)
        version = version_of(change.order, arrival, at_ms, unique=change.unique)
        full = "0" not in carries or (cdc.missing_columns == "null" and change.operation != DELETE)
        instant = None if at_ms is None else _EPOCH + timedelta(milliseconds=at_ms)
        return [*row, change.operation, version, instant, at_ms, None if full else carries]

    def _value(self, change: Change, name: str, kind: str) -> tuple[str | bytes | None, bool]:
        """Return the value of a column, and whether the change carries it."""
        cdc, table = self.decoder.cdc, self.decoder.table
        if name == cdc.soft_delete_column:
            return None, True  # a row that is written is not deleted
        if name not in change.values:
            if name in change.lost and cdc.missing_columns == "keep" and self.decoder.changes:
                message = f"{name}: {_LOST}"
                raise ChangeError(message)
            if name in table.required and change.operation not in (UPDATE, DELETE, TRUNCATE):
                message = f"{name}: the change creates a row and carries no value for it"
                raise ChangeError(message)
            if self.decoder.whole and cdc.missing_columns == "keep" and change.operation not in (DELETE, TRUNCATE):
                message = f"{name}: the change does not carry it, and a version needs whole rows"
                raise ChangeError(message)
            return None, False
        try:
            value = converted(change.values[name], kind, change.semantics.get(name), cdc.time_unit)
        except ChangeError as error:
            message = f"{name}: {error}"
            raise ChangeError(message) from None
        if value is None and name in table.required and change.operation != DELETE:
            message = f"{name}: is NULL but the column is NOT NULL"
            raise ChangeError(message)
        return value, True

    def _check_unknown(self, change: Change) -> None:
        """Count columns that the table lacks, or refuse the change; those of a row that is deleted are not missed."""
        if change.operation == DELETE or self.decoder.table.names.issuperset(change.values):
            return
        unknown = [name for name in change.values if name not in self.decoder.table.names]
        self.left_out.update(unknown)
        if self.decoder.cdc.schema_evolution == "fail":
            message = f"the change has the column {unknown[0]!r}, which {self.decoder.table.name} lacks"
            raise ChangeError(message)


def change_types() -> list[pa.DataType]:
    """Return the types of the columns that a change has besides those of its table."""
    import pyarrow as pa

    return [pa.string(), pa.string(), pa.timestamp("us", tz="UTC"), pa.int64(), pa.string()]


def _key_values(key: Any) -> Mapping[str, Any]:
    """Return the columns in the key of a message: an object of JSON, with or without its schema."""
    if key is None:
        return {}
    try:
        document = json.loads(key)
    except (ValueError, RecursionError):
        return {}
    if isinstance(document, dict) and isinstance(document.get("payload"), dict):
        document = document["payload"]
    return document if isinstance(document, dict) else {}
