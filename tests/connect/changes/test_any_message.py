"""Whatever a message has, it is rows or refused with a reason: no error comes out of a decoder."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow import CDC
from ematix_flow.connect.base.stream_source import VALUE
from ematix_flow.connect.changes.change import KEY
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.values import BITS, DECIMAL, UNITS

KINDS = (
    "big_int",
    "boolean",
    "bytes",
    "date",
    "double",
    "jsonb",
    "numeric",
    "text",
    "timestamp",
    "timestamp_tz",
    "uuid",
)
COLUMNS = (("id", "big_int"), ("shop", "text"), *((f"a_{kind}", kind) for kind in KINDS))
ROW = {"id": 1, "shop": "a", "a_bytes": "AAEC", "a_date": 20_000, "a_numeric": {"scale": 2, "value": "AfQ="}}
FIELDS = [{"field": f"a_{kind}", "name": DECIMAL, "type": "bytes", "parameters": {"scale": "2"}} for kind in KINDS]
CHANGE = {"op": "u", "before": {"id": 2, "shop": "a"}, "after": ROW, "source": {"lsn": 5, "ts_ms": 1_767_225_600_000}}
CUSTOM = {
    "op_field": "o", "before_field": "b", "after_field": "a", "key_field": "k", "ts_field": "t", "order_field": "n",
    "op_map": {"U": "update", "D": "delete", "R": "read"},
}  # fmt: skip
MESSAGES: list[tuple[CDC, dict[str, Any]]] = [
    (CDC(), CHANGE),
    (CDC(), {"schema": {"fields": [{"field": "after", "fields": FIELDS}]}, "payload": CHANGE}),
    (CDC(order_field="source.lsn", ts_field="source.ts_ms"), CHANGE),
    (CDC(time_unit="ns"), {**ROW, "__op": "u", "__source_ts_ms": 5, "__lsn": 7}),
    (
        CDC("maxwell"),
        {"type": "update", "data": ROW, "old": {"id": 2}, "ts": 1_700_000_000, "position": "m.1:4", "xoffset": 1},
    ),
    (CDC("canal"), {"type": "UPDATE", "data": [ROW, ROW], "old": [{"id": "2"}, None], "es": 1_700_000_000_000}),
    (
        CDC("aws_dms"),
        {
            "data": ROW,
            "before-image": {"id": 2},
            "metadata": {"operation": "update", "timestamp": "2026-01-01T00:00:00Z"},
        },
    ),
    (CDC("custom", **CUSTOM), {"o": "U", "a": ROW, "b": {"id": 2}, "k": {"shop": "a"}, "t": "2026-01-01", "n": 5}),  # type: ignore[arg-type]
]
NAMES = [
    "op",
    "payload",
    "schema",
    "fields",
    "after",
    "__op",
    "__deleted",
    "scale",
    "value",
    "parameters",
    "name",
    "\ud800",
]
TOKENS = [
    "c",
    "d",
    "t",
    "delete",
    "D",
    "R",
    "true",
    "m.1:9",
    '["\u0663","4"]',
    "AA==",
    "\ud800",
    "1e99999",
    "9" * 5000,
    BITS,
    *UNITS,
]
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*TOKENS, 10**30, -(10**400)]) | st.text()
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=3), max_leaves=6
)  # fmt: skip


def altered(data: st.DataObject, value: Any) -> Any:
    """Return a value of which one part is missing or something else."""
    if isinstance(value, dict | list) and value and data.draw(st.booleans() | st.just(value=True)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, what = (
            data.draw(st.sampled_from(keys)),
            data.draw(st.sampled_from(("altered", "altered", "missing", "more"))),
        )
        parts = dict(value) if isinstance(value, dict) else dict(enumerate(value))
        if what == "altered":
            parts[key] = altered(data, parts[key])
        elif what == "missing":
            del parts[key]
        else:
            parts[data.draw(st.sampled_from(NAMES))] = data.draw(VALUES)
        return parts if isinstance(value, dict) else list(parts.values())
    return data.draw(VALUES)


def check(cdc: CDC, payload: bytes, key: str | None) -> None:
    """Decode a message, and expect that what is no row says why."""
    table = ChangeTable("t", COLUMNS, ("id", "shop"), ("id", "shop"))
    for whole in (False, True):
        messages = pa.table({VALUE: pa.array([payload], pa.binary()), KEY: pa.array([key], pa.string())})
        decoded = ChangeDecoder(cdc, table, keyed=True, whole=whole).decode_messages(messages)
        operations = decoded.columns[len(COLUMNS)].to_pylist()
        assert all(code == "s" for code, wrong in zip(operations, decoded.wrong, strict=True) if wrong is not None)


@pytest.mark.slow
@settings(max_examples=300)
@given(data=st.data())
def test_any_message_is_rows_or_is_refused(data: st.DataObject) -> None:
    cdc, message = data.draw(st.sampled_from(MESSAGES))
    for _ in range(data.draw(st.integers(1, 3))):
        message = altered(data, message)
    payload = json.dumps(message, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass")
    key = data.draw(st.none() | VALUES)
    check(cdc, payload, None if key is None else json.dumps(key))


@pytest.mark.parametrize(("cdc", "message"), MESSAGES)
@pytest.mark.parametrize("payload", [b"", b"\xff", b"\0", b"[]", b"{", b"{}", b'{"payload": 1}', b'{"a":' * 100_000])
def test_what_is_no_message_is_refused(cdc: CDC, message: dict[str, Any], payload: bytes) -> None:
    check(cdc, payload, None)
    half = json.dumps(message).encode()
    check(cdc, half[: len(half) // 2], "[" * 100_000)


@pytest.mark.parametrize("depth", [100, 900, 990, 3_000])
@pytest.mark.parametrize("key", ["a_jsonb", "id", "op", "source"])
def test_deep_values_end_no_stream(depth: int, key: str) -> None:
    deep = "[" * depth + "]" * depth
    after = {**ROW, "a_jsonb": 1} | ({key: "deep"} if key in ("a_jsonb", "id") else {})
    event = {"op": "c", "after": after} | ({key: "deep"} if key in ("op", "source") else {})
    check(CDC(), json.dumps(event).replace('"deep"', deep).encode(), None)


def test_half_a_surrogate_pair_in_the_key_of_a_message_is_no_key() -> None:
    check(CDC(), b'{"op": "d", "before": null, "source": {"lsn": 1}}', '{"id": 1, "shop": "\\ud800"}')
