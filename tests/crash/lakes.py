"""What a lake table shows the crash tests: the rows of its newest version, and every commit that is not one load's alone.

Rows of Delta tables are read from the files that the log names, without any engine; Iceberg's through the server's.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.delta import log as delta_log
from ematix_flow.connect.delta.table import Delta
from ematix_flow.connect.iceberg.branches import PROPERTY
from ematix_flow.failpoints import LAKE_NAMES, NAMES
from ematix_flow.plan.sql.render import native_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

LAKES = ("delta_local", "iceberg")
LAKE_KINDS = (*LAKES, "iceberg_sql")
"""With Iceberg tables of a catalog that appends need no Spark for."""

BEFORE_THE_CHANGE = (
    *(name for name in NAMES[: NAMES.index("commit.applied_first_stmt")]),
    "store.before_record@1",
    "store.before_change",
)
"""The failpoints that a load passes while its rows are as they were."""

AFTER_THE_CHANGE = (
    "store.after_change",
    "commit.applied_first_stmt",
    "commit.applied",
    "commit.before_commit",
    "store.before_record@2",
    *(name for name in NAMES[NAMES.index("commit.commit_sent") :] if not name.startswith("post.")),
)


LAKE_POINTS = (*BEFORE_THE_CHANGE, *AFTER_THE_CHANGE)
assert {name.partition("@")[0] for name in LAKE_POINTS} >= set(LAKE_NAMES)


def leave(remote: str) -> None:
    """End the session of this test process, before its server ends."""
    reader(remote).stop()
    reader.cache_clear()


@cache
def reader(remote: str) -> SparkSession:
    """Return the session that this test process reads with."""
    from ematix_flow.run.spark.connect_client import far_session

    session = far_session(remote)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def shown(lake: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a table; none when there is no table."""
    if isinstance(lake, Delta):
        return list(_in_files(lake, columns))
    if lake.columns() is None:
        return []
    return lake.engine().query(f"SELECT {', '.join(columns)} FROM {_name(lake)}")  # type: ignore[no-any-return]


def strange_commits(lake: Any) -> list[str]:
    """Return every commit that changed rows and names no load, and every name that two of them carry."""
    names = _named_in_log(lake) if isinstance(lake, Delta) else _named_in_history(lake)
    return [f"{count} commits named {name!r}" for name, count in Counter(names).items() if count > 1 or not name]


def locks(lake: Any) -> list[str]:
    """Return the locks on a table that nobody holds any more and nobody has cleared."""
    return [entry.key for entry in lake.store.listed(f"{lake.home}locks/") if not entry.key.endswith(".dead")]


def folded(lake: Any) -> set[str]:
    """Return the sets of folded events beside a table; a load that ends in good order leaves one."""
    return {entry.key.split("/")[3] for entry in lake.store.listed(f"{lake.home}points/")}


def branches(lake: Any) -> list[str]:
    """Return the branches that loads have left in an Iceberg table; a Delta table has none."""
    if isinstance(lake, Delta):
        return []
    return [name for (name,) in lake.engine().query(f"SELECT name FROM {_name(lake)}.refs") if name != "main"]


def data_files(lake: Any) -> set[str]:
    """Return the files of rows below the table's folder, named by its log or not."""
    schema, name = lake.table
    files = (entry.key for entry in lake.store.listed(f"{schema}/{name}/"))
    return {key for key in files if key.endswith(".parquet") and "_delta_log" not in key}


def _name(lake: Any) -> str:
    return native_name(lake.table_name(*lake.table), lake.dialect)


def _in_files(lake: Delta, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    live: dict[str, dict[str, Any]] = {}
    for actions in reversed(list(delta_log.commits(lake.store, lake.folder))):
        for action in actions:
            if "remove" in action:
                del live[action["remove"]["path"]]
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    for path, added in live.items():
        assert "deletionVector" not in added
        rows = pq.read_table(lake.store.path(f"{lake.folder}{path}"), columns=list(columns)).to_pylist()
        yield from (tuple(row[name] for name in columns) for row in rows)


def _named_in_log(lake: Delta) -> Iterator[str]:
    for actions in delta_log.commits(lake.store, lake.folder):
        if any("add" in action or "remove" in action for action in actions):
            commit_info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
            metadata = json.loads(commit_info.get("userMetadata", "{}"))
            # A refusal writes a file without rows.
            if "refused" not in metadata or commit_info["operationMetrics"]["numOutputRows"] != "0":
                yield metadata.get("ematix_flow", "")


def _named_in_history(lake: Any) -> Iterator[str]:
    name = _name(lake)
    changed = " OR ".join(f"coalesce(s.summary['{change}-data-files'], '0') <> '0'" for change in ("added", "deleted"))
    for (property_value,) in lake.engine().query(
        f"SELECT s.summary['{PROPERTY}'] FROM {name}.snapshots AS s "
        f"JOIN {name}.history AS h ON s.snapshot_id = h.snapshot_id WHERE h.is_current_ancestor AND ({changed})"
    ):
        yield "" if property_value is None or property_value.startswith("refused") else property_value
