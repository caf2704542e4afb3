"""Queries over several connections on Spark: every system as a side, types, modes, rejects, increments and lineage."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import duckdb
import pyarrow.compute as pc
import pytest

from ematix_flow import Source, udf
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import Options, diff_pipeline, preview_pipeline, run_pipeline
from ematix_flow.engine.review.apply import apply_plan
from ematix_flow.engine.review.dry_run import dry_run_pipeline
from ematix_flow.engine.review.validate import validate_pipeline
from ematix_flow.events import RunPlanned
from ematix_flow.observe.bus import Bus
from ematix_flow.run_log import SqliteRunLog
from tests.engine.every_type import ROWS, Journey, frame_of, plain
from tests.engine.joined_shop import QUERY, loaded, shop
from tests.engine.test_types_round import TEXTS, as_digits, fields_of, within_orc
from tests.lakes.targets import lake_fields

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("lakes"),
    pytest.mark.usefixtures("quick_lakes", "_on_spark"),
]


@pytest.fixture
def _on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows be moved by Spark, in the session that tests of lakes share."""
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")


def test_a_join_is_loaded_like_any_source() -> None:
    heard: list[Any] = []
    bus = Bus()
    bus.subscribe(heard.append)
    pipeline = shop(QUERY.format(low=1))
    counted = dry_run_pipeline(pipeline)
    assert counted.ok, counted.errors
    assert (counted.targets[0].dry_run_rows_affected or {})["rows_inserted"] == 2
    result = run_pipeline(pipeline, Options(bus=bus))
    assert (result["rows_inserted"], result["engine"]) == (2, "spark")
    assert loaded() == [(2, "bob", 2.5), (3, "ada", 3.5)]
    assert run_pipeline(pipeline, Options())["rows_unchanged"] == 2
    (planned, *_) = (event for event in heard if isinstance(event, RunPlanned))
    facts = planned.facts()
    folder = str(Path.cwd())
    assert [(one.namespace, one.name) for one in facts.inputs] == [
        (f"duckdb://{folder}/shop.duckdb", "main.orders"), ("file", f"{folder}/people/customers")
    ]  # fmt: skip
    assert [(one.dataset.name, one.field) for one in facts.origins["amount"]] == [("main.orders", "amount")]


@pytest.mark.deep
def test_a_join_reads_its_missing_target_as_empty() -> None:
    duckdb.connect("target.duckdb").close()
    query = "SELECT o.id, COALESCE(t.name || '!', 'new') AS name, o.amount FROM shop.orders o LEFT JOIN own.sold t ON t.id = o.id WHERE o.id < 3"
    pipeline = shop(query)
    assert validate_pipeline(pipeline).errors == ()
    assert dry_run_pipeline(pipeline).errors == ()
    assert run_pipeline(pipeline, Options())["rows_inserted"] == 2
    assert loaded() == [(1, "new", 1.5), (2, "new", 2.5)]
    assert run_pipeline(pipeline, Options())["rows_updated"] == 2
    assert loaded() == [(1, "new!", 1.5), (2, "new!", 2.5)]


@pytest.mark.service
def test_a_long_preview_shows_how_spark_would_run_it(postgres_url: str) -> None:
    password = urlsplit(postgres_url).password
    assert password
    pipeline = shop(QUERY.format(low=1).replace("shop.orders", "pg.orders"), more={"pg": postgres_url})
    with closing(open_database("pg").session()) as session:
        session.execute("CREATE TABLE orders (id INT, customer INT, amount FLOAT8)")
    result = preview_pipeline(pipeline, physical=True)
    shown = result.targets[0].spark_plan
    assert shown is not None
    assert "Physical Plan" in shown
    assert "Join" in shown
    # Nobody knows yet how large the tables are.
    assert "Broadcast" not in shown
    assert "MapInArrow" in shown
    assert password not in shown + result.to_json() + result.text(verbose=True)
    assert "would run what it evaluates like this" in result.text(verbose=True)
    assert shown.splitlines()[0] not in result.text()
    assert result.to_dict()["targets"][0]["spark_plan"] == shown
    assert not any("assumed" in note for note in result.notes)


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["append", "truncate", "scd2"])
def test_a_planned_join_can_be_applied(mode: str) -> None:
    pipeline = shop(QUERY.format(low=1), mode=mode)
    log = SqliteRunLog(Path("runs.db"))
    diff = diff_pipeline(pipeline, Options(run_log=log))
    assert diff.targets[0].added == 2
    apply_plan(diff.plan_id, Options(run_log=log))
    assert loaded() == [(2, "bob", 2.5), (3, "ada", 3.5)]


@pytest.mark.deep
def test_functions_of_the_user_are_called_in_it() -> None:
    query = QUERY.format(low=1).replace("o.amount FROM", "doubled(o.amount) AS amount FROM")
    run_pipeline(shop(query, udfs=[doubled]), Options())
    assert loaded() == [(2, "bob", 5.0), (3, "ada", 7.0)]


@udf(args=("Float64",), returns="Float64")
def doubled(amount: pa.Array) -> pa.Array:
    return pc.multiply(amount, 2.0)


