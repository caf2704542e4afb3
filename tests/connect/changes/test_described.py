"""Envelopes that a declaration describes, and what it says of those that are known."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from ematix_flow import CDC
from ematix_flow.connect.base.stream_source import VALUE
from ematix_flow.connect.changes import alike
from ematix_flow.connect.changes.change import KEY
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable

TABLE = ChangeTable(
    "shop.things", (("shop", "text"), ("id", "big_int"), ("name", "text"), ("size", "integer")), ("shop", "id")
)
CUSTOM = CDC(
    "custom",
    op_field="o",
    before_field="old",
    after_field="new",
    key_field="k",
    op_map={"U": "update", "D": "delete", "I": "create"},
)


CHANGED = {"shop": "a", "id": 1, "name": "x"}
MAXWELL = {"type": "update", "data": CHANGED, "position": "m.000001:4"}
CANAL = {"type": "UPDATE", "data": [CHANGED]}
DMS = {"data": CHANGED, "metadata": {"operation": "update"}}
DEBEZIUM = {"op": "u", "after": CHANGED, "source": {"lsn": 1}}
FLAT = {**CHANGED, "__op": "u", "__lsn": 1}


def versions(cdc: CDC, *documents: Any) -> list[str]:
    """Return what decides between the changes of messages."""
    decoded = ChangeDecoder(cdc, TABLE).decode([json.dumps(one).encode() for one in documents])
    assert not any(decoded.wrong), decoded.wrong
    return list(decoded.columns[len(TABLE.columns) + 1].to_pylist())


def rows(cdc: CDC, *documents: Any) -> list[tuple[Any, ...]]:
    """Return the rows of messages: operation, shop, id, name and size."""
    decoded = ChangeDecoder(cdc, TABLE).decode([json.dumps(one).encode() for one in documents])
    shop, key, name, size, operation, *_ = (column.to_pylist() for column in decoded.columns)
    assert not any(decoded.wrong), decoded.wrong
    return list(zip(operation, shop, key, name, size, strict=True))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"old": {"id": 1}, "new": {"shop": "a", "id": 2, "name": "x"}}, [("d", "a", "1", None, None), ("u", "a", "2", "x", None)]),
        ({"old": {"shop": "a"}, "new": {"shop": "b", "id": 2}}, [("d", "a", "2", None, None), ("u", "b", "2", None, None)]),
        ({"old": {"name": "w"}, "new": {"shop": "a", "id": 2, "name": "x"}}, [("u", "a", "2", "x", None)]),
        ({"old": {"shop": None, "id": None}, "new": {"shop": "a", "id": 2}}, [("u", "a", "2", None, None)]),
        ({"old": {"shop": "a", "id": 2, "size": 1}, "new": {"name": "x"}}, [("u", "a", "2", "x", None)]),
        ({"old": {}, "new": {"name": "x"}, "k": {"shop": "a", "id": 2}}, [("u", "a", "2", "x", None)]),
        ({"new": {"shop": "a", "id": 2}}, [("u", "a", "2", None, None)]),
    ],
)  # fmt: skip
def test_a_row_before_an_update_may_have_only_what_was_changed(event: dict[str, Any], expected: list[Any]) -> None:
    assert rows(CUSTOM, {"o": "U", **event}) == expected


@pytest.mark.parametrize(
    "event",
    [
        {"old": {"id": 1}, "new": {"shop": "a"}},
        {"old": {"shop": "a"}, "k": {"id": 1}},
        {"old": {"shop": "a", "id": None}, "new": {"id": 1}},
        {"old": None, "new": None, "k": {"shop": "a", "id": 1}},
    ],
)
def test_a_row_that_is_deleted_has_its_key_from_all_that_the_event_tells(event: dict[str, Any]) -> None:
    assert rows(CUSTOM, {"o": "D", **event}) == [("d", "a", "1", None, None)]


@pytest.mark.parametrize("tries", [0, alike.TRIES])
def test_where_rows_are_deleted_the_column_for_marks_is_one_like_any_other(
    tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alike, "TRIES", tries)
    event = {"op": "c", "after": {"shop": "a", "id": 1, "name": "x", "size": 5}, "source": {"lsn": 1}}
    assert rows(CDC(soft_delete_column="name"), event) == [("c", "a", "1", "x", "5")]
    assert rows(CDC(delete_mode="soft", soft_delete_column="name"), event) == [("c", "a", "1", None, "5")]


@pytest.mark.parametrize(
    ("envelope", "message", "name"),
    [
        ("debezium", DEBEZIUM, "op"),
        ("debezium", {"schema": {}, "payload": DEBEZIUM}, ""),
        ("debezium", FLAT, "__op"),
        ("maxwell", MAXWELL, "type"),
        ("canal", CANAL, "type"),
        ("aws_dms", DMS, ""),
    ],
)
def test_what_is_declared_goes_for_envelopes_that_are_known(envelope: str, message: dict[str, Any], name: str) -> None:
    placed = [{**message, "n": place} for place in (9, 10)]
    if "payload" in message:
        placed = [{"schema": {}, "payload": {**message["payload"], "n": place}} for place in (9, 10)]
    first, second = versions(CDC(envelope, order_field="n"), *placed)
    assert first < second
    assert first.startswith("100000000000000000009")
    removing = CDC(envelope, op_map={"remove": "delete"})
    assert rows(removing, message) == rows(CDC(envelope), message) == [("u", "a", "1", "x", None)]
    if name:
        assert [one[0] for one in rows(removing, {**message, "before": CHANGED, name: "remove"})] == ["d"]


@pytest.mark.parametrize(
    ("envelope", "message", "block"),
    [("debezium", DEBEZIUM, "after"), ("maxwell", MAXWELL, "data"), ("aws_dms", DMS, "data")],
)
def test_a_row_may_have_its_key_in_a_field_of_the_event(envelope: str, message: dict[str, Any], block: str) -> None:
    event = {**message, block: {"shop": "a", "name": "x"}, "k": {"id": 5, "shop": "b"}}
    assert rows(CDC(envelope, key_field="k"), event) == [("u", "a", "5", "x", None)]
    if envelope == "debezium":
        assert rows(CDC(key_field="k"), {"schema": {}, "payload": event}) == [("u", "a", "5", "x", None)]


def test_a_field_without_the_key_does_not_hide_the_key_of_the_message() -> None:
    event = {**DEBEZIUM, "after": {"shop": "a"}, "k": {"id": None}}
    messages = pa.table({VALUE: pa.array([json.dumps(event).encode()]), KEY: pa.array(['{"id": 3}'])})
    decoded = ChangeDecoder(CDC(key_field="k"), TABLE, keyed=True).decode_messages(messages)
    assert (decoded.columns[1].to_pylist(), decoded.wrong) == (["3"], [None])


def test_the_rows_of_a_statement_may_be_in_other_fields() -> None:
    event = {"type": "UPDATE", "new": {"rows": [CHANGED]}, "prior": [{"id": 7}], "data": [{"id": 9}]}
    cdc = CDC("canal", after_field="new.rows", before_field="prior")
    assert rows(cdc, event) == [("d", "a", "7", None, None), ("u", "a", "1", "x", None)]


@pytest.mark.parametrize(("whole", "wrong"), [(True, None), (False, "a version needs whole rows")])
def test_a_version_may_lack_what_its_table_did_not_have(whole: bool, wrong: str | None) -> None:
    source = {"lsn": 1, "ts_ms": 1_700_000_000_000} | ({"whole": True} if whole else {})
    message = {"op": "u", "before": None, "after": {"id": 1, "name": "a"}, "source": source}
    table = ChangeTable("shop.t", (("id", "bigint"), ("name", "text"), ("colour", "text")), ("id",))
    decoded = ChangeDecoder(CDC(), table, whole=True).decode([json.dumps(message).encode()])
    if wrong is None:
        assert (decoded.wrong, decoded.columns[1].to_pylist(), decoded.columns[-1].to_pylist()) == (
            [None],
            ["a"],
            [None],
        )
    else:
        assert wrong in str(decoded.wrong[0])
