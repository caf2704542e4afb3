"""Runs typical work once so that Java can record the classes it loads; a program of its own, started when a command is done."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.spark import class_archive as archives
from ematix_flow.run.spark.java import find_java
from ematix_flow.run.spark.java_process import spark_jars
from ematix_flow.run.spark.launch import end, launch, open_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ematix_flow.run.spark.class_archive import Archive

_NICENESS = 19
LIMIT_SECONDS = 900
"""How long the whole program may take; the machine may be busy, and everything else comes first."""
_WORK_SECONDS = 840
"""How long Java may take, so that there is time left to clean up."""


def main() -> int:
    """Build the archive for this Java and this Spark unless it is there; return 0 when it is there in the end."""
    os.nice(_NICENESS)
    signal.alarm(LIMIT_SECONDS)  # no process waits for this one, so it ends itself; Java ends with it
    archive = archives.archive_for(find_java(os.environ), spark_jars(os.environ), os.environ)
    if archive is None:
        return 1
    with archives.sole_builder(archive) as alone:
        if alone and not archive.usable:
            _build(archive)
    return 0 if archive.usable else 1


def _build(archive: Archive) -> None:
    """Record a session; a failure is noted so that not every command tries again."""
    archive.failed.touch()
    recorded = archive.file.with_suffix(f".{os.getpid()}.part")
    classic = launch(SparkSettings(archive="off"), record=recorded)
    watchdog = threading.Timer(_WORK_SECONDS, classic.driver.process.kill)
    watchdog.start()
    try:
        session = open_session(classic)
        exercise(session, str(classic.scratch.folder / "rows"))
        session.stop()
    finally:
        end(classic, timeout=_WORK_SECONDS)
        watchdog.cancel()
    if classic.driver.process.returncode == 0:
        archives.publish(archive, recorded)
    recorded.unlink(missing_ok=True)


def exercise(session: SparkSession, path: str) -> None:
    """Do a little of everything that pipelines do."""
    rows = session.range(100).selectExpr(
        "id", "id % 7 as k", "cast(id as string) as s", "cast(id as decimal(18, 2)) as d", "current_timestamp() as t"
    )
    rows.mapInArrow(_same, rows.schema).write.mode("overwrite").parquet(path)
    session.read.parquet(path).createOrReplaceTempView("rows")
    session.sql(
        "select a.k, count(*) as n, max(b.d) as d, row_number() over (order by a.k) as r "
        "from rows a join rows b on a.id = b.id where a.s like '%1%' group by a.k order by n"
    ).collect()
    session.sql("select try_cast(s as int), to_date(t), coalesce(d, 0) from rows limit 3").collect()
    session.range(0, 4, 1, 2).mapInArrow(_same, "id long").collect()


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    sys.exit(main())
