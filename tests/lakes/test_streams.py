"""Delta and Iceberg tables as sources of streams: what every commit added arrives once, and nothing else is made of it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import ematix, pk
from ematix_flow.errors import RunError, StreamLostError
from ematix_flow.failpoints import FailpointError, arm
from ematix_flow.types import BigInt, Numeric, Text  # noqa: TC001 - read from the annotations
from tests.depth import deep
from tests.lakes.growing import Growing
from tests.lakes.targets import lake_fields
from tests.streams.feeds import rows_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]


@ematix.table(schema="shop", name="copies")
class Copies:
    """The rows of a lake table in a database."""

    id: Annotated[BigInt, pk()]
    word: Text | None
    amount: Numeric[38, 4] | None


@pytest.fixture(params=["delta_local", deep("iceberg")])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Growing:
    """Return an empty table."""
    growing = Growing(lake_fields(request.param, tmp_path), tmp_path)
    growing.create()
    return growing


def test_rows_arrive_as_commits_add_them_and_once(lake: Growing) -> None:
    for expected in range(2):
        lake.add(expected * 10 + 1, expected * 10 + 2)
        assert lake.follow(target_table=Copies) == 2
    lake.compact()
    assert lake.follow(target_table=Copies) == 0
    lake.add(91)
    lake.add(92)
    assert lake.follow(target_table=Copies) == 2
    assert lake.ids() == [1, 2, 11, 12, 91, 92]
    rows = rows_in(lake.database_file, "SELECT word, CAST(amount AS VARCHAR) FROM shop.copies WHERE id = 92")
    assert rows == [("w92", "92.5000")]


@pytest.mark.deep
def test_a_commit_that_changes_rows_is_refused_and_can_be_left_out(lake: Growing) -> None:
    lake.add(1)
    lake.follow(target_table=Copies)
    lake.sql("INSERT OVERWRITE {table} VALUES (5, 'x', 1)")
    lake.add(6)
    with pytest.raises(RunError, match="removes or changes rows") as raised:
        lake.follow(target_table=Copies)
    assert lake.ids() == [1]
    lake.rewind(str(raised.value.hint).split("'")[1], target_table=Copies)
    assert lake.follow(target_table=Copies) == 1
    assert lake.ids() == [1, 6]


@pytest.mark.deep
def test_what_dies_around_a_commit_loads_every_row_once(lake: Growing) -> None:
    point = "commit.before_commit" if lake.is_delta else "commit.after_commit"
    lake.add(1)
    lake.add(2)
    arm(f"{point}=raise@2")
    with pytest.raises(FailpointError):
        lake.follow(target_table=Copies)
    arm("")
    assert lake.follow(target_table=Copies) == (1 if lake.is_delta else 0)
    assert lake.ids() == [1, 2]


@pytest.mark.deep
def test_a_table_whose_past_is_gone_is_read_as_it_is_and_followed(lake: Growing) -> None:
    lake.add(1, 2)
    lake.sql("DELETE FROM {table} WHERE id = 1")
    lake.add(3)
    assert lake.follow(target_table=Copies) == 2
    lake.add(4)
    assert lake.follow(target_table=Copies) == 1
    assert lake.ids() == [2, 3, 4]


@pytest.mark.deep
def test_sql_shapes_the_rows_for_a_table_that_begins_with_them(lake: Growing) -> None:
    given: dict[str, Any] = {
        "target_table": ("main", "totals"),
        "create_table": True,
        "transform_sql": "SELECT id, amount * 2 AS twice FROM source WHERE id > 1",
    }
    lake.add(1, 2)
    assert lake.follow(**given) == 1
    lake.add(3)
    lake.follow(**given)
    rows = rows_in(lake.database_file, "SELECT id, CAST(twice AS VARCHAR) FROM main.totals ORDER BY id")
    assert [(number, float(twice)) for number, twice in rows] == [(2, 5.0), (3, 7.0)]


@pytest.mark.deep
def test_snapshots_are_where_a_stream_begins_and_those_of_another_table_are_not(tmp_path: Path) -> None:
    lake = Growing(lake_fields("iceberg", tmp_path), tmp_path)
    lake.create()
    source = lake.source()
    assert source.start("latest") == source.start("earliest") == {"snapshot": None}
    lake.add(1)
    first = source.start("latest")
    assert source.start(json.dumps(first)) == first
    lake.add(2, 3)
    assert source.start("2999-01-01T00:00:00Z") == source.start("latest") != first
    assert source.start("2000-01-01T00:00:00Z") == source.start("earliest")
    assert source.distance(first, source.start("latest")) == 2
    assert source.ahead(source.start("earliest"), 1) == first
    shutil.rmtree(tmp_path / "warehouse" / "shop" / "things")
    lake.create()
    lake.add(2)
    with pytest.raises(StreamLostError, match="made again"):
        source.ahead(first, 1)
