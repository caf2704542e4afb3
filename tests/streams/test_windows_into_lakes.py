"""Windows whose table is one of Iceberg: each is there once, whatever was interrupted, and given out again it replaces itself."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import Text
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.failpoints import FailpointError, arm
from ematix_flow.plan.sql.render import native_name
from tests.depth import STATE_CHANGES
from tests.lakes.targets import lake_fields
from tests.streams.feeds import drain
from tests.streams.test_state_ends import EXPECTED, FIRST, SECOND, THIRD, rows_of, window

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.deep,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful", "quick_lakes"),
]

TABLE = Table("silver", "w", (Column(Text(), name="user"),))
REOPENED: dict[str, Any] = {
    "window": window(late_data="reopen", allowed_lateness_ms=60_000),
    "mode": "merge",
    "target_primary_key": ["window_start", "user"],
}


def windows_in(lake: Connection) -> list[tuple[Any, ...]]:
    """Return the windows of the table: the second at which they begin, user, rows and sum."""
    database = target_for(lake, TABLE, session_for(Options()))
    name = native_name(database.table_name(TABLE.schema, TABLE.name), database.dialect)
    second = "CAST(unix_timestamp(window_start) - unix_timestamp(TIMESTAMP '2026-03-01 00:00:00Z') AS INT)"
    with closing(database.session()) as session:
        return sorted(database.data(session).query(f"SELECT {second}, user, n, total FROM {name}"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"window": window()}, EXPECTED),
        (REOPENED, [(0, "a", 2, 9), (0, "b", 2, 7), *EXPECTED[2:]]),
    ],
    ids=["append", "merge"],
)
def test_windows_go_into_iceberg_once(
    tmp_path: Path, topic: Topic, more: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    lake = connection_from_fields("lake", lake_fields("iceberg", tmp_path))
    stream = topic.stream(lake, target_table=(TABLE.schema, TABLE.name), create_table=True, **more)
    topic.write(FIRST, partition=0)
    drain(stream)
    topic.write(SECOND, partition=0)
    arm("state.loaded=raise@1")
    try:
        with pytest.raises(FailpointError):
            drain(stream)
    finally:
        arm("")
    for rows in (THIRD, rows_of((50, "z", 1), (2, "b", 5))):
        topic.write(rows, partition=0)
        drain(stream)
    assert [tuple(row) for row in windows_in(lake)] == [*expected, (30, "c", 1, 32)]
