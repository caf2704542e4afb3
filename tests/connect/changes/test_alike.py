"""Messages that are alike are read by patterns: to the same rows as one by one, whatever stands in them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ematix_flow import CDC
from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.connect.changes import alike
from ematix_flow.connect.changes.change import KEY
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.left_out import take_left_out

if TYPE_CHECKING:
    from collections.abc import Callable

ABSENT = "__debezium_unavailable_value"
COLUMNS = (
    ("id", "big_int"),
    ("name", "text"),
    ("amount", "numeric"),
    ("day", "date"),
    ("at", "timestamp_tz"),
    ("active", "boolean"),
    ("doc", "jsonb"),
    ("raw", "bytes"),
)
TABLE = ChangeTable("shop.things", COLUMNS, ("id",), ("id", "name"))
VALUES: dict[str, tuple[Any, ...]] = {
    "id": (1, 2, 3, "4", None, -5, ABSENT),
    "name": ("x", "", 'say "x"', "a\\b", "line\nbreak", "\u00e9\u4e2d", "\U0001f600", "null", "true", ABSENT, None, 5, True),
    "amount": (1, 1.50, "2.5", 1e10, True, False, None, 123456789012345678901234567890, "x"),
    "day": (0, 20_000, "2026-01-01", None, -3, 10**9, 1.5),
    "at": (1_767_225_600_000, 1_767_225_600_000_000, "2026-01-01T00:00:00Z", None, 5, 0, -1, 10**19, 1.5),
    "active": (True, False, None, "true", 1, 0),
    "doc": ('{"a": 1}', None, 5, True, "text"),
    "raw": ("AAEC", "", None, "not base64!", ABSENT, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    "more": (1, "x", None, ABSENT),
}  # fmt: skip
SIMPLE = {name: values[:2] for name, values in VALUES.items()}


def source_block(chance: random.Random, number: int) -> dict[str, Any]:
    """Return the source block of a message of PostgreSQL."""
    sequence = chance.choice([f'["{number}","{number + 1}"]', f'[null,"{number}"]', None, "odd", f'[ "{number}" ]'])
    return {
        "db": 'a "b"',
        "sequence": sequence,
        "lsn": chance.choice([number * 7, number, 0]),
        "ts_ms": chance.choice([1_767_225_600_000 + number, 1_767_225_600, None]),
        "snapshot": "false",
    }


def anew(chance: random.Random, number: int) -> dict[str, Any]:
    """Return the source block of a message from a log that began anew."""
    log = source_block if number % 2 else binlog
    return log(chance, number) | {"epoch": chance.choice([1, 1, 12, 0, None, "3"])}


def binlog(chance: random.Random, number: int) -> dict[str, Any]:
    """Return the source block of a message of MySQL."""
    return {
        "file": f"binlog.{number % 3:06d}",
        "pos": number,
        "row": chance.choice([0, 1, None]),
        "ts_ms": number,
        "lsn": None,
        "sequence": None,
    }


def timed(chance: random.Random, number: int) -> dict[str, Any]:
    """Return the source block of a connector that has no place."""
    return {"ts_ms": chance.choice([None, number]), "scn": chance.choice(["17", None])}


def message(
    chance: random.Random,
    number: int,
    source: Callable[[random.Random, int], dict[str, Any]],
    values: dict[str, tuple[Any, ...]],
) -> bytes:
    """Return a change by chance: mostly one that is alike to others, sometimes something else."""
    names = [name for name in values if name != "more" or chance.random() < 0.3]
    row = {name: chance.choice(values[name]) for name in names}
    operation = chance.choice("cruuuuddt")
    old = {"id": row["id"]} | ({name: chance.choice(values[name]) for name in names[1:]} if number % 3 else {})
    if chance.random() < 0.1:
        old["id"] = 99
    before = old if operation == "d" or chance.random() < 0.4 else None
    event = {
        "before": before,
        "after": row if operation != "d" or chance.random() < 0.05 else None,
        "source": source(chance, number),
        "op": operation,
        "ts_ms": chance.choice([1_767_225_600_500, None, 1_767_225_600.5]),
    }
    if chance.random() < 0.03:
        return chance.choice([b"", b"{", b"[1]", b"\xff", b'{"op":"c"}', json.dumps({"ddl": "x"}).encode()])
    spaces = {"separators": (",", ":")} if chance.random() < 0.5 else {}
    return json.dumps(event, ensure_ascii=chance.random() < 0.5, **spaces).encode()


def rows(decoder: ChangeDecoder, payloads: list[bytes | None]) -> list[Any]:
    """Return everything that a decoder makes of messages."""
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=one) for one in range(len(payloads))]
    table = pa.table({
        VALUE: pa.array(payloads, pa.binary()),
        MESSAGE_OFFSET: pa.array([f'{{"topic": "t", "partition": 0, "offset": {n}}}' for n in range(len(payloads))]),
        EVENT_TIME: pa.array([None if one.microsecond % 7000 == 0 else one for one in times], pa.timestamp("us", "UTC")),
        KEY: pa.array([json.dumps({"id": 7}) if n % 2 else None for n in range(len(payloads))]),
    })  # fmt: skip
    result = decoder.decode_messages(table)
    columns = [column.to_pylist() for column in result.columns]
    return [*zip(*columns, result.wrong, result.messages or (), strict=True), take_left_out("notes")]


def one_by_one(decoder: ChangeDecoder, payloads: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the same without any pattern."""
    with monkeypatch.context() as patch:
        patch.setattr(alike, "TRIES", 0)
        return rows(decoder, payloads)


