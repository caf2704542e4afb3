"""Commits to Iceberg tables by pyiceberg alone: who is refused, and what is remembered."""

from __future__ import annotations

import json
from contextlib import closing
from socket import socket
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow.connect.base.columns import ColumnSchema
from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.iceberg import client as iceberg_client
from ematix_flow.connect.iceberg.files import IcebergFiles
from ematix_flow.connect.iceberg.table import Iceberg
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connect.iceberg.files import LoadedTable

COLUMNS = [ColumnSchema("id", "BIGINT", nullable=False), ColumnSchema("word", "STRING", nullable=True)]
SECRET = "canary-catalog-3Wq8"


def catalog(folder: Path, **given: Any) -> Any:
    fields = {"catalog_type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "warehouse": str(folder / "lake")}
    return connection_from_fields("lake", {"kind": "iceberg", **fields, **given})


def created(connection: Any) -> IcebergFiles:
    files = IcebergFiles("lake", connection, ("shop", "things"))
    files.create_namespace()
    assert files.create(COLUMNS)
    return files


def loaded(files: IcebergFiles) -> LoadedTable:
    table = files.load()
    assert table is not None
    return table


def placed(table: LoadedTable, folder: Path, *numbers: int) -> list[str]:
    """Write a file with the ids of the table's columns and place it among the table's own."""
    ids = json.loads(table.field_ids())
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("word", pa.string())]
    schema = pa.schema([field.with_metadata({"PARQUET:field_id": str(ids[field.name][0])}) for field in fields])
    staged, location = folder / "staged.parquet", table.new_location()
    pq.write_table(pa.table({"id": numbers, "word": ["a"] * len(numbers)}, schema=schema), staged)
    table.publish(str(staged), location)
    return [location]


@pytest.mark.slow
def test_files_are_committed_once_and_remembered(tmp_path: Path) -> None:
    files = created(catalog(tmp_path))
    assert not files.create(COLUMNS)
    late, table = loaded(files), loaded(files)
    assert table.takes_files(str(tmp_path))
    table.add(placed(table, tmp_path, 1, 2), "first")
    after = loaded(files)
    assert (after.is_committed("first"), after.is_committed("second")) == (True, False)
    assert after.last_change()
    with pytest.raises(TransientError, match="changed the Iceberg table first"):
        late.add(placed(late, tmp_path, 3), "second")


def test_a_change_that_was_refused_is_never_taken(tmp_path: Path) -> None:
    files = created(catalog(tmp_path))
    late = loaded(files)
    waiting = placed(late, tmp_path, 1)
    loaded(files).refuse("late")
    with pytest.raises(TransientError):
        late.add(waiting, "late")
    after = loaded(files)
    assert (after.is_committed("late"), after.last_change()) == (False, "")


def test_an_append_without_files_is_remembered_too(tmp_path: Path) -> None:
    files = created(catalog(tmp_path))
    loaded(files).add([], "nothing")
    assert loaded(files).is_committed("nothing")


@pytest.mark.service
def test_a_catalog_in_postgres_is_committed_to(postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_url) as known:
        at, login = known.info, {"user": known.info.user, "password": known.info.password}
        uri = f"jdbc:postgresql://{at.host}:{at.port}/{at.dbname}"
    files = created(catalog(tmp_path, uri=uri, **login))
    late, table = loaded(files), loaded(files)
    table.add(placed(table, tmp_path, 1), "first")
    assert loaded(files).is_committed("first")
    with pytest.raises(TransientError):
        late.add(placed(late, tmp_path, 2), "second")


def test_a_catalog_that_cannot_be_asked_says_so_without_secrets(tmp_path: Path) -> None:
    login = {"user": "lake", "password": SECRET}
    for given in ({"uri": "jdbc:postgresql://127.0.0.1:1/x"}, {"catalog_type": "rest", "uri": "http://127.0.0.1:1"}):
        with pytest.raises(EngineError) as caught:
            IcebergFiles("lake", catalog(tmp_path, **given, **login), ("shop", "things"))
        assert caught.value.transient
        assert SECRET not in str(caught.value)


def test_a_service_that_never_answers_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_client, "ANSWER_SECONDS", 0.2)
    with closing(socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EngineError, match="timed out"):
            IcebergFiles("lake", catalog(tmp_path, catalog_type="rest", uri=uri), ("shop", "things"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, ""),
        ({"uri": "jdbc:postgresql://db/catalog?sslmode=require"}, ""),
        ({"uri": "jdbc:postgresql://db/catalog?loggerLevel=OFF"}, "only Java"),
        ({"uri": "jdbc:postgresql://one,two/catalog"}, "only Java"),
        ({"uri": "jdbc:mysql://db/catalog"}, "only Java"),
        ({"uri": "jdbc:sqlite:catalog.db"}, "relative"),
        ({"warehouse": "lake"}, "relative"),
        ({"catalog_type": "hadoop"}, "in a folder"),
    ],
)
def test_which_catalogs_are_left_to_spark(tmp_path: Path, given: dict[str, str], reason: str) -> None:
    capabilities = Iceberg(catalog(tmp_path, **given), ("shop", "things")).capabilities
    assert reason in capabilities.rewrites
    assert capabilities.adds_files is (not reason)
