"""Change events beyond a mirror of known columns: dead letters, new columns, logs, histories, counters and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import CDC, Target
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.table.schema import Column
from ematix_flow.declare.table.types import String
from ematix_flow.engine.review.stream import dry_run_stream, preview_stream
from ematix_flow.engine.stream.dead_letters import Selection, records, replay
from ematix_flow.errors import BadRowsError, DeclareError, PlanError
from ematix_flow.events import BatchLoaded, StreamWarning
from ematix_flow.observe.bus import Bus
from ematix_flow.observe.metrics.stream import StreamMetrics
from tests.streams.feeds import drain, duckdb_at, rows_in
from tests.streams.mirrors import SOFT, THINGS, Mirror, event, row

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@pytest.fixture(autouse=True)
def _on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")


@pytest.fixture
def mirror(topic: Topic, warehouse: Path) -> Mirror:
    """Return an empty mirror in DuckDB."""
    return Mirror(topic, duckdb_at(warehouse))


def test_a_change_that_cannot_be_applied_is_a_dead_letter_and_can_be_replayed(mirror: Mirror) -> None:
    bad = event("c", 2, {"id": 2, "name": "b", "amount": "many"})
    with pytest.raises(BadRowsError, match="many"):
        mirror.apply([event("c", 1, row(1, "a", 1)), bad, event("c", 3, {"name": "nobody"})])
    mirror = replace(mirror, options={"transform_on_error": "dlq"})
    mirror.apply([])
    assert mirror.rows() == [(1, "a", 1)]
    letters = records(mirror.stream)
    assert len(letters) == 2
    assert any("without its key id" in one.reason for one in letters)
    # What was too much for the table is none for a wider one; the newer change of the row stays.
    mirror.apply([event("u", 5, row(2, "newer", 5))])
    done = replay(mirror.stream, Selection())
    assert done["taken"] == 2
    assert done["redeadlettered"] == 2
    assert mirror.rows() == [(1, "a", 1), (2, "newer", 5)]


def test_a_change_whose_time_no_calendar_has_is_a_dead_letter(mirror: Mirror) -> None:
    micros = event("c", 1, row(1, "a", 1))
    micros["source"]["ts_ms"] = 1_767_225_600_000_000
    with pytest.raises(BadRowsError, match="which no calendar has"):
        mirror.apply([micros, event("c", 2, row(2, "b", 2))])
    mirror = replace(mirror, options={"transform_on_error": "dlq"})
    mirror.apply([])
    assert mirror.rows() == [(2, "b", 2)]
    (letter,) = records(mirror.stream)
    assert "1767225600000000" in letter.reason


def test_a_replayed_change_is_applied_by_its_own_place(mirror: Mirror) -> None:
    cdc = CDC(schema_evolution="fail")
    first = replace(mirror, cdc=cdc, options={"transform_on_error": "dlq"})
    first.apply(
        [event("c", 1, {**row(1, "a", 1), "colour": "red"}), event("c", 2, {**row(2, "b", 2), "colour": "red"})]
    )
    first.apply([event("u", 3, row(2, "newer", 3))])
    assert first.rows() == [(2, "newer", 3)]
    done = replay(replace(first, cdc=CDC()).stream, Selection())
    assert (done["taken"], done["succeeded"]) == (2, 2)
    assert first.rows() == [(1, "a", 1), (2, "newer", 3)]


def test_a_value_that_the_target_cannot_store_is_replayed_as_a_change(mirror: Mirror) -> None:
    short = replace(
        THINGS, columns=(THINGS.columns[0], Column(String(3), nullable=True, name="name"), THINGS.columns[2])
    )
    short_mirror = replace(mirror, table=short, options={"transform_on_error": "dlq"})
    short_mirror.apply([event("c", 1, row(1, "too long", 1)), event("c", 2, row(2, "ok", 2))])
    assert short_mirror.rows() == [(2, "ok", 2)]
    done = replay(short_mirror.stream, Selection())
    assert (done["taken"], done["succeeded"], done["redeadlettered"]) == (1, 0, 1)


def test_new_columns_are_added(mirror: Mirror, warehouse: Path) -> None:
    mirror = replace(mirror, cdc=CDC(schema_evolution="evolve"))
    mirror.apply([event("c", 1, row(1, "a", 1))])
    mirror.apply(
        [event("c", 2, {**row(2, "b", 2), "colour": "red", "weight": 1.5}), event("u", 3, {"id": 1, "colour": "blue"})]
    )
    mirror.apply([event("u", 4, {"id": 2, "weight": 2})])
    assert rows_in(warehouse, "SELECT id, name, colour, weight FROM shop.things ORDER BY id") == [
        (1, "a", "blue", None),
        (2, "b", "red", 2.0),
    ]


def test_new_columns_lose_no_digit(mirror: Mirror, warehouse: Path) -> None:
    mirror = replace(mirror, cdc=CDC(schema_evolution="evolve"))
    written = '{"op": "c", "after": {"id": %d, "price": %s, "large": %s}, "source": {"lsn": %d}}'
    mirror.apply([(written % (1, "1234567890123456.7891", "12345678901234567890", 1)).encode()])
    mirror.apply([(written % (2, "0.123456789012345678", "-1", 2)).encode()])
    assert rows_in(warehouse, "SELECT price, large FROM shop.things ORDER BY id") == [
        (Decimal("1234567890123456.7891"), 12345678901234567890),
        (Decimal("0.123456789012345678"), -1),
    ]


def test_columns_that_are_left_out_are_warned_of_once_each(mirror: Mirror, tmp_path: Path) -> None:
    heard: list[Any] = []
    bus, log = Bus(), open_run_log(f"sqlite:///{tmp_path / 'runs.db'}")
    bus.subscribe(heard.append)
    coloured = [event("c", lsn, {**row(lsn, "a", 1), "colour": "red", "weight": lsn}) for lsn in (1, 2)]
    gone = event("d", 3, None, {"id": 1, "colour": "red", "size": 7})
    replace(mirror, options={"max_rows_per_batch": 1}).apply([*coloured, gone], bus=bus, run_log=log)
    assert mirror.rows() == [(2, "a", 1)]
    warnings = [one.message for one in heard if isinstance(one, StreamWarning)]
    assert sorted(one.partition(",")[0] for one in warnings) == [
        "changes have the column 'colour'",
        "changes have the column 'weight'",
    ]
    assert [one.counts.left_out for one in heard if isinstance(one, BatchLoaded)] == [2, 2, 0]
    (record,), _ = log.list_runs(pipeline=mirror.stream.name)
    assert record.extras["warnings"] == warnings
    assert record.extras["changes"] == {
        "creates": 2, "updates": 0, "deletes": 1, "skipped": 0, "idempotent_skipped": 0, "late": 0, "left_out": 4,
    }  # fmt: skip
    heard.clear()
    replace(mirror, cdc=CDC(schema_evolution="evolve")).apply([event("u", 4, {"id": 2, "colour": "blue"})], bus=bus)
    assert not [one for one in heard if isinstance(one, StreamWarning)]


def test_a_table_can_be_made_of_the_changes(topic: Topic, warehouse: Path) -> None:
    options = {
        "targets": [Target(duckdb_at(warehouse), table=("shop", "made"), primary_key=("id",), create_table=True)]
    }
    topic.write(
        [event("c", 1, row(1, "a", 1)), event("d", 2, None, {"id": 1}), event("c", 3, row(2, "b", 2))], partition=0
    )
    given_ = {"name": "made", "source": topic.connection, "source_query": topic.name, "cdc": CDC(), **options}
    drain(stream_from_keywords(given_, None))
    assert rows_in(warehouse, "SELECT id, name, amount FROM shop.made") == [(2, "b", 2)]


def test_a_log_has_every_change(mirror: Mirror) -> None:
    mirror = replace(mirror, options={"mode": "append"})
    mirror.apply([event("c", 1, row(1, "a", 1)), None, event("u", 2, row(1, "b", 1)), event("d", 3, None, {"id": 1})])
    mirror.apply([event("t", 4)])
    logged = mirror.rows("_cdc_order", "_cdc_op", "id", "name", "_cdc_at IS NOT NULL")
    assert [entry[1:] for entry in logged] == [
        ("create", 1, "a", True),
        ("update", 1, "b", True),
        ("delete", 1, None, True),
        ("truncate", None, None, True),
    ]


def test_changes_make_a_history(mirror: Mirror) -> None:
    mirror = replace(mirror, options={"mode": "scd2"})
    mirror.apply([event("c", 1000, row(1, "a", 1)), None, event("c", 1000, row(2, "x", 1))])
    mirror.apply([event("u", 2000, row(1, "b", 1)), event("d", 3000, None, {"id": 2})])
    mirror.apply([event("u", 1500, row(1, "between", 1))], 1)
    ended = "valid_to IS NULL"
    assert mirror.rows("id", "name", "is_current", ended) == [
        (1, "a", False, False),
        (1, "b", True, True),
        (1, "between", False, False),
        (2, "x", False, False),
    ]


def test_changes_are_counted_by_what_became_of_them(mirror: Mirror) -> None:
    metrics, bus, batches = StreamMetrics(), Bus(), []
    bus.subscribe(metrics)
    bus.subscribe(lambda one: batches.append(one) if isinstance(one, BatchLoaded) else None)
    events = [event("c", 1, row(1)), event("r", 2, row(2)), event("u", 3, row(1)), event("d", 4, None, {"id": 2}), None]
    mirror.apply([*events, event("u", 3, row(1)), {"op": "m"}], bus=bus)
    mirror.apply([events[0]], bus=bus)

    def number(name: str) -> float | None:
        return metrics.registry.get_sample_value(f"ematix_streaming_cdc_{name}_total", {"pipeline": mirror.stream.name})

    names = ("creates", "updates", "deletes", "skipped", "idempotent_skipped")
    assert [number(name) for name in names] == [2, 1, 1, 2, 2]
    assert batches[0].counts.staged == 7


def test_an_update_of_a_missing_row_inserts_it_or_nothing(mirror: Mirror) -> None:
    ignoring = replace(mirror, cdc=CDC(missing_rows="ignore"))
    ignoring.apply([event("u", 1, row(1, "a")), event("c", 2, row(2, "b")), event("u", 3, row(2, "bb"))])
    assert ignoring.rows() == [(2, "bb", None)]
    mirror.apply([event("u", 4, row(3, "c"))])
    assert mirror.rows() == [(2, "bb", None), (3, "c", None)]


@pytest.mark.parametrize("size", [1, 4])
def test_where_missing_rows_are_ignored_none_is_marked_that_was_never_there(mirror: Mirror, size: int) -> None:
    cdc = CDC(missing_rows="ignore", delete_mode="soft", soft_delete_column="gone_at")
    ignoring = replace(mirror, table=SOFT, cdc=cdc, options={"max_rows_per_batch": size})
    ignoring.apply([
        event("u", 1, row(1, "a")),
        event("d", 2, None, {"id": 1}),
        event("c", 3, row(2, "b")),
        event("d", 4, None, {"id": 2}),
    ])  # fmt: skip
    assert ignoring.rows("id", "name", "gone_at IS NULL") == [(2, "b", False)]


def test_a_range_that_is_loaded_again_knows_what_is_newer(mirror: Mirror) -> None:
    mirror.apply(
        [
            event("c", 1, row(1, "a")),
            event("u", 2, row(1, "b")),
            event("c", 3, row(2, "x")),
            event("d", 4, None, {"id": 2}),
        ]
    )
    mirror.apply([], begin="earliest")
    assert mirror.rows() == [(1, "b", None)]
    first = {"offsets": {"0": 0, "1": 0, "2": 0}}
    end = json.dumps({"offsets": {"0": 1, "1": 0, "2": 0}})
    mirror.apply([], begin=json.dumps(first), end=end)
    assert mirror.rows() == [(1, "b", None)]


def test_the_program_is_shown_without_a_change(mirror: Mirror) -> None:
    mirror.topic.write([event("c", 1, row(1, "a", 1))], partition=0)
    shown = str(preview_stream(mirror.stream))
    assert "CDC (changes by key)" in shown
    assert "cdc" in shown
    counts = dry_run_stream(mirror.stream).targets[0]
    assert counts.dry_run_error is None
    mirror.apply([])
    assert mirror.rows() == [(1, "a", 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "merge"}, "leave mode= out"),
        ({"transform_sql": "SELECT * FROM source"}, "takes no transform_sql="),
        ({"mode": "scd2", "cdc": CDC(delete_mode="soft", soft_delete_column="x")}, "does not go with mode='scd2'"),
    ],
)
def test_what_does_not_go_with_changes_is_refused(mirror: Mirror, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclareError, match=message):
        replace(mirror, options=options).stream  # noqa: B018 - declared when it is read


def test_a_table_without_a_key_is_refused(mirror: Mirror) -> None:
    columns = tuple(replace(column, primary_key=False) for column in THINGS.columns)
    keyless = replace(mirror, table=replace(THINGS, columns=columns))
    with pytest.raises(PlanError, match="need to know its primary key"):
        keyless.apply([event("c", 1, row(1))])
    replace(keyless, options={"keys": ["id"]}).apply([])
    assert mirror.rows() == [(1, None, None)]


def test_toml_declares_the_same(topic: Topic, warehouse: Path) -> None:
    topic.write(
        [event("c", 1, row(1, "a", 1)), event("d", 2, None, {"id": 1}), event("c", 3, row(2, "b", 2))], partition=0
    )
    rows_in(warehouse, "CREATE SCHEMA shop; CREATE TABLE shop.plain (id BIGINT PRIMARY KEY, name TEXT)")
    drain(stream_from_toml(topic.toml("plain", warehouse, "plain", '[transform.cdc]\nenvelope = "debezium"')))
    assert rows_in(warehouse, "SELECT * FROM shop.plain") == [(2, "b")]
