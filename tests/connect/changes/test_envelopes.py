"""Envelopes of change events: what a message changes, in which order, and with which values."""

from __future__ import annotations

import base64
import json
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest

from ematix_flow import CDC
from ematix_flow.connect.changes.change import ChangeError, Semantic
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.log_decoder import ChangeLogDecoder
from ematix_flow.connect.changes.values import converted
from ematix_flow.connect.formats.json_lines import Number

TABLE = ChangeTable("shop.things", (("id", "big_int"), ("name", "text"), ("at", "timestamp")), ("id",), ("id",))
CUSTOM = {
    "op_field": "o",
    "after_field": "a.b",
    "key_field": "k",
    "op_map": {"I": "create", "D": "delete", "U": "update"},
}


def decoded(cdc: CDC, *documents: Any, whole: bool = False) -> list[tuple[Any, ...]]:
    """Return the rows of messages: operation, id, name, version, what is carried, and what is wrong."""
    decoder = ChangeDecoder(cdc, TABLE, whole=whole)
    payloads = [one if one is None or isinstance(one, bytes) else json.dumps(one).encode() for one in documents]
    result = decoder.decode(payloads)
    columns = [column.to_pylist() for column in result.columns]
    ids, names, _, operations, versions, _, _, carries = columns
    return list(zip(operations, ids, names, versions, carries, result.wrong, strict=True))


def short(cdc: CDC, *documents: Any) -> list[tuple[Any, ...]]:
    """Return operation, id and name of every row."""
    return [row[:3] for row in decoded(cdc, *documents)]


def test_debezium_with_and_without_its_schema() -> None:
    event = {"op": "u", "before": {"id": 1}, "after": {"id": 2, "name": "x"}, "source": {"lsn": 7, "ts_ms": 1}}
    expected = [("d", "1", None), ("u", "2", "x")]
    assert short(CDC(), event) == expected
    assert short(CDC(), {"schema": None, "payload": event}) == expected
    flat = {"id": 3, "name": "y", "__op": "c", "__lsn": 9, "__source_ts_ms": 5}
    assert short(CDC(), flat, {"id": 3, "__deleted": "true"}) == [("c", "3", "y"), ("d", "3", None)]


@pytest.mark.parametrize(
    "payload", ["{}", {"id": 77, "__op": "d"}, {"op": "d", "before": {"id": 77}, "source": {}}, None]
)
def test_a_flattened_row_may_have_columns_that_are_named_as_fields_of_an_envelope(payload: Any) -> None:
    more = {
        "payload": payload,
        "schema": "s",
        "op": "d",
        "before": {"id": 78},
        "after": {"id": 79},
        "source": {"lsn": 1},
    }
    flat = {"id": 3, "name": "y", **more, "__op": "c"}
    gone = {"id": 3, **more, "__deleted": "true"}
    assert short(CDC(), flat, gone) == [("c", "3", "y"), ("d", "3", None)]
    assert short(CDC(), {"schema": {}, "payload": flat}) == [("c", "3", "y")]
    event = {"op": "c", "after": {"id": 3, "name": "y"}, "source": {"lsn": 1}}
    assert short(CDC(), event | {"payload": payload}) == [("c", "3", "y")]


@pytest.mark.parametrize(
    "message",
    [
        None,
        {"schema": {}, "payload": None},
        {"ddl": "CREATE TABLE x", "databaseName": "d"},
        {"status": "BEGIN", "id": "1"},
        {"op": "m", "message": {}},
        {"op": "?", "after": {"id": 1}},
    ],
)
def test_what_changes_no_row_is_skipped(message: Any) -> None:
    assert short(CDC(), message) == [("s", None, None)]


