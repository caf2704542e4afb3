"""Pipelines between warehouses, end to end: Redshift's protocol and SQL on a real PostgreSQL, as far as the two agree."""

from __future__ import annotations

import datetime as dt
import io
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ematix_flow
from ematix_flow import Source, pk
from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.connect.redshift import stager as redshift_stager
from ematix_flow.connect.warehouse.rows import parquet_parts
from ematix_flow.declare.connection.registry import DuckDBConnection, RedshiftConnection, register_connection
from ematix_flow.engine.doctor import check_health
from ematix_flow.engine.warehouse.run import run_warehouse_pipeline
from ematix_flow.errors import DeclareError, PlanError, RunError
from ematix_flow.pipeline import preview
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from ematix_flow.warehouse_pipeline import FileWatermarkStore, WarehouseSource, WarehouseTarget, warehouse_pipeline
from tests.engine.warehouse_flows import copying, interrupted_at
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.services.s3 import S3Server

pytestmark = pytest.mark.service

ORDERS = """CREATE TABLE orders (id BIGINT, name VARCHAR(50), price DECIMAL(10, 2), paid BOOLEAN, weight DOUBLE PRECISION,
day DATE, at TIMESTAMP, seen TIMESTAMPTZ)"""
ROWS = """INSERT INTO orders VALUES
(1, 'tea', 2.50, TRUE, 0.5, '2026-01-01', '2026-01-01 10:00:00', '2026-01-01 10:00:00+00'),
(2, 'it''s \\ "salt"', 1.20, FALSE, NULL, NULL, NULL, NULL)"""


