"""What only Delta tables ask of a stream: divided tables, files that were vacuumed, logs that were cut; and buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.errors import StreamLostError
from tests.lakes.growing import Growing
from tests.lakes.targets import bucket_of, lake_fields
from tests.streams.feeds import rows_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

COPIES: dict[str, Any] = {"target_table": ("shop", "copies"), "create_table": True}


@pytest.fixture
def lake(tmp_path: Path) -> Growing:
    """Return a lake in a folder whose name looks like a pattern."""
    return Growing(lake_fields("delta_local", tmp_path / "a [b] c"), tmp_path)


@pytest.mark.deep
def test_a_divided_table_keeps_its_values(lake: Growing) -> None:
    lake.create("id BIGINT, day DATE, a_word STRING", "PARTITIONED BY (day, a_word)")
    lake.sql("INSERT INTO {table} VALUES (1, DATE'2026-01-01', 'x')")
    assert lake.follow(**COPIES) == 1
    lake.sql(
        "INSERT INTO {table} VALUES (2, DATE'2026-01-02', 'a/b ü%=[c]'), (3, NULL, NULL), (4, DATE'2026-01-02', 'x')"
    )
    assert lake.follow(**COPIES) == 3
    rows = rows_in(lake.database_file, "SELECT id, CAST(day AS VARCHAR), a_word FROM shop.copies ORDER BY id")
    expected = [(1, "2026-01-01", "x"), (2, "2026-01-02", "a/b ü%=[c]"), (3, None, None), (4, "2026-01-02", "x")]
    assert rows == expected


@pytest.mark.deep
def test_a_column_that_comes_later_is_loaded_too(lake: Growing) -> None:
    lake.create()
    lake.add(1)
    lake.follow(**COPIES)
    lake.sql("ALTER TABLE {table} ADD COLUMN more STRING")
    lake.sql("INSERT INTO {table} VALUES (2, 'b', 2, 'm')")
    assert lake.follow(**COPIES) == 1
    assert rows_in(lake.database_file, "SELECT id, more FROM shop.copies ORDER BY id") == [(1, None), (2, "m")]


@pytest.mark.deep
def test_files_that_were_vacuumed_before_they_were_read_are_missed(lake: Growing) -> None:
    lake.create()
    lake.add(1)
    lake.follow(**COPIES)
    lake.add(2)
    before = set(lake.folder.rglob("things/*.parquet"))
    lake.compact()
    for file in before:
        file.unlink()
    with pytest.raises(StreamLostError, match="vacuumed"):
        lake.follow(**COPIES)
    assert lake.follow(name="other", target_table=("shop", "others"), create_table=True) == 2


@pytest.mark.deep
def test_a_log_that_was_cut_is_missed_or_read_as_the_table_is(lake: Growing) -> None:
    lake.create("id BIGINT, word STRING, amount DECIMAL(38,4)", "TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    lake.add(1)
    lake.follow(**COPIES)
    for number in (2, 3, 4):
        lake.add(number)
    log = lake.folder / "a [b] c" / "lake" / "shop" / "things" / "_delta_log"
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    with pytest.raises(StreamLostError, match="has versions 3 to 4, and 2 is next"):
        lake.follow(**COPIES)
    assert lake.follow(name="other", target_table=("shop", "others"), create_table=True) == 4
    assert lake.ids("shop.others") == [1, 2, 3, 4]


@pytest.mark.deep
@pytest.mark.service
@pytest.mark.parametrize("kind", ["delta_s3", "iceberg_s3"])
def test_tables_in_a_bucket_are_followed(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    lake = Growing(lake_fields(kind, tmp_path, bucket_of(request)), tmp_path)
    lake.create()
    for number in (1, 2):
        lake.add(number)
        assert lake.follow(**COPIES) == 1
    assert lake.ids() == [1, 2]