@pytest.mark.parametrize("value", [1_767_225_600_000_000, -62_135_596_800_001, "1.5e400", "1" * 5000 + ".0"])
def test_a_time_that_no_calendar_has_is_reported(value: Any) -> None:
    custom = CDC("custom", op_field="o", after_field="r", key_field="r.id", ts_field="t", op_map={"I": "create"})
    messages: list[tuple[CDC, dict[str, Any]]] = [
        (CDC(), {"op": "c", "after": {"id": 1}, "source": {"lsn": 1, "ts_ms": value}}),
        (CDC(ts_field="source.ts_us"), {"op": "c", "after": {"id": 1}, "source": {"lsn": 1, "ts_us": value}}),
        (CDC(), {"id": 1, "__op": "c", "__ts_ms": value}),
        (CDC("maxwell"), {"type": "insert", "data": {"id": 1}, "ts": value}),
        (custom, {"o": "I", "r": {"id": 1}, "t": value}),
    ]
    for cdc, message in messages:
        [(operation, *_, wrong)] = decoded(cdc, message)
        assert operation == "s"
        assert "which no calendar has" in wrong


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"op": "c", "after": None}, "without the row"),
        ({"op": "c", "after": {"name": "x"}}, "without its key id"),
        ({"op": "d", "before": None}, "without its key id"),
        (b"{", "Expecting"),
        (b"[]", "not an object"),
        ({"op": "c", "after": {"id": 1, "at": 5}}, "time_unit="),
    ],
)
def test_what_cannot_be_applied_is_reported(message: Any, text: str) -> None:
    [(operation, *_, wrong)] = decoded(CDC(), message)
    assert operation == "s"
    assert text in wrong


@pytest.mark.parametrize(
    ("snapshot", "wrong"), [("true", None), ("false", "a history does not know"), (None, "a history")]
)
def test_a_history_skips_a_truncate_only_where_its_table_is_read_again(snapshot: str | None, wrong: str | None) -> None:
    truncate = {"op": "t", "before": None, "after": None, "source": {"lsn": 7, "ts_ms": 1, "snapshot": snapshot}}
    [(operation, *_, reason)] = decoded(CDC(), truncate, whole=True)
    assert operation == "s"
    assert (reason is None) if wrong is None else (reason is not None and wrong in reason)
    [(operation, *_)] = decoded(CDC(), truncate)
    assert operation == "t"


def test_the_order_is_the_logs_own() -> None:
    def version(source: dict[str, Any]) -> str:
        return str(decoded(CDC(), {"op": "c", "after": {"id": 1}, "source": source})[0][3])

    assert version({"lsn": 9}) < version({"lsn": 10}) == version({"lsn": 10, "ts_ms": 1})
    commits = [
        {"lsn": 95, "sequence": '[null,"95"]', "snapshot": "last"},
        {"lsn": 120, "sequence": '[null,"120"]'},
        {"lsn": 90, "sequence": '["130","90"]'},
        {"lsn": 118, "sequence": '["130","118"]'},
        {"lsn": 80, "sequence": '["140","80"]'},
    ]
    assert [version(one) for one in commits] == sorted(version(one) for one in commits), "commits come first"
    binlogs = [
        {"file": "b.000009", "pos": 900, "row": 1},
        {"file": "b.000010", "pos": 4},
        {"file": "b.000010", "pos": 30},
    ]
    assert [version(one) for one in binlogs] == sorted(version(one) for one in binlogs)
    server = [{"commit_lsn": "0000:0a:1", "change_lsn": "0000:0a:1", "event_serial_no": n} for n in (1, 2)]
    assert version(server[0]) < version(server[1])
    for position in ({"lsn": 1, "sequence": '["1","1"]'}, {"file": "bin.000001", "pos": 4}):
        epochs = [version(position | {"epoch": number}) for number in (1, 2, 10)]
        assert epochs == sorted(epochs), "a log that begins anew is later, wherever it begins"
        assert version(position | {"epoch": 0}) == version(position) < epochs[0]
        assert version({"lsn": 2**64 - 1}) < epochs[0]
        assert version({"file": "bin.999999", "pos": 2**32}) < epochs[0]
    assert version({"ts_ms": 1_800_000_000_000}) < version({"lsn": 1}), "a snapshot without a place is never newer"
    assert version({"ts_ms": 1_700_000_000}) == version({"ts_ms": 1_700_000_000_000}), "seconds where it is that small"


def test_columns_that_the_log_does_not_have_are_not_carried() -> None:
    event = {"op": "u", "after": {"id": 1, "name": "__debezium_unavailable_value"}, "source": {"lsn": 1}}
    assert decoded(CDC(), event)[0][4] == "100"
    assert decoded(CDC(missing_columns="null"), event)[0][4] is None