class Shop:
    """A database that stands for a cluster, and what is asked of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        address = urlsplit(url)
        self.connection = RedshiftConnection(
            "shop",
            host=str(address.hostname),
            port=int(address.port or 0),
            database=address.path.lstrip("/"),
            user=str(address.username),
            password=str(address.password),
        )
        self.run(ORDERS, ROWS)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def pipeline(
        self, sql: str = "SELECT * FROM orders", transform: str | None = None, **more: Any
    ) -> Callable[[], Any]:
        return copying(self.connection, sql, transform, **{"table_name": "public.copied", **more})


@pytest.fixture
def shop(postgres_url: str) -> Shop:
    return Shop(postgres_url)


def test_rows_arrive_as_they_were(shop: Shop) -> None:
    result = shop.pipeline()()
    assert {name: result[name] for name in ("status", "pipeline", "rows_read", "rows_written")} == {
        "status": "success",
        "pipeline": "copy",
        "rows_read": 2,
        "rows_written": 2,
    }
    assert isinstance(result["duration_ms"], int)
    rows = shop.run("SELECT * FROM copied ORDER BY id")
    assert rows == shop.run("SELECT * FROM orders ORDER BY id")
    assert rows[0][2:] == (
        Decimal("2.50"),
        True,
        0.5,
        dt.date(2026, 1, 1),
        dt.datetime(2026, 1, 1, 10),  # noqa: DTZ001 - a local time
        dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC),
    )


def test_sql_in_between_is_run_by_duckdb_and_may_read_the_rows_twice(shop: Shop) -> None:
    transform = (
        "SELECT a.name, count(*) AS n, sum(b.price) AS all_prices FROM source a, source b GROUP BY ALL ORDER BY 1"
    )
    result = shop.pipeline(transform=transform)()
    assert (result["rows_read"], result["rows_written"]) == (2, 2)
    assert shop.run("SELECT n, all_prices FROM copied") == [(2, Decimal("3.70"))] * 2


def test_another_run_adds_what_the_source_has_then(shop: Shop) -> None:
    copy = shop.pipeline()
    copy()
    copy()
    assert shop.run("SELECT count(*) FROM copied") == [(4,)]


@pytest.mark.parametrize("point", ["warehouse.before_commit", "warehouse.after_commit"])
def test_a_run_that_is_interrupted_is_taken_up_and_adds_its_rows_once(shop: Shop, point: str) -> None:
    copy = shop.pipeline()
    with interrupted_at(point):
        copy()
    result = copy()
    assert (result["rows_read"], result["rows_written"]) == (2, 2)
    assert shop.run("SELECT id FROM copied ORDER BY id") == [(1,), (2,)]
    assert shop.run("SELECT count(*) FROM ematix_flow_loads") == [(1,)]


def test_an_answer_to_commit_that_is_lost_is_looked_up(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from ematix_flow.connect.redshift.session import RedshiftSession

    commit = RedshiftSession.commit

    def lost(self: RedshiftSession) -> None:
        commit(self)
        self._connection.close()
        self.query("SELECT 1")

    monkeypatch.setattr(RedshiftSession, "commit", lost)
    assert shop.pipeline()()["rows_written"] == 2
    assert shop.run("SELECT count(*) FROM copied") == [(2,)]


def test_a_load_that_fails_leaves_nothing(shop: Shop) -> None:
    shop.run("CREATE TABLE copied (id BIGINT CHECK (id < 2))")
    with pytest.raises(RunError, match=r"shop.*violates check constraint"):
        shop.pipeline("SELECT id FROM orders")()
    assert shop.run("SELECT count(*) FROM copied") == [(0,)]
    assert shop.run("SELECT count(*) FROM ematix_flow_loads") == [(0,)]


def test_only_rows_above_the_watermark_are_read(shop: Shop, tmp_path: Path) -> None:
    store = FileWatermarkStore(tmp_path / "watermarks.json")
    copy = shop.pipeline("SELECT id, at FROM orders", incremental_column="id", watermark_store=store)
    assert copy()["rows_read"] == 2
    assert store.get("copy") == "2"
    assert copy()["rows_read"] == 0
    shop.run("INSERT INTO orders (id) VALUES (3)")
    assert copy()["rows_read"] == 1
    assert shop.run("SELECT id FROM copied ORDER BY id") == [(1,), (2,), (3,)]


def test_a_watermark_that_was_not_stored_after_a_commit_is_stored_by_the_next_run(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileWatermarkStore(tmp_path / "watermarks.json")
    copy = shop.pipeline("SELECT id, day FROM orders", incremental_column="day", watermark_store=store)
    with monkeypatch.context() as patched:
        patched.setattr(FileWatermarkStore, "set", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            copy()
    assert copy()["rows_read"] == 2
    assert store.get("copy") == '"2026-01-01"'
    assert copy()["rows_read"] == 0
    assert shop.run("SELECT count(*) FROM copied") == [(2,)]


def test_many_rows_are_inserted_by_statements_of_bounded_length(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redshift_stager, "STATEMENT_CHARACTERS", 5_000)
    sql = "SELECT n AS id, repeat('x', 100) AS name FROM generate_series(1, 25000) AS n"
    assert shop.pipeline(sql)()["rows_written"] == 25_000
    assert shop.run("SELECT count(DISTINCT id), min(length(name)) FROM copied") == [(25_000, 100)]


def test_what_cannot_be_written_or_run_is_refused(shop: Shop) -> None:
    with pytest.raises(PlanError, match="column 'l' is list"):
        shop.pipeline(transform="SELECT [1, 2] AS l FROM source", name="copy0")()
    with pytest.raises(PlanError, match=r"failed: .*nothing"):
        shop.pipeline(transform="SELECT * FROM nothing", name="copy1")()
    with pytest.raises(PlanError, match="one query over `source`"):
        shop.pipeline(transform="SELECT 1; SELECT 2", name="copy2")()
    with pytest.raises(PlanError, match="incremental_column='idd' is not among"):
        shop.pipeline(incremental_column="idd", watermark_store=FileWatermarkStore("w.json"), name="copy3")()
    with pytest.raises(RunError, match="does not exist"):
        shop.pipeline("SELECT * FROM missing", name="copy4")()


def test_rows_that_cannot_be_read_to_their_end_leave_nothing(shop: Shop) -> None:
    sql = "SELECT 1 / (n - 15000) AS id FROM generate_series(1, 20000) AS n"
    with pytest.raises(RunError, match=r"redshift connection 'shop': division by zero"):
        shop.pipeline(sql)()
    with pytest.raises(RunError, match=r"to their end: .*division by zero"):
        shop.pipeline(sql, "SELECT * FROM source", name="made")()
    with pytest.raises(PlanError, match=r"SQL of the warehouse pipeline failed: .*tea"):
        shop.pipeline(transform="SELECT CAST(name AS INT) AS n FROM source", name="cast")()
    assert shop.run("SELECT to_regclass('copied'), (SELECT count(*) FROM ematix_flow_loads)") == [(None, 0)]


def test_two_attempts_of_one_load_at_the_same_time_add_its_rows_once(shop: Shop) -> None:
    copy: Any = shop.pipeline("SELECT n AS id FROM generate_series(1, 2000) AS n")
    copy()
    pipeline = copy.pipeline
    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(run_warehouse_pipeline, pipeline, pipeline.warehouse, "slot", SYSTEM_CLOCK) for _ in range(4)
        ]
        results = [one.result() for one in runs]
    assert [one["rows_written"] for one in results] == [2000] * 4
    assert shop.run("SELECT count(*) FROM copied") == [(4000,)]  # those of the first run, and of the slot once


def test_a_decimal_is_a_watermark(shop: Shop, tmp_path: Path) -> None:
    store = FileWatermarkStore(tmp_path / "watermarks.json")
    copy = shop.pipeline("SELECT id, price FROM orders", incremental_column="price", watermark_store=store)
    assert [copy()["rows_read"], copy()["rows_read"]] == [2, 0]
    assert store.get("copy") == "2.50"


def test_a_pipeline_into_another_system_reads_a_query(shop: Shop, tmp_path: Path) -> None:
    connection = shop.connection
    target = DuckDBConnection("local", path=str(tmp_path / "local.duckdb"))

    @ematix_flow.ematix.table(schema="main", name="orders")
    class Orders:
        id: Annotated[BigInt, pk()]
        name: Text

    @ematix_flow.ematix.pipeline(target=Orders, target_connection=target, mode="merge")
    def orders(conn: Any) -> Source:
        return Source.redshift_query(connection, "SELECT id, name FROM orders")

    assert orders()["rows_inserted"] == 2
    assert "not by a preview" in str(orders.preview())


def test_no_secret_is_in_an_error(shop: Shop) -> None:
    wrong = RedshiftConnection("shop", host="127.0.0.1", port=1, database="d", user="u", password="canary-secret")
    shop.connection = wrong
    with pytest.raises(RunError, match="redshift connection 'shop'") as caught:
        shop.pipeline()()
    assert "canary-secret" not in str(caught.value)
    assert "canary-secret" not in repr(wrong)


def test_declarations_are_checked() -> None:
    connection = RedshiftConnection("shop", host="h", database="d", user="u", password="p")
    source, target = WarehouseSource(connection, "SELECT 1", "redshift"), WarehouseTarget(connection, "t", "redshift")
    with pytest.raises(DeclareError, match="kind='oracle'"):
        WarehouseSource(connection, "SELECT 1", "oracle")
    with pytest.raises(DeclareError, match="is of kind 'snowflake', and connection 'shop' is redshift"):
        WarehouseTarget(connection, "t", "snowflake")
    with pytest.raises(DeclareError, match="belong together"):
        warehouse_pipeline(source=source, target=target, incremental_column="id")(lambda: None)
    with pytest.raises(TypeError, match="takes arguments"):
        warehouse_pipeline(source=source, target=target)(lambda conn: conn)  # type: ignore[misc]

    warehouse_pipeline(source=source, target=target, name="orders")(lambda: None)

    @ematix_flow.ematix.warehouse_pipeline(
        source=source,
        target=target,
        schedule="0 3 * * *",
        depends_on=["orders"],
        upstream_freshness_secs=60,
        retry={"max_attempts": 3},
    )
    def nightly() -> None: ...

    assert (nightly.name, nightly.pipeline.schedule, nightly.pipeline.depends_on) == (
        "nightly",
        "0 3 * * *",
        ("orders",),
    )
    assert nightly.pipeline.resumes


def test_a_folder_in_a_bucket_needs_a_role() -> None:
    connection = RedshiftConnection(
        "shop", host="h", database="d", user="u", password="p", s3_staging_dir="s3://bucket/stage"
    )
    with pytest.raises(DeclareError, match="iam_role"):
        redshift_stager.staging_store(connection)


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a bucket that the AWS libraries find by themselves."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", REGION)
    return s3_bucket


def keys_in(server: S3Server, bucket: str) -> list[str]:
    return [one["Key"] for one in server.client().list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_parts_for_copy_have_a_folder_of_their_own(s3_server: S3Server, bucket: str) -> None:
    connection = RedshiftConnection(
        "shop", host="h", database="d", user="u", password="p", s3_staging_dir=f"s3://{bucket}/stage", iam_role="arn:r"
    )
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array([0, None], pa.timestamp("us", "UTC"))})
    store, token = redshift_stager.staging_store(connection), "0123456789abcdef01234567ffff"
    first, second = (redshift_stager.StagedParts(store, token) for _ in range(2))
    assert first.write(parquet_parts(rows.to_batches(), rows.schema)) == 2
    assert second.write(parquet_parts(rows.to_batches(), rows.schema)) == 2
    written = keys_in(s3_server, bucket)
    assert len(written) == 2
    assert all(re.fullmatch(r"stage/0123456789abcdef01234567/[0-9a-f]{32}/part-00000\.parquet", key) for key in written)
    body = s3_server.client().get_object(Bucket=bucket, Key=written[0])["Body"].read()
    assert pq.read_table(io.BytesIO(body)).to_pylist() == rows.to_pylist()
    folder = re.escape(f"s3://{bucket}/stage/0123456789abcdef01234567/")
    expected = rf"COPY \"s\" FROM '{folder}[0-9a-f]{{32}}/' IAM_ROLE 'arn:r' FORMAT AS PARQUET"
    assert re.fullmatch(expected, first.copy_sql('"s"', "arn:r"))
    first.remove()
    assert len(keys_in(s3_server, bucket)) == 1


def test_a_copy_that_fails_leaves_neither_rows_nor_parts(shop: Shop, s3_server: S3Server, bucket: str) -> None:
    shop.connection = replace(shop.connection, s3_staging_dir=f"s3://{bucket}/stage", iam_role="arn:r")
    with pytest.raises(RunError, match="syntax error"):  # PostgreSQL knows no COPY from a bucket
        shop.pipeline()()
    assert keys_in(s3_server, bucket) == []
    assert shop.run("SELECT to_regclass('copied'), (SELECT count(*) FROM ematix_flow_loads)") == [(None, 0)]


def test_a_check_of_the_connection_logs_in(shop: Shop) -> None:
    register_connection(shop.connection)
    report = check_health("shop")
    assert (report.status, report.detail) == ("ok", "redshift lets us in")
    register_connection(replace(shop.connection, port=1))
    assert check_health("shop").status == "fail"


def test_a_plan_of_it_is_refused_by_what_it_is(shop: Shop) -> None:
    shop.pipeline()
    with pytest.raises(TypeError, match="pipeline 'copy' is a warehouse pipeline, which has no plan"):
        preview("copy")