@pytest.mark.deep
def test_maps_rejects_and_increments_work_over_it() -> None:
    query = "SELECT o.id AS number, c.name, o.amount, o.broken FROM shop.orders o LEFT JOIN people.customers c ON o.customer = c.id"
    mapped = {"id": "number", "name": "upper(name)", "amount": "amount"}
    pipeline = shop(query, mode="append", column_map=mapped, incremental_column="id", on_bad_row="reject")
    first = run_pipeline(pipeline, Options())
    assert (first["rows_inserted"], first["rows_rejected"]) == (3, 1)
    assert loaded() == [(1, "ADA", 1.5), (2, "BOB", 2.5), (3, "ADA", 3.5)]
    with duckdb.connect("shop.duckdb") as database:
        database.execute("INSERT INTO orders VALUES (5, 8, 9, '')")
    counted = dry_run_pipeline(pipeline).targets[0].plan
    assert counted is not None
    assert counted.read.tables[0].sql.endswith('WHERE ("id" > 4 AND "id" <= 5 OR "id" IS NULL)')
    again = run_pipeline(pipeline, Options())
    assert (again["rows_inserted"], again["rows_rejected"]) == (1, 0)


# --- every system as a side --------------------------------------------------------------------------------------

SERVERS = ("postgres", "mysql")
SIDES = ("duckdb", "sqlite", *SERVERS, "csv", "json_lines", "parquet", "orc", "delta_local", "iceberg")


def side_of(system: str, request: pytest.FixtureRequest, folder: Path) -> tuple[dict[str, Any], str, str]:
    """Return the settings of a system, the schema of a table there and what a query calls the table."""
    if system in ("delta_local", "iceberg"):
        return lake_fields(system, folder, None), "main", "s.main.every"
    fields, schema, _ = fields_of(system, request, folder)
    if system in ("duckdb", "sqlite"):
        return fields, schema, "s.every"
    return fields, schema, f"s.{schema}.every"


@pytest.mark.deep
@pytest.mark.service
def test_one_query_joins_every_system(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Each side has one row that the others lack, so that each of them decides about the result."""
    connections: dict[str, Any] = {}
    tables = []
    for number, system in enumerate(SIDES):
        folder = tmp_path / system
        folder.mkdir()
        fields, schema, table = side_of(system, request, folder)
        others = [row for row in MODEL if row["id"] != 100 + number]
        types = {"id": BigInt(), "words": Text()}
        rows = [{**row, "words": f"{row['words']} {system}" if row["words"] else None} for row in others]
        Journey(folder).load(frame_of(rows, types), fields, schema=schema, types=types)
        connections[system] = connection_from_fields(system, fields)
        tables.append(table.replace("s.", f"{system}.", 1))
    names = [f"t{number}" for number in range(len(SIDES))]
    joins = " ".join(
        f"JOIN {table} {name} ON t0.id = CAST({name}.id AS BIGINT)"
        for table, name in zip(tables[1:], names[1:], strict=True)
    )
    all_texts = ", ".join(f"{name}.words" for name in names)
    query = f"SELECT t0.id, concat_ws('|', {all_texts}) AS words FROM {tables[0]} t0 {joins} WHERE t0.id <> 3"
    types = {"id": BigInt(), "words": Text()}
    what = Source.sql(query, connections=connections)
    stored_rows = Journey(tmp_path).rows_in(
        {"kind": "duckdb", "path": str(tmp_path / "none.duckdb")}, what, types=types
    )
    expected = [(1, "|".join(f"ünï ✂ {system}" for system in SIDES)), (2, "")]
    assert sorted((row["id"], row["words"]) for row in stored_rows) == expected


@pytest.mark.service
@pytest.mark.deep
@pytest.mark.parametrize("system", SIDES)
def test_types_come_through_a_join_as_through_a_load(
    system: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    fields, schema, table = side_of(system, request, tmp_path)
    rows = [within_orc(row) for row in ROWS] if system == "orc" else ROWS
    journey = Journey(tmp_path)
    journey.load(frame_of(rows), fields, schema=schema)
    connections = {"s": connection_from_fields("side", fields), "other": other(tmp_path)}
    query = f"SELECT e.* FROM {table} e CROSS JOIN other.one"
    stored_rows = journey.rows_in(fields, Source.sql(query, connections=connections))
    assert plain(stored_rows) == plain([as_digits(row) for row in rows] if system in TEXTS else rows)


def other(folder: Path) -> Any:
    """Return a database with a table of one row."""
    with duckdb.connect(str(folder / "other.duckdb")) as database:
        database.execute("CREATE TABLE one AS SELECT 1 AS one")
    return connection_from_fields("other", {"kind": "duckdb", "path": str(folder / "other.duckdb")})


MODEL: list[dict[str, Any]] = [
    {"id": 1, "words": "ünï ✂"},
    {"id": 2, "words": None},
    {"id": 3, "words": "left out"},
    *({"id": 100 + number, "words": "lacks"} for number in range(len(SIDES))),
]