@pytest.mark.parametrize(
    "value",
    [
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        ["__debezium_unavailable_value"],
        ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="],
        [str(UUID(bytes=md5(b"__debezium_unavailable_value", usedforsecurity=False).digest(), version=3))],
        list(b"__debezium_unavailable_value"),
        {"__debezium_unavailable_value": "__debezium_unavailable_value"},
        '{"__debezium_unavailable_value":"__debezium_unavailable_value"}',
    ],
)
def test_every_type_has_its_word_for_what_the_log_does_not_have(value: Any) -> None:
    event = {"op": "u", "after": {"id": 1, "name": value}, "source": {"lsn": 1}}
    assert decoded(CDC(), event)[0][4] == "100"
    other = {"op": "u", "after": {"id": 1, "name": [*value, 1]}, "source": {"lsn": 1}}
    assert decoded(CDC(), other)[0][4] == "110"


def test_a_row_that_lost_a_value_with_its_key_is_refused() -> None:
    event = {"op": "c", "after": {"id": 1, "name": "__debezium_unavailable_value"}, "source": {"lsn": 1}}
    [(operation, *_, wrong)] = decoded(CDC(), event)
    assert operation == "s"
    assert "REPLICA IDENTITY FULL" in wrong
    assert decoded(CDC(missing_columns="null"), event)[0][:3] == ("c", "1", None)


def test_maxwell_with_its_bootstrap_and_moved_keys() -> None:
    cdc = CDC(envelope="maxwell")
    assert short(
        cdc,
        {"type": "insert", "data": {"id": 1, "name": "a"}, "ts": 1700000000},
        {"type": "update", "data": {"id": 2, "name": "a"}, "old": {"id": 1}, "ts": 1700000001},
        {"type": "bootstrap-start", "data": {}},
        {"type": "bootstrap-insert", "data": {"id": 3}, "ts": 1700000001},
        {"type": "table-create"},
        {"type": "delete", "data": {"id": 2, "name": "a"}, "position": "master.000006:800911"},
    ) == [
        ("c", "1", "a"),
        ("d", "1", None),
        ("u", "2", "a"),
        ("s", None, None),
        ("r", "3", None),
        ("s", None, None),
        ("d", "2", "a"),
    ]


def test_the_last_row_of_a_transaction_of_maxwell_has_no_number() -> None:
    def versions(*rows: dict[str, Any]) -> list[str]:
        event = {"type": "update", "data": {"id": 1, "name": "a"}, "ts": 1700000001, "xid": 7}
        return [row[3] for row in decoded(CDC("maxwell"), *(event | row for row in rows))]

    at, later = {"position": "master.000006:800"}, {"position": "master.000006:801"}
    placed = versions(
        *(at | {"xoffset": number} for number in (0, 1, 12)), at | {"commit": True}, later | {"xoffset": 0}
    )
    assert placed == sorted(placed)
    assert versions(at | {"xoffset": 3, "commit": True}) == versions(at | {"xoffset": 3})
    assert versions(at | {"commit": False}) == versions(at) < versions(at | {"commit": True})


def test_a_changed_key_makes_its_row_also_where_updates_make_none() -> None:
    ignored: dict[str, Any] = {"missing_rows": "ignore"}
    event = {"op": "u", "before": {"id": 1}, "after": {"id": 2, "name": "x"}, "source": {"lsn": 7}}
    assert short(CDC(**ignored), event) == [("d", "1", None), ("c", "2", "x")]
    assert short(CDC(**ignored), event | {"before": {"id": 2}}) == [("u", "2", "x")]
    moved = {"type": "update", "data": {"id": 2, "name": "x"}, "old": {"id": 1}}
    assert short(CDC("maxwell", **ignored), moved) == [("d", "1", None), ("c", "2", "x")]
    assert short(CDC("maxwell", **ignored), moved | {"old": {"name": "y"}}) == [("u", "2", "x")]


