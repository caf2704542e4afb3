"""What a function may return for a lake: a query, a name, or the folder of a table."""

from __future__ import annotations

import pytest

from ematix_flow.errors import DeclareError
from ematix_flow.plan.source import source_value


@pytest.mark.parametrize("kind", ["delta_local", "delta_s3", "iceberg"])
@pytest.mark.parametrize(
    ("returned", "table"),
    [
        ("analytics/item", ("analytics", "item")),
        ("/analytics/item/", ("analytics", "item")),
        ("analytics.item", ("analytics", "item")),
        ("analytics/a.b c", ("analytics", "a.b c")),
        ("item", ("", "item")),
    ],
)
def test_the_folder_of_a_table_is_the_table(kind: str, returned: str, table: tuple[str, str]) -> None:
    assert source_value(returned, "lake", None, kind).table == table


@pytest.mark.parametrize("returned", ["a/b/c", "analytics/*", "a//b", "a.b.c", "/"])
def test_what_is_no_table_of_a_lake_is_refused(returned: str) -> None:
    with pytest.raises(DeclareError, match="no table of a lake"):
        source_value(returned, "lake", None, "iceberg")


def test_a_query_stays_one() -> None:
    assert source_value("SELECT * FROM analytics.item", "lake", None, "iceberg").sql == "SELECT * FROM analytics.item"
