"""Rows that are put together from the changes of messages, one by one; what cannot be applied is a row that says why."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.connect.changes.change import CREATE, DELETE, KEY, SKIP, TRUNCATE, UPDATE, ChangeError
from ematix_flow.connect.changes.left_out import note_left_out
from ematix_flow.connect.changes.order import arrival_order, version_of
from ematix_flow.connect.changes.values import converted
from ematix_flow.connect.formats.decoders import Decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.connect.changes.alike_rows import AlikeRows
    from ematix_flow.connect.changes.change import Change
    from ematix_flow.connect.changes.decoder import ChangeDecoder

_LOST = (
    "the row has got another key, and the log does not have this large value, which stayed as it was; with "
    "REPLICA IDENTITY FULL of its table it does"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ChangeRows:
    """The rows of some messages while they are put together."""

    decoder: ChangeDecoder
    values: list[list[Any]] = field(default_factory=list)
    wrong: list[str | None] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """How many changes have each column that the table lacks."""

    def add_messages(self, messages: pa.Table, numbers: Sequence[int]) -> None:
        """Add the rows of messages, which have these numbers."""
        names, none = messages.column_names, [None] * len(numbers)
        payloads = messages.column(VALUE).to_pylist()
        locations = messages.column(MESSAGE_OFFSET).to_pylist() if MESSAGE_OFFSET in names else none
        times = messages.column(EVENT_TIME).to_pylist() if EVENT_TIME in names else none
        keys = messages.column(KEY).to_pylist() if self.decoder.keyed and KEY in names else none
        for number, payload, place, at, key in zip(numbers, payloads, locations, times, keys, strict=True):
            self._add(number, payload, place or "", at, key)

    def _add(self, number: int, payload: bytes | None, offset: str, at: datetime | None, key: Any) -> None:
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
                self._row(number, self._change(change, (offset, index), at), None)
            except ChangeError as error:
                self._row(number, [*none, SKIP, "", None, None, None], f"({error})")

    def decoded(self, alike: Sequence[AlikeRows] = ()) -> Decoded:
        """Return all rows, together with those of messages that are alike, in the order of the messages."""
        import pyarrow as pa

        types = [*(one.type for one in self.decoder.table_fields()), *change_types()]
        columns = zip(*self.values, strict=True) if self.values else [()] * len(types)
        own = [pa.array(one, kind) for one, kind in zip(columns, types, strict=True)]
        if self.decoder.notes:
            note_left_out(self.decoder.notes, sum((one.left_out for one in alike), self.left_out))
        if not alike:
            return Decoded(tuple(own), self.wrong, self.messages)
        numbers = pa.concat_arrays([pa.array(self.messages, pa.int64()), *(one.numbers for one in alike)])
        order = pa.compute.sort_indices(numbers)  # rows of one message stay as they are
        parts = zip(own, *(one.columns for one in alike), strict=True)
        wrong = [*self.wrong, *[None] * (len(numbers) - len(self.wrong))]
        return Decoded(
            tuple(pa.concat_arrays(list(one)).take(order) for one in parts),
            [wrong[index] for index in order.to_pylist()] if any(self.wrong) else [None] * len(wrong),
            numbers.take(order).to_pylist(),
        )

    def _row(self, number: int, row: list[Any], wrong: str | None) -> None:
        self.values.append(row)
        self.wrong.append(wrong)
        self.messages.append(number)

    def _change(self, change: Change, place: tuple[str, int], at: datetime | None) -> list[Any]:
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
        offset, index = place
        version = version_of(change.order, arrival_order(offset, index), at_ms, unique=change.unique)
        full = "0" not in carries or (cdc.missing_columns == "null" and change.operation != DELETE)
        if change.moved and self.decoder.changes:
            # What the row lacks it has under the old key, whose end is the change before this one.
            carries += version_of(change.order, arrival_order(offset, index - 1), at_ms, unique=change.unique)
        instant = None if at_ms is None else _EPOCH + timedelta(microseconds=int(at_ms * 1000))
        whole_ms = None if at_ms is None else math.floor(at_ms)
        return [*row, self._operation(change), version, instant, whole_ms, None if full else carries]

    def _operation(self, change: Change) -> str:
        """Return what a change does: one of a row that got another key makes that row, also where updates make none."""
        creates = change.moved and self.decoder.changes and self.decoder.cdc.missing_rows == "ignore"
        return CREATE if creates else change.operation

    def _value(self, change: Change, name: str, kind: str) -> tuple[str | bytes | None, bool]:
        """Return the value of a column, and whether the change carries it."""
        cdc, table = self.decoder.cdc, self.decoder.table
        if name == cdc.soft_column:
            return None, True  # a row that is written is not deleted
        if name not in change.values:
            if name in change.lost and cdc.missing_columns == "keep" and self.decoder.changes:
                message = f"{name}: {_LOST}"
                raise ChangeError(message)
            if name in table.required and change.operation not in (UPDATE, DELETE, TRUNCATE):
                message = f"{name}: the change creates a row and carries no value for it"
                raise ChangeError(message)
            if self.decoder.whole and cdc.missing_columns == "keep" and change.operation not in (DELETE, TRUNCATE):
                if change.whole:
                    return None, True  # a version from before the column was added, or after it was dropped
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
