"""What a child of the nursery can be asked to do: one load, or load after load until it is killed."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, NoReturn

from ematix_flow import failpoints
from ematix_flow.commit import publish
from ematix_flow.connect.duckdb import database as duckdb
from ematix_flow.connect.lake import lock as lake_lock
from ematix_flow.connect.mysql import session as mysql_session
from ematix_flow.connect.postgres import session as postgres_session
from ematix_flow.connect.sqlite import session as sqlite_session
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import apply_plan, diff_pipeline
from ematix_flow.serve.cli.commands import run as running  # noqa: F401 - imported before the children need it
from ematix_flow.serve.cli.common import (
    capture,  # noqa: F401 - imported before the children need it
    spark,  # noqa: F401 - imported before the children need it
)
from ematix_flow.serve.cli.common.signals import stopping
from ematix_flow.serve.cli.main import main
from tests.crash import bugs
from tests.crash.journey import MODES, CrashTarget, Load, create_source, options_of, pipeline_of, prepare, run
from tests.engine.inboxes import Inbox
from tests.engine.topic_flows import TopicFlow

KILL_LOOP = ("append", "merge", "scd2_event", "truncate")
"""The modes that a kill loop takes in turn."""


def warm_up() -> None:
    """Import what the children need, and nothing that starts a thread."""
    import adbc_driver_postgresql  # noqa: F401
    import confluent_kafka  # noqa: F401
    import psycopg  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import pymysql  # noqa: F401
    import sqlglot

    from ematix_flow.connect.files import table as file_tables  # noqa: F401
    from ematix_flow.connect.kafka import sink as kafka_sink  # noqa: F401
    from ematix_flow.connect.kafka import source as kafka_stream  # noqa: F401
    from ematix_flow.connect.mysql import database as mysql  # noqa: F401
    from ematix_flow.connect.postgres import reader as postgres_rows  # noqa: F401
    from ematix_flow.connect.sqlite import database as sqlite  # noqa: F401
    from ematix_flow.engine.batch import run as conductor  # noqa: F401
    from ematix_flow.run.local import threads  # noqa: F401

    for dialect in ("duckdb", "sqlite", "postgres", "mysql"):
        sqlglot.parse_one("SELECT 1 AS one FROM t", dialect=dialect).sql(dialect)
    with TemporaryDirectory() as folder:
        _simulate(Path(folder))


def warm_up_for_lakes() -> None:
    """Import what loads of lake tables need besides; a channel to a server begins in each child only."""
    from pyspark.sql.connect import session  # noqa: F401

    from ematix_flow.connect.delta import table as delta  # noqa: F401
    from ematix_flow.connect.iceberg import table as iceberg  # noqa: F401
    from ematix_flow.run.spark import lake_engine  # noqa: F401


def _simulate(folder: Path) -> None:
    """Load once into a file that vanishes: the first load of a process compiles what later ones find ready."""
    create_source(folder / "events", 1)
    target = CrashTarget(
        "sqlite", {"path": str(folder / "target")}, str(folder / "events"), str(folder / "log"), "main"
    )
    prepare(target)
    for mode in MODES:
        run(target, Load(mode, 0, f"warm_{mode}"))


def perform(job: dict[str, Any]) -> Any:
    """Do what a job says, in this process."""
    target = CrashTarget(**job["arguments"][0])
    if job.get("bug"):
        bugs.plant(job["bug"])
    if job.get("impatient"):
        _become_impatient()
    if target.remote:
        _change_rows_at(target.remote)
    failpoints.arm(job.get("failpoints", ""))
    known = {
        "load": _load, "flow": _flow, "stoppable": _stoppable, "loop": _loop, "side_by_side": _side_by_side,
        "inbox": _inbox, "plan": _plan, "apply": _apply, "stream": _stream, "topics": _topics,
        "windows": _windows, "window_stream": _window_stream, "redeploy": _redeploy,
    }  # fmt: skip
    return known[job["function"]](target, *job["arguments"][1:])


def _become_impatient() -> None:
    """Turn every deadline of the product into about a second."""
    postgres_session.LIVENESS_SECONDS = 0.5
    postgres_session.PREPARE = postgres_session.PREPARE.replace(f"'{postgres_session.LOCK_WAIT}'", "'1s'")
    mysql_session.COMMIT_SECONDS = 1
    mysql_session._PREPARE = tuple(
        statement.replace(f"wait_timeout = {mysql_session.LOCK_SECONDS}", "wait_timeout = 1")
        for statement in mysql_session._PREPARE
    )
    sqlite_session.LOCK_WAIT_SECONDS = 0.5
    duckdb.open_file.__kwdefaults__["wait"] = 0.5
    lake_lock.DEAD_SECONDS = 0.0
    publish.COMMIT_OUTCOME = replace(publish.COMMIT_OUTCOME, seconds=10.0)


def _change_rows_at(remote: str) -> None:
    """Use a Spark that outlives this process; rows are still staged by this process."""
    os.environ["EMATIX_FLOW_SPARK_REMOTE"] = remote
    os.environ["EMATIX_FLOW_SPARK_SHARED_PATHS"] = "/"  # the server runs on this machine
    os.environ["EMATIX_FLOW_ENGINE"] = "local"


def _load(target: CrashTarget, load: dict[str, Any]) -> dict[str, Any]:
    return run(target, Load(**load))


def _flow(target: CrashTarget, load: dict[str, Any], out: str) -> int:
    """Load as `flow run` does, with stdout in a file, and return the exit code."""
    given = Load(**load)
    sys.modules["crash_flows"] = ModuleType("crash_flows")
    PROJECT.pipelines[given.table] = pipeline_of(target, given)
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    return main(["run", given.table, "--module", "crash_flows", "--run-log-path", target.run_log])


def _plan(target: CrashTarget, load: dict[str, Any]) -> str:
    """Stage and compare one load, and return the id of its plan."""
    given = Load(**load)
    return diff_pipeline(pipeline_of(target, given), options_of(target, given)).plan_id


def _apply(target: CrashTarget, load: dict[str, Any], plan_id: str) -> dict[str, Any]:
    """Apply the plan of a load, with its module at hand: a plan does not keep the password of a server."""
    given = Load(**load)
    PROJECT.pipelines.setdefault(given.table, pipeline_of(target, given))
    return apply_plan(plan_id, options_of(target, given))  # type: ignore[no-any-return]


def _stream(target: CrashTarget, feed: dict[str, Any], available_now: bool) -> dict[str, Any]:
    """Run a stream until it is killed, or until it has everything."""
    from ematix_flow.engine.stream.run import StreamOptions, run_stream
    from tests.crash.streams import Feed, stream_of

    given = Feed(**feed)
    if given.spool:
        os.environ["EMATIX_FLOW_SPOOL_ROOT"] = given.spool
    if given.sql:
        os.environ["EMATIX_FLOW_ENGINE"] = "spark"
    return run_stream(stream_of(target, given), StreamOptions(available_now=available_now, restart=given.restart))


def _windows(
    target: CrashTarget, feeds: list[dict[str, Any]], cuts: list[dict[str, Any] | None], notes: str, available_now: bool
) -> list[str]:
    """Run streams with windows until all are cut, or until they have everything."""
    from tests.crash.state_lives import Cut, live
    from tests.crash.windows import WindowFeed

    given = [None if cut is None else Cut(**cut) for cut in cuts]
    return live(target, [WindowFeed(**feed) for feed in feeds], given, notes, available_now=available_now)


def _window_stream(target: CrashTarget, feed: dict[str, Any], available_now: bool) -> dict[str, Any]:
    """Run one stream with windows until it is stopped, or until it has everything."""
    from tests.crash.state_lives import run_windows, use_own_spark
    from tests.crash.windows import WindowFeed

    use_own_spark(feed["root"])
    return run_windows(target, WindowFeed(**feed), available_now=available_now)


def _redeploy(target: CrashTarget, feed: dict[str, Any]) -> bool:
    """Build the state of one stream with windows anew, and say whether it has taken over."""
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.state.redeploy import redeploy_stream
    from tests.crash.state_lives import use_own_spark
    from tests.crash.windows import WindowFeed, window_stream

    use_own_spark(feed["root"])
    (one,) = redeploy_stream(window_stream(target, WindowFeed(**feed)), StreamOptions())
    return one.done


def _stoppable(target: CrashTarget, load: dict[str, Any]) -> dict[str, Any]:
    """Load as the command line does: a signal ends it politely."""
    with stopping():
        return _load(target, load)


def _loop(target: CrashTarget, acknowledged: str, last: int) -> int:
    """Load from the first number that was not acknowledged on; acknowledge each load after it returned."""
    with Path(acknowledged).open("a+", encoding="ascii") as file:
        file.seek(0)
        start = len(file.read().splitlines())
        for number in range(start, last):
            run(target, numbered(target, number))
            file.write(f"{number}\n")
            file.flush()
    return last - start


def _inbox(target: CrashTarget, inbox: dict[str, Any]) -> dict[str, Any]:
    """Load the new files of an inbox."""
    del target
    return Inbox(**inbox).run()


def _topics(target: CrashTarget, flow: dict[str, Any], most: int) -> dict[str, Any]:
    """Send what is new in a topic to another one."""
    del target
    return TopicFlow(**flow).run(most)


def _side_by_side(target: CrashTarget, *rows_of_loads: list[dict[str, Any]]) -> list[int]:
    """Make rows of loads at the same time, each in a process of its own; returns the codes they end with."""
    children = []
    for number, loads in enumerate(rows_of_loads):
        pid = os.fork()
        if not pid:
            # A run log each: they share the table and nothing else.
            _load_all(replace(target, run_log=f"{target.run_log}.{number}"), loads)
        children.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]


def _load_all(target: CrashTarget, loads: list[dict[str, Any]]) -> NoReturn:
    code = 1
    try:
        for load in loads:
            _load(target, load)
        code = 0
    except BaseException:  # noqa: BLE001 - the code tells it
        traceback.print_exc()
    os._exit(code)


def numbered(target: CrashTarget, number: int) -> Load:
    """Return the load of a number in a kill loop."""
    modes = target.modes(KILL_LOOP)
    mode = modes[number % len(modes)]
    return Load(mode, number, f"loop_{mode}", slot=f"slot-{number}")
