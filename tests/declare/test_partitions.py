"""Partitions are read from texts, and what no table could be divided by is refused with the nearest name."""

from __future__ import annotations

from typing import Annotated

import pytest

from ematix_flow import BigInt, Date, Double, ManagedTable, Target, Text, TimestampTZ, ematix, pk
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.partitions import Partition, partitions_of
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.errors import DeclareError, DeclareTypeError, UnknownNameError

HOSTILE = "a`b, 'c'\n(d)"
COLUMNS = {
    "id": BigInt(),
    "city": Text(),
    "at": TimestampTZ(),
    "day": Date(),
    "share": Double(),
    HOSTILE: Text(),
    "day_day": Text(),
}


def of(*texts: str) -> tuple[Partition, ...]:
    return partitions_of(texts, COLUMNS, "shop.things")


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("city", Partition("city")),
        ("years(at)", Partition("at", "years")),
        (" hours( at ) ", Partition("at", "hours")),
        ("months(day)", Partition("day", "months")),
        ("bucket(16,id)", Partition("id", "bucket", 16)),
        ("truncate( 4 , city )", Partition("city", "truncate", 4)),
        (HOSTILE, Partition(HOSTILE)),
        (f"bucket(3, {HOSTILE})", Partition(HOSTILE, "bucket", 3)),
    ],
)
def test_a_text_is_a_column_or_a_transform(text: str, partition: Partition) -> None:
    assert of(text) == (partition,)
    assert of(str(partition)) == (partition,)


def test_a_column_may_be_called_like_a_transform() -> None:
    columns = {"days(at)": Text(), "at": TimestampTZ()}
    assert partitions_of(("days(at)",), columns, "t") == (Partition("days(at)"),)


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (("citty",), "no such column", "did you mean 'city'"),
        (("days(att)",), "no such column", "did you mean 'at'"),
        (("day(at)",), "no transform 'day'", "did you mean 'days'"),
        (("days(city)",), "is Text", "bucket, truncate"),
        (("hours(day)",), "is Date", "years, months, days"),
        (("share",), "is Double", "nothing"),
        (("truncate(4, at)",), "is TimestampTZ", "hours"),
        (("bucket(id)",), "no number", r"bucket\(16, id\)"),
        (("truncate(0, city)",), "no number above zero", r"truncate\(4, city\)"),
        (("days(at)", "hours(at)"), "the same thing", "leave one"),
        (("days(day)",), "shows it as 'day_day'", "rename the column"),
        (("city", "city"), "the same thing", "leave one"),
    ],
)
def test_what_cannot_be_is_refused(texts: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises((DeclareError, UnknownNameError), match=message) as refused:
        of(*texts)
    refused.match(hint)


def test_a_table_class_is_checked_when_it_is_declared() -> None:
    class Things(ManagedTable):
        __schema__, __tablename__ = "shop", "things"
        __partition_columns__ = ("days(at)", "is_current")
        id: Annotated[BigInt, pk()]
        at: TimestampTZ

    assert Things.__table__.partition_columns == ("days(at)", "is_current")
    with pytest.raises(UnknownNameError, match="'att'"):
        Table("shop", "things", (Column(BigInt(), primary_key=True, name="id"),), partition_columns=("att",))


@ematix.table(schema="shop")
class Sales:
    id: Annotated[BigInt, pk()]
    city: Text


def test_targets_say_their_own_partitions() -> None:
    one = ematix.target(Sales, connection="one", mode="append", partition_by="city")
    two = Target(table=Sales, connection="two", mode="append", partition_by=("bucket(4, id)",))

    @ematix.pipeline(targets=[one, two, ematix.target(Sales, mode="append")], target_partition_by=["truncate(1, city)"])
    def sales(conn: object) -> str:
        return "SELECT 1"

    partitions = [target.partition_by for target in PROJECT.pipeline("sales").targets]
    assert partitions == [("city",), ("bucket(4, id)",), ("truncate(1, city)",)]
    with pytest.raises(UnknownNameError, match="'citty'"):
        ematix.target(Sales, mode="append", partition_by=["citty"])
    with pytest.raises(DeclareTypeError, match="takes columns and transforms"):
        ematix.target(Sales, mode="append", partition_by={"city": 1})