@pytest.mark.slow
@pytest.mark.parametrize("source", [source_block, binlog, timed, anew])
@pytest.mark.parametrize(
    "cdc",
    [
        CDC(),
        CDC(missing_columns="null", time_unit="ms"),
        CDC(delete_mode="soft", soft_delete_column="active", on_truncate="skip"),
        CDC(schema_evolution="fail"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_the_rows_are_those_of_messages_that_are_read_one_by_one(
    cdc: CDC, whole: bool, source: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = ChangeDecoder(cdc, TABLE, keyed=True, whole=whole, notes="notes")
    for seed in range(2):
        chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        values = VALUES if seed % 2 else SIMPLE
        payloads: list[bytes | None] = [message(chance, number, source, values) for number in range(90)]
        payloads[50] = None
        assert rows(decoder, payloads) == one_by_one(decoder, payloads, monkeypatch)


def schema(**names: str) -> dict[str, Any]:
    """Return the schema of messages, with the logical types of columns."""
    fields = [{"field": column, "type": "int64", "name": name} for column, name in names.items()]
    return {"type": "struct", "fields": [{"field": "before", "fields": fields}, {"field": "after", "fields": fields}]}


def test_messages_with_a_schema_are_read_by_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = ChangeDecoder(CDC(), TABLE, notes="notes")
    micro = schema(at="io.debezium.time.MicroTimestamp", day="io.debezium.time.Date", doc="io.debezium.data.Json")
    other = schema(at="io.debezium.time.Timestamp", day="io.debezium.time.Timestamp", amount="io.debezium.time.Time")
    payloads: list[bytes | None] = []
    for number in range(60):
        row = {"id": number, "name": '"payload":{', "amount": 1, "day": number, "at": number * 1001, "doc": "{}"}
        event = {"before": None, "after": row, "source": {"lsn": number, "ts_ms": 5}, "op": "u", "ts_ms": 1}
        wrapped = {"schema": micro if number % 3 else other, "payload": event}
        payloads.append(json.dumps(wrapped if number % 7 else dict(reversed(wrapped.items()))).encode())
    read = rows(decoder, payloads)
    assert read == one_by_one(decoder, payloads, monkeypatch)
    assert read[1][4] == "1970-01-01T00:00:00.001001"


def test_times_that_are_longer_than_a_day_are_those_that_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = ChangeDecoder(CDC(), TABLE, notes="notes")
    payloads: list[bytes | None] = []
    for hours in (5, -1, 24, 25, 838, -838, 839):
        row = {"id": 1, "name": hours * 3_600_000_000 + 1}
        event = {"before": None, "after": row, "source": {"lsn": 1, "ts_ms": 5}, "op": "u"}
        payloads.append(json.dumps({"schema": schema(name="io.debezium.time.MicroTime"), "payload": event}).encode())
    read = rows(decoder, payloads)
    assert read == one_by_one(decoder, payloads, monkeypatch)
    names = [one[1] for one in read[:-1]]
    assert names[1:6] == [
        "-00:59:59.999999",
        "24:00:00.000001",
        "25:00:00.000001",
        "838:00:00.000001",
        "-837:59:59.999999",
    ]
    assert names[6] is None


def test_alike_messages_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, payloads = ChangeDecoder(CDC(), TABLE), []
    for number in range(200):
        row = {"id": number, "name": 'x "y"', "amount": 1.5, "at": "2026-01-01T00:00:00Z"}
        gone = number % 10 == 0
        event = {"before": {"id": number} if gone else None, "after": None if gone else row, "op": "d" if gone else "u"}
        payloads.append(json.dumps(event | {"source": {"lsn": number, "sequence": f'["{number}","1"]'}}).encode())
    read = 0
    exact = ChangeDecoder.changes_of

    def counted(self: ChangeDecoder, *arguments: Any) -> Any:
        nonlocal read
        read += 1
        return exact(self, *arguments)

    monkeypatch.setattr(ChangeDecoder, "changes_of", counted)
    assert len(rows(decoder, payloads)) == len(payloads) + 1
    assert read == 0


def test_what_is_wide_or_deep_is_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, wide = ChangeDecoder(CDC(), TABLE, notes="notes"), {f"c{n}": n for n in range(2_000)}
    nested: Any = 1
    for _ in range(400):
        nested = {"x": nested}
    row = {"id": 1, "name": "x"}
    events = [
        {"op": "u", "after": row, "source": {"lsn": 1, "x": nested}},
        {"op": "u", "after": row | wide, "source": {"lsn": 1}},
        {"op": "u", "after": row | {"doc": {"a": [1]}}, "source": {"lsn": 1}},
        {"op": "u", "after": row, "source": {"lsn": 1}},
    ]
    payloads: list[bytes | None] = [json.dumps(event).encode() for event in events * 3]
    assert rows(decoder, payloads) == one_by_one(decoder, payloads, monkeypatch)


def test_tombstones_keep_no_pattern_from_being_made() -> None:
    event = json.dumps({"op": "u", "after": {"id": 1, "name": "x"}, "source": {"lsn": 1}}).encode()
    payloads: list[bytes | None] = [None] * 100 + [event] * 5
    groups, others = alike.read_alike(payloads, ChangeDecoder(CDC(), TABLE))
    assert [group.numbers for group in groups] == [list(range(100, 105))]
    assert others == list(range(100))
