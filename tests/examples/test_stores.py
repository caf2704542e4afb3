"""The documented examples of lakes and object stores that are no streams, unchanged."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from ematix_flow import Target
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import run_pipeline
from ematix_flow.errors import FlowError
from tests.examples.conftest import README
from tests.examples.databases import EVENTS
from tests.services.s3 import KEY, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from tests.examples.databases import UserDatabase
    from tests.services.s3 import S3Server

    Example = Callable[..., ModuleType]

pytestmark = pytest.mark.slow


@pytest.mark.service
def test_one_query_goes_to_a_database_and_to_a_bucket(
    example: Example, duck: UserDatabase, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.create_events()
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", duck.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    module = example("object_store")
    results = run_pipeline(_at(module.events_fanout.pipeline, s3_server))
    assert {name: one["rows_inserted"] for name, one in results.items()} == {
        "public.events@warehouse": 3,
        "public.events@lake": 3,
    }
    assert duck.rows("SELECT event_id, name FROM public.events ORDER BY 1") == [row[:2] for row in EVENTS]
    client = s3_server.client()
    (entry,) = client.list_objects_v2(Bucket=module.lake.bucket, Prefix="events/raw/")["Contents"]
    body = client.get_object(Bucket=module.lake.bucket, Key=entry["Key"])["Body"].read()
    file = pq.ParquetFile(io.BytesIO(body))
    rows = file.read().sort_by("event_id").to_pylist()
    assert [(row["event_id"], row["name"]) for row in rows] == [row[:2] for row in EVENTS]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert SECRET not in repr(module.lake)


def _at(pipeline: Pipeline, server: S3Server) -> Pipeline:
    """Return the pipeline with its bucket at the service of the test instead of Amazon's."""
    first, second = pipeline.targets
    bucket: Any = second.connection
    server.execute(f"bucket {bucket.bucket}")
    return replace(pipeline, targets=(first, replace(second, connection=replace(bucket, endpoint=server.endpoint))))


def test_stores_are_declared_by_their_classes(example: Example) -> None:
    module = example("stores")
    assert [one.kind for one in (module.local_lake, module.lake, module.archive)] == [
        "delta_local",
        "delta_s3",
        "object_store_local",
    ]
    assert (module.lake.bucket, module.lake.prefix, module.archive.format) == ("ematix-lake", "tables", "csv")


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.service
@pytest.mark.xdist_group("lakes")
def test_another_target_is_another_word_in_one_line(
    postgres: UserDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.create_events()
    monkeypatch.setenv("WAREHOUSE_DSN", postgres.url)
    monkeypatch.chdir(tmp_path)
    before = (README / "one_line.py").read_text(encoding="utf-8")
    after = before.replace('target_connection="warehouse"', 'target_connection="lake"')
    changed = [pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(changed) == 1
    first, second = (_defined(text)["ingest_events"]() for text in (before, after))
    assert (first["path"], first["rows_inserted"]) == ("same_db", 3)
    assert (second["path"], second["rows_inserted"]) == ("cross_db", 3)
    files = sorted((tmp_path / "lake" / "analytics" / "events").glob("*.parquet"))
    in_lake = pq.read_table(files, coerce_int96_timestamp_unit="us").sort_by("event_id").to_pylist()
    in_postgres = postgres.rows("SELECT event_id, name, received_at FROM analytics.events ORDER BY 1")
    # Spark writes instants as it did ever since: in UTC, and without saying so.
    rows = [(row["event_id"], row["name"], row["received_at"].replace(tzinfo=UTC)) for row in in_lake]
    assert rows == in_postgres


def _defined(text: str) -> dict[str, Any]:
    """Return what a module of this text defines, instead of what an earlier one did."""
    PROJECT.clear()
    names: dict[str, Any] = {"__name__": "one_line"}
    exec(compile(text, "one_line.py", "exec"), names)  # noqa: S102 - the documented example itself
    return names


def test_options_of_another_format_are_refused(example: Example) -> None:
    module = example("stores")
    events = example("tables").CustomerDim
    with pytest.raises(FlowError, match="json_read_options= is for json_lines files, and these are csv"):
        Target(connection=module.archive, table=events, json_read_options={"batch_size": 1}).as_batch_target()
    with pytest.raises(FlowError, match="unknown key 'delimeter'") as refused:
        Target(connection=module.archive, csv_read_options={"delimeter": ";"})
    assert "delimiter" in str(refused.value)