def test_a_row_that_lacks_columns_when_its_key_changes_names_the_end_of_the_old_one() -> None:
    event = {"op": "u", "before": {"id": 1}, "after": {"id": 2, "name": "__debezium_unavailable_value"}}
    for source in ({"lsn": 7}, {"ts_ms": 1_700_000_000_000}):
        ended, moved = decoded(CDC(), event | {"source": source})
        assert moved[4] == "100" + ended[3]
    assert decoded(CDC(missing_columns="null"), event)[1][4] is None
    whole = {"id": 2, "name": "x", "at": None}
    assert decoded(CDC(), event | {"after": whole})[1][4] is None
    log = ChangeLogDecoder(CDC(), TABLE).decode([json.dumps(event).encode()])
    assert [column.to_pylist() for column in log.columns][:4] == [
        ["1", "2"],
        [None] * 2,
        [None] * 2,
        ["delete", "update"],
    ]


def test_canal_has_several_rows_in_a_message() -> None:
    message = {
        "type": "UPDATE",
        "es": 1700000000000,
        "data": [{"id": "1", "name": "a"}, {"id": "3"}],
        "old": [{"name": "b"}, {"id": "2"}],
    }
    assert short(CDC(envelope="canal"), message) == [("u", "1", "a"), ("d", "2", None), ("u", "3", None)]
    versions = [row[3] for row in decoded(CDC(envelope="canal"), message)]
    assert versions == sorted(set(versions))


def test_dms() -> None:
    def message(operation: str, data: Any) -> dict[str, Any]:
        return {"data": data, "metadata": {"operation": operation, "timestamp": "2026-01-01T00:00:00.5Z"}}

    cdc = CDC(envelope="aws_dms")
    assert short(cdc, message("load", {"id": 1}), message("delete", {"id": 1}), message("create-table", None)) == [
        ("r", "1", None),
        ("d", "1", None),
        ("s", None, None),
    ]


def test_a_described_envelope() -> None:
    cdc = CDC(envelope="custom", **CUSTOM, ts_field="t", order_field="n")  # type: ignore[arg-type]
    rows = decoded(
        cdc,
        {"o": "I", "a": {"b": {"name": "x"}}, "k": 4, "t": 1700000000, "n": 2},
        {"o": "D", "k": 4, "n": 10},
        {"o": "?", "k": 4},
    )
    assert [row[:3] for row in rows] == [("c", "4", "x"), ("d", "4", None), ("s", None, None)]
    assert rows[0][3] < rows[1][3]


@pytest.mark.parametrize(
    ("op_map", "codes"),
    [
        ({1: "create", 2: "delete"}, (1, 2)),
        ({"1": "create", "2": "delete"}, (1, 2)),
        ({1: "create", 2: "delete"}, ("1", "2")),
        ({False: "create", True: "delete"}, (False, True)),
        ({"false": "create", "true": "delete"}, (False, True)),
        ({"False": "create", "True": "delete"}, (False, True)),
    ],
)
def test_an_operation_may_be_a_number_or_a_truth_value(op_map: Any, codes: tuple[Any, Any]) -> None:
    cdc = CDC("custom", op_field="o", after_field="r", key_field="r.id", op_map=op_map)
    created, deleted = ({"o": code, "r": {"id": 1, "name": "x"}} for code in codes)
    skipped: dict[str, Any] = {"r": {"id": 1}}
    assert short(cdc, created, deleted, skipped, skipped | {"o": None}) == [
        ("c", "1", "x"),
        ("d", "1", "x"),
        ("s", None, None),
        ("s", None, None),
    ]


