"""Messages with change events as rows: the columns of the table, and those that say what a change does and when.

A message is no, one or several rows. One that changes nothing is a row that only says so, because it is counted where
the changes are; one that cannot be applied is reported with its message.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import FIELDS, MESSAGE_OFFSET, VALUE
from ematix_flow.connect.changes.change import CHANGE_COLUMNS, KEY, TRUNCATE, ChangeError
from ematix_flow.connect.changes.debezium import unwrapped
from ematix_flow.connect.changes.envelopes import ENVELOPES
from ematix_flow.connect.changes.paths import key_at
from ematix_flow.connect.changes.rows import ChangeRows, change_types
from ematix_flow.connect.formats.decoders import Decoder
from ematix_flow.connect.formats.json_lines import object_of, row_of
from ematix_flow.connect.types.arrow import family_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.changes.alike import AlikeMessages, SameMessages
    from ematix_flow.connect.changes.change import Change
    from ematix_flow.connect.changes.schemas import ChangeReader
    from ematix_flow.connect.formats.decoders import Decoded
    from ematix_flow.declare.stream.cdc import CDC


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
        import pyarrow as pa

        return self.decode_messages(pa.table({VALUE: pa.array(payloads, pa.binary())}))

    def decode_messages(self, messages: pa.Table) -> Decoded:
        """Return the changes of messages, which mostly have a place, a time and a key."""
        import pyarrow as pa

        from ematix_flow.connect.changes.alike_rows import alike_rows

        groups, others = self._alike(messages)
        locations, times = _column(messages, MESSAGE_OFFSET), _column(messages, EVENT_TIME)
        alike = [alike_rows(group, self, locations, times) for group in groups]
        others = sorted([*others, *(number for one in alike for number in one.questioned)])
        rows = ChangeRows(self)
        rows.add_messages(messages.take(pa.array(others, pa.int64())) if alike else messages, others)
        return rows.decoded(alike)

    def _alike(self, messages: pa.Table) -> tuple[Sequence[AlikeMessages | SameMessages], list[int]]:
        """Return messages that are alike, and the numbers of those that have to be read by themselves."""
        from ematix_flow.connect.changes.alike import read_alike, read_same

        if not self._is_plain:
            return [], list(range(messages.num_rows))
        if FIELDS in messages.column_names and messages.num_rows:
            fields = messages.column(FIELDS).combine_chunks()
            same = read_same(messages.column(VALUE)[0].as_py(), fields, self)
            if same is not None:
                return [same], []
        return read_alike(messages.column(VALUE).to_pylist(), self)

    @property
    def _is_plain(self) -> bool:
        """Return whether messages may be alike: envelopes of Debezium in JSON, whose fields have their usual names."""
        cdc = self.cdc
        named = (cdc.op_field, cdc.before_field, cdc.after_field, cdc.key_field, cdc.ts_field, cdc.order_field)
        return cdc.envelope == "debezium" and self.reader is None and not any(named) and not cdc.op_map

    def document_of(self, payload: bytes) -> dict[str, Any] | str:
        """Return the values of a message, or what is wrong with it."""
        return _object_of(payload) if self.reader is None else self.reader.read(payload)

    def changes_of(self, payload: bytes | None, key: Any = None) -> list[Change] | str:
        """Return the changes of a message, none where it is no change, or why they cannot be applied."""
        if payload is None:
            return []
        document = self.document_of(payload)
        if isinstance(document, str):
            return document
        try:
            changes = ENVELOPES[self.cdc.envelope](document, self.cdc, self.table.keys)
            return [self._with_key(change, document, key) for change in changes if not self._is_left_out(change)]
        except ChangeError as error:
            return f"({error})"
        except RecursionError:
            return "(nested too deeply)"

    def _is_left_out(self, change: Change) -> bool:
        """Return whether a truncate is left out: by choice, or before a table is read again, which ends no version."""
        return change.operation == TRUNCATE and (self.cdc.on_truncate == "skip" or (self.whole and change.of_snapshot))

    def _with_key(self, change: Change, document: Mapping[str, Any], key: Any) -> Change:
        """Return a change that has its key, from a field of its own or the message's key where the row lacks it; refuse one without."""
        if change.operation == TRUNCATE:
            return change
        values = change.values
        missing = [name for name in self.table.keys if values.get(name) is None]
        if missing:
            reported = {**_key_values(key), **self._key_of_event(document)}
            values = {**values, **{name: value for name, value in reported.items() if name in missing}}
            missing = [name for name in self.table.keys if values.get(name) is None]
        if missing:
            message = f"a change of {self.table.name} without its key {', '.join(missing)}"
            raise ChangeError(message)
        return change if values is change.values else replace(change, values=values)

    def _key_of_event(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the key that the event has in the field that the declaration names for it."""
        payload = unwrapped(document)[0] if self.cdc.envelope == "debezium" else document
        key = key_at(payload or {}, self.cdc.key_field, self.table.keys) if self.cdc.key_field else {}
        return {name: value for name, value in key.items() if value is not None}


def _column(messages: pa.Table, name: str) -> pa.Array | None:
    """Return a column of messages; None where they do not have it."""
    return messages.column(name).combine_chunks() if name in messages.column_names else None


def _object_of(payload: bytes) -> dict[str, Any] | str:
    """Return the values of an object of JSON, or what is wrong with it."""
    if b"\\ud" in payload.lower() and isinstance(half := row_of(payload), str):
        return half
    return object_of(payload)


def _key_values(key: Any) -> Mapping[str, Any]:
    """Return the columns in the key of a message: an object of JSON, with or without its schema."""
    document = {} if key is None else _object_of(key.encode() if isinstance(key, str) else key)
    if isinstance(document, str):
        return {}
    payload = document.get("payload")
    return payload if isinstance(payload, dict) else document
