"""Rows of changes whose messages are alike, column by column; a message about which there is a question is left to the exact reader."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.changes.alike import COMMIT, EPOCH, LSN, OP, TIMES
from ematix_flow.connect.changes.change import UPDATE
from ematix_flow.connect.changes.debezium import ABSENT_TEXTS
from ematix_flow.connect.changes.order import (
    ANEW,
    LOCATIONS,
    LOGGED,
    SECONDS_BELOW,
    WIDE,
    arrival_order,
    log_order,
    version_of,
)
from ematix_flow.connect.changes.value_columns import NULL, known, value_column, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.changes.alike import AlikeMessages, Column, Layout, Path, SameMessages
    from ematix_flow.connect.changes.decoder import ChangeDecoder

_ABSENT = pa.array([json.dumps(one) for one in ABSENT_TEXTS], pa.string())
_NOTHING = pa.scalar(None, pa.string())


@dataclass(frozen=True, slots=True)
class AlikeRows:
    """One row for each of some messages, and the messages that have to be read by themselves."""

    columns: tuple[pa.Array, ...]
    numbers: pa.Array
    questioned: list[int]
    left_out: Counter[str]
    """How many changes have each column that the table lacks."""


def alike_rows(
    messages: AlikeMessages | SameMessages, decoder: ChangeDecoder, locations: pa.Array | None, times: pa.Array | None
) -> AlikeRows:
    """Return the rows of messages; `locations` and `times` are those of all messages."""
    numbers = pa.array(messages.numbers, pa.int64())
    reading = _Reading(messages.layout, decoder, messages.columns, len(numbers))
    own = [reading.value(name, kind) for name, kind in decoder.table.columns]
    carries = reading.carries()
    reading.check_keys()
    at_ms = reading.at_ms(None if times is None else times.take(numbers))
    version = reading.version(at_ms, None if locations is None else locations.take(numbers))
    instant = pc.cast(pc.cast(at_ms, pa.timestamp("ms", tz="UTC")), pa.timestamp("us", tz="UTC"))
    change = (reading.operation, version, instant, at_ms, carries)
    left_out = reading.left_out()
    good = pc.invert(reading.questioned)
    questioned = numbers.filter(reading.questioned).to_pylist()
    every = (*own, *change) if not questioned else tuple(column.filter(good) for column in (*own, *change))
    return AlikeRows(every, numbers if not questioned else numbers.filter(good), questioned, left_out)


class _Reading:
    """The columns of some messages while rows are made of them."""

    def __init__(self, layout: Layout, decoder: ChangeDecoder, columns: Mapping[Path, Column], size: int) -> None:
        self._layout, self._decoder, self._columns, self._size = layout, decoder, columns, size
        self._carried: list[pa.Array | None] = []
        """Of every column of the table, which changes carry it; None where all do."""
        self.operation = self._column(OP)
        self.questioned = self._all(value=False)
        """Which messages have to be read by themselves."""

    def value(self, name: str, kind: str) -> pa.Array:
        """Return the values of a column of the table, and note which changes carry it."""
        cdc, table, layout = self._decoder.cdc, self._decoder.table, self._layout
        kind_of = pa.binary() if kind == "bytes" else pa.string()
        if name == cdc.soft_column:
            self._carried.append(None)
            return pa.nulls(self._size, kind_of)
        if name not in layout.names:
            self._carried.append(self._all(value=False))
            if layout.written and name in table.required:
                self._question(self._creates())
            return pa.nulls(self._size, kind_of)
        written = self._column((layout.row, name))
        is_absent = self._absent(written)
        if is_absent is not None:
            written = pc.if_else(is_absent, NULL, written)
            self._question(pc.and_(is_absent, self._creates()) if not self._decoder.whole else is_absent)
        values, unfit = value_column(written, kind, layout.semantics.get(name), cdc.time_unit)
        if unfit:
            self._question(pc.is_in(pa.array(range(self._size)), value_set=pa.array(unfit)))
        self._note(name, values, is_absent)
        return values

    def _note(self, name: str, values: pa.Array, is_absent: pa.Array | None) -> None:
        if not self._layout.written:
            # A log that keeps only the key of a deleted row has NULL for the rest.
            self._carried.append(pc.is_valid(values) if values.null_count else None)
            return
        self._carried.append(None if is_absent is None else pc.invert(is_absent))
        if values.null_count and name in self._decoder.table.required:
            missing = pc.is_null(values)
            self._question(missing if is_absent is None else pc.and_not(missing, is_absent))

    def carries(self) -> pa.Array:
        """Return which columns changes carry; NULL where these are all that count."""
        is_all = all(mask is None for mask in self._carried)
        if is_all or (self._decoder.cdc.missing_columns == "null" and self._layout.written):
            return pa.nulls(self._size, pa.string())
        every = self._all(value=True)
        digits = [pc.if_else(every if mask is None else mask, "1", "0") for mask in self._carried]
        joined = pc.binary_join_element_wise(*digits, "")
        return pc.if_else(pc.equal(joined, "1" * len(digits)), _NOTHING, joined)

    def check_keys(self) -> None:
        """Leave to the exact reader what has no key, or had another one before."""
        for key in self._decoder.table.keys:
            written = self._column((self._layout.row, key))
            self._question(pc.or_(pc.equal(written, NULL), pc.is_in(written, value_set=_ABSENT)))
            if self._layout.written and ("before", key) in self._columns:
                before = self._column(("before", key))
                self._question(pc.and_not(pc.not_equal(before, written), pc.equal(before, NULL)))

    def at_ms(self, times: pa.Array | None) -> pa.Array:
        """Return the times of the changes: those that they tell, or those of their messages."""
        reported = [known(self._column(path)) for path in TIMES if path in self._columns]
        at = pc.cast(pc.coalesce(*reported, _NOTHING), pa.int64()) if reported else pa.nulls(self._size, pa.int64())
        at = pc.if_else(pc.less(at, SECONDS_BELOW), pc.multiply(at, 1000), at)
        if times is not None and at.null_count:
            micros = pc.cast(pc.cast(times, pa.timestamp("us", tz="UTC")), pa.int64())
            self._question(pc.and_(pc.is_null(at), pc.fill_null(pc.less(micros, 0), fill_value=False)))
            at = pc.coalesce(at, pc.divide(micros, 1000))
        if self._decoder.whole:
            self._question(pc.is_null(at))
        return at

    def version(self, at_ms: pa.Array, locations: pa.Array | None) -> pa.Array:
        """Return what decides between changes of a row."""
        if LSN in self._columns:
            lsn = self._column(LSN)
            commit = pc.coalesce(self._column(COMMIT), lsn) if COMMIT in self._columns else lsn
            epoch = [self._column(EPOCH)] if EPOCH in self._columns else []
            digits = [pc.ascii_lpad(one, WIDE, "0") for one in (*epoch, commit, lsn)]
            return pc.binary_join_element_wise(LOGGED + ANEW if epoch else LOGGED, *digits, "")
        names = [name for name in LOCATIONS if ("source", name) in self._columns and ("source", name) != COMMIT]
        blocks = list(zip(*(self._column(("source", name)).to_pylist() for name in names), strict=True))
        blocks = blocks or [()] * self._size
        arrivals = [""] * self._size if locations is None else locations.to_pylist()
        versions = []
        for block, place, at in zip(blocks, arrivals, at_ms.to_pylist(), strict=True):
            order, unique = log_order({name: value_of(one or NULL) for name, one in zip(names, block, strict=True)})
            versions.append(version_of(order, arrival_order(place or "", 0), at, unique=unique))
        return pa.array(versions, pa.string())

    def left_out(self) -> Counter[str]:
        """Return how many changes have each column that the table lacks; those that are questioned are not counted."""
        counts: Counter[str] = Counter()
        if self._layout.written:
            for name in self._layout.names:
                if name not in self._decoder.table.names:
                    is_absent = self._absent(self._column((self._layout.row, name)))
                    lacking = self.questioned if is_absent is None else pc.or_(self.questioned, is_absent)
                    counts[name] = self._size - pc.sum(lacking).as_py()
        return +counts

    def _column(self, path: Path) -> pa.Array:
        column = self._columns[path]
        return column if isinstance(column, pa.Array) else pa.array(column, pa.string())

    def _absent(self, written: pa.Array) -> pa.Array | None:
        """Return which values stand for ones that the log does not have; None where none does."""
        is_absent = pc.is_in(written, value_set=_ABSENT)
        return is_absent if pc.any(is_absent).as_py() else None

    def _creates(self) -> pa.Array:
        return pc.not_equal(self.operation, UPDATE)

    def _question(self, which: pa.Array) -> None:
        self.questioned = pc.or_(self.questioned, which)

    def _all(self, *, value: bool) -> pa.Array:
        return pa.repeat(pa.scalar(value), self._size)
