"""Times of changes decide where there is no place in a log: those of the source, with their parts of a second."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ematix_flow import CDC
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable

TABLE = ChangeTable("shop.things", (("id", "big_int"),), ("id",))


def versions(cdc: CDC, *messages: dict[str, Any]) -> list[str]:
    """Return what decides between the changes of messages."""
    decoded = ChangeDecoder(cdc, TABLE).decode([json.dumps(one).encode() for one in messages])
    assert not any(decoded.wrong)
    return list(decoded.columns[2].to_pylist())


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (1_700_000_000.123, 1_700_000_000.124),
        ("1700000000.123456", "1700000000.123457"),
        (1_700_000_000, 1_700_000_000.000001),
        (1_700_000_000.9, 1_700_000_001),
        ("2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.123457Z"),
        ("2026-01-01T00:00:00.5+01:00", "2025-12-31T23:00:00.500001Z"),
        ("2026-01-01T00:00:00.123Z", 1_767_225_600_123.001),
    ],
)
def test_times_within_a_second_are_told_apart(earlier: Any, later: Any) -> None:
    cdc = CDC("custom", op_field="o", after_field="a", key_field="k", ts_field="t", op_map={"U": "update"})
    messages = [{"o": "U", "a": {"id": 1}, "t": at} for at in (earlier, later)]
    first, second = versions(cdc, *messages)
    assert first < second
    second, first = versions(cdc, *reversed(messages))
    assert first < second, "whichever comes first"


def test_the_time_of_a_flattened_row_is_that_of_its_source() -> None:
    row, own, source = {"id": 1, "__op": "u"}, {"__ts_ms": 1_767_225_600_999}, {"__source_ts_ms": 1_767_225_600_001}
    both = [{**row, **own, **source}, {**row, **source, **own}]
    *sources, silent = versions(CDC(), *both, {**row, **source}, {**row, **own, "__source_ts_ms": None})
    assert set(sources) == {"000000001767225600001000000"}
    assert silent == "000000001767225600999000000"
    named = versions(CDC(ts_field="at_ms"), {**row, **own, **source, "at_ms": 1_767_225_600_500})
    assert named == ["000000001767225600500000000"]
    places = [{**row, "__source_lsn": 7, "__lsn": 9}, {**row, "__lsn": 9, "__source_lsn": 7}]
    assert len(set(versions(CDC(), *places))) == 1
