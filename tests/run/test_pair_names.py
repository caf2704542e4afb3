"""The columns of pairs have names of their own, whatever the rows of both sides have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructType

from ematix_flow import Join
from ematix_flow.errors import RunError
from ematix_flow.run.streams.results import pair_names


def join(left: str = "left_", right: str = "right_") -> Join:
    """Declare a join with these prefixes."""
    keys = {"left_keys": ("id",), "right_keys": ("id",), "time_window_ms": 5}
    return Join("a", "b", left_column_prefix=left, right_column_prefix=right, **keys)  # type: ignore[arg-type]


def row(*names: str) -> StructType:
    """Return the type of a row."""
    kind = StructType()
    for name in names:
        kind.add(name, LongType())
    return kind


def test_columns_have_the_prefix_of_their_side() -> None:
    assert pair_names(join(), row("id"), row("id", "at")) == ({"id": "left_id"}, {"id": "right_id", "at": "right_at"})
    assert pair_names(join(""), None, row("id")) == ({}, {"id": "right_id"})


def test_two_columns_with_one_name_are_refused_with_where_they_are_from() -> None:
    with pytest.raises(RunError, match="column 'r_id' twice: 'R_ID' of the left source, 'id' of the right one"):
        pair_names(join("", "r_"), row("id", "R_ID"), row("id"))