ORDERED = [
    (CDC(order_field="n"), {"r": {"op": "r"}, "u": {"op": "u"}}, {"after": {"id": 1, "name": "x"}, "source": {"ts_ms": 9}}),
    (
        CDC("custom", **CUSTOM | {"op_map": {"r": "read", "u": "update"}}, order_field="n"),  # type: ignore[arg-type]
        {"r": {"o": "r"}, "u": {"o": "u"}},
        {"a": {"b": {"name": "x"}}, "k": 1},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cdc", "operations", "event"), ORDERED)
def test_a_place_in_a_field_is_a_whole_number(
    cdc: CDC, operations: dict[str, dict[str, Any]], event: dict[str, Any]
) -> None:
    def versions(operation: str, *places: Any) -> list[Any]:
        return [row[3] for row in decoded(cdc, *(event | operations[operation] | {"n": place} for place in places))]

    [stored] = versions("u", 7)
    assert stored == "100000000000000000007000000", "as tables have them"
    assert versions("u", "7", "007") == [stored, stored]
    placed = versions("u", 0, 9, 10, 2**64)
    assert placed == sorted(placed)
    assert versions("r", 7) == [stored]
    assert max(versions("r", None, "")) < placed[0], "a row of a snapshot without a place is older than every change"
    for place in (None, "", -1, "-1", 1.5, "x", True, [7], {}):
        [(operation, *_, wrong)] = decoded(cdc, event | operations["u"] | {"n": place})
        assert operation == "s"
        assert "its place in the log (n)" in wrong
        assert "order_field=" in wrong
    [(_, *_, wrong)] = decoded(cdc, event | operations["u"])
    assert "a change without its place in the log (n)" in wrong


def test_a_new_column_can_be_refused() -> None:
    event = {"op": "c", "after": {"id": 1, "colour": "red"}, "source": {"lsn": 1}}
    assert short(CDC(), event) == [("c", "1", None)]
    assert "'colour', which shop.things lacks" in decoded(CDC(schema_evolution="fail"), event)[0][5]


@pytest.mark.parametrize(
    ("value", "kind", "semantic", "expected"),
    [
        (base64.b64encode((12345).to_bytes(2, "big")).decode(), "numeric", Semantic("org.apache.kafka.connect.data.Decimal", 2), "123.45"),
        (base64.b64encode((-5).to_bytes(1, "big", signed=True)).decode(), "numeric", Semantic("org.apache.kafka.connect.data.Decimal", 1), "-0.5"),
        ({"scale": Number("3"), "value": "AfQ="}, "numeric", None, "0.500"),
        (Number("12.340"), "numeric", None, "12.340"),
        (Number("20454"), "date", Semantic("io.debezium.time.Date"), "2026-01-01"),
        (Number("20454"), "date", None, "2026-01-01"),
        (Number("1767225600000001"), "timestamp", Semantic("io.debezium.time.MicroTimestamp"), "2026-01-01T00:00:00.000001"),
        (Number("1767225600000"), "timestamp", None, "2026-01-01T00:00:00.000000"),
        (Number("3661000000"), "text", Semantic("io.debezium.time.MicroTime"), "01:01:01.000000"),
        (Number("86399999"), "text", Semantic("io.debezium.time.Time"), "23:59:59.999000"),
        (Number("86400000"), "text", Semantic("org.apache.kafka.connect.data.Time"), "24:00:00.000000"),
        (Number("90061000001"), "text", Semantic("io.debezium.time.MicroTime"), "25:01:01.000001"),
        (Number("3020399000000000"), "text", Semantic("io.debezium.time.NanoTime"), "838:59:59.000000"),
        (Number("-3020399000000"), "text", Semantic("io.debezium.time.MicroTime"), "-838:59:59.000000"),
        (Number("-1500000"), "text", Semantic("io.debezium.time.MicroTime"), "-00:00:01.500000"),
        ("2026-01-01T00:00:00Z", "timestamp_tz", Semantic("io.debezium.time.ZonedTimestamp"), "2026-01-01T00:00:00Z"),
        ("aGk=", "bytes", None, b"hi"),
        (True, "big_int", None, "1"),
        ({"a": [Number("1.0")]}, "jsonb", None, '{"a":[1.0]}'),
        (Number("1"), "text", None, "1"),
        (None, "text", None, None),
    ],
)  # fmt: skip
def test_values_as_connectors_write_them(value: Any, kind: str, semantic: Semantic | None, expected: Any) -> None:
    assert converted(value, kind, semantic) == expected


@pytest.mark.parametrize(
    ("value", "kind"), [(Number("5"), "timestamp"), ("not base64!", "bytes"), (Number("9" * 30), "date")]
)
def test_values_that_mean_nothing_are_refused(value: Any, kind: str) -> None:
    with pytest.raises(ChangeError):
        converted(value, kind)


def test_a_time_that_is_longer_than_any_is_refused() -> None:
    with pytest.raises(ChangeError, match="longer than any TIME"):
        converted(Number(str(839 * 3600 * 1000)), "text", Semantic("io.debezium.time.Time"))


def test_a_declared_unit_reads_small_numbers() -> None:
    assert converted(Number("86400000000"), "timestamp", None, "us") == "1970-01-02T00:00:00.000000"
