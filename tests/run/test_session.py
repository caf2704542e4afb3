from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.engine.spark.session import session_settings
from ematix_flow.errors import DeclareError, RunError
from ematix_flow.run.spark.class_archive import archive_for, publish
from ematix_flow.run.spark.java import find_java
from ematix_flow.run.spark.java_process import spark_jars
from ematix_flow.run.spark.session import capabilities, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).parent.parent.parent / "src"
WAIT = 60


def _about_the_worker(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    facts = {
        "python": sys.executable,
        "rows": rows,
        "main": Path(sys.modules["__main__"].__file__ or "").name,
        "cwd_first": sys.path[0] in ("", os.getcwd()),  # noqa: PTH109
        "pid": os.getpid(),
        "archives": [path for path in sys.path_importer_cache if path.endswith(".zip") and path not in sys.path],
    }
    yield pa.RecordBatch.from_pydict({"facts": [json.dumps(facts)]})


def _die_once(marker: str) -> object:
    def stage(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            if not Path(marker).exists():
                Path(marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return stage


def _run(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environ},
        capture_output=True,
        text=True,
        timeout=WAIT * 3,
        check=False,
    )


def test_the_settings_of_a_session_are_ours(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.sql.timestampType") == "TIMESTAMP_LTZ"
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    folder = Path(spark.conf.get("spark.local.dir") or "")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert str(folder) in (spark.conf.get("spark.sql.warehouse.dir") or "")


def test_equal_settings_share_one_session(spark: SparkSession) -> None:
    assert spark_session(replace(session_settings(), worker_imports=("decimal",))) is spark


def test_a_classic_session_can_do_everything(spark: SparkSession) -> None:
    able = capabilities(spark)
    assert able.local
    assert able.context
    assert able.logical_plan
    assert able.driver_closures
    assert not able.connect


def test_workers_are_this_python_under_our_daemon(spark: SparkSession) -> None:
    rows = spark.range(0, 6, 1, 2).mapInArrow(_about_the_worker, "facts string").collect()
    facts = [json.loads(row.facts) for row in rows]
    assert [fact["rows"] for fact in facts] == [3, 3]
    assert {fact["python"] for fact in facts} == {sys.executable}
    assert {fact["main"] for fact in facts} == {"worker_daemon.py"}
    assert not any(fact["cwd_first"] for fact in facts)
    assert not any(fact["archives"] for fact in facts)  # each would be read again by every task


def test_workers_find_modules_that_the_driver_finds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_the_user_has_this.py").write_text("def stage(batches):\n    yield from batches\n")
    # A name of the standard library in the user's folder must not replace the real one.
    (tmp_path / "fractions.py").write_text("raise SystemExit\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    import only_the_user_has_this  # type: ignore[import-not-found]

    rows = spark_session(session_settings()).range(3).mapInArrow(only_the_user_has_this.stage, "id long")
    assert rows.count() == 3


def test_a_killed_worker_is_replaced_and_its_task_repeated(spark: SparkSession, tmp_path: Path) -> None:
    stage = _die_once(str(tmp_path / "died"))
    rows = spark.range(0, 10, 1, 2).mapInArrow(stage, "id long").collect()  # type: ignore[arg-type]
    assert (tmp_path / "died").exists()
    assert sorted(row.id for row in rows) == list(range(10))


def test_no_command_line_shows_the_configuration_or_the_gateway(spark: SparkSession) -> None:
    listed = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True).stdout
    children = [line for line in listed.splitlines() if line.split()[0] == str(os.getpid())]
    (line,) = [line for line in children if "java" in line and "ematix-flow-spark" in line]  # brokers are Java too
    assert "spark.redaction" not in line
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ


def test_a_secret_is_refused_before_anything_starts() -> None:
    done = _run(
        "from ematix_flow.declare.spark_settings import SparkSettings as S\n"
        "from ematix_flow.run.spark.session import spark_session\n"
        "spark_session(S(conf={'spark.x.password': 'CANARY'}))"
    )
    assert done.returncode == 1
    assert "looks like a secret" in done.stderr
    assert "CANARY" not in done.stderr.replace("conf={'spark.x.password': 'CANARY'}", "")
    assert DeclareError.__name__ in done.stderr


def test_a_java_that_cannot_start_is_told_and_leaves_no_files(tmp_path: Path) -> None:
    done = _run(
        "from ematix_flow.declare.spark_settings import SparkSettings as S\n"
        "from ematix_flow.run.spark.session import prestart, spark_session\n"
        "settings = S(conf={'spark.driver.memory': '1'})\n"
        "prestart(settings)\n"
        "spark_session(settings)",
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 1
    assert RunError.__name__ in done.stderr
    assert "before Spark was ready" in done.stderr
    assert list(tmp_path.glob("ematix-flow-*")) == []


COUNT = """
import sys
from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.spark.session import spark_session
spark = spark_session(SparkSettings(master="local[2, 4]"))
print(spark.range(10).mapInArrow(lambda batches: batches, "id long").count())
"""


@pytest.mark.crash
def test_java_and_workers_end_when_python_is_killed(tmp_path: Path) -> None:
    program = COUNT + "print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as python:
        assert python.stdout is not None
        assert python.stdout.readline() == "10\n"
        java = int(python.stdout.readline())
        below = _descendants(java)
        assert below, "the daemon of the Python workers runs below Java"
        python.kill()
    for pid in (java, *below):
        _await_end(pid)


@pytest.mark.deep
def test_a_damaged_archive_does_not_matter(tmp_path: Path) -> None:
    archive = archive_for(find_java(os.environ), spark_jars(os.environ), {"XDG_CACHE_HOME": str(tmp_path)})
    assert archive is not None
    recorded = archive.file.with_suffix(".part")
    recorded.write_bytes(os.urandom(1 << 20))
    publish(archive, recorded)  # with a stamp that vouches for it: the worst case
    archive.failed.touch()  # keeps the command from building a good one afterwards
    done = _run(COUNT, XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "10\n")
    assert done.stderr == ""
    assert list(tmp_path.glob("ematix-flow-spark-*")) == [], "files of the run are removed with it"


@pytest.mark.deep
def test_one_process_can_have_one_session_after_another() -> None:
    done = _run(
        COUNT
        + "from ematix_flow.run.spark.session import stop_session\n"
        + "stop_session()\n"
        + "again = spark_session(SparkSettings(master='local[1, 2]', profile='long'))\n"
        + "print(again.sparkContext.master, again.range(4).count())\n"
    )
    assert (done.stdout, done.stderr) == ("10\nlocal[1, 2] 4\n", "")


@pytest.mark.deep
def test_a_session_of_the_caller_is_borrowed_and_kept() -> None:
    done = _run(
        "from pyspark.sql import SparkSession\n"
        "mine = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "from ematix_flow.declare.spark_settings import SparkSettings\n"
        "from ematix_flow.run.spark.session import spark_session, stop_session\n"
        "ours = spark_session(SparkSettings())\n"
        "print(ours.sparkContext is mine.sparkContext, ours.conf.get('spark.sql.session.timeZone'))\n"
        "stop_session()\n"
        "try:\n"
        "    spark_session(SparkSettings(conf={'spark.sql.extensions': 'of.Nobody'}))\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, str(error).splitlines()[0])\n"
        "print(mine.range(3).count())\n",
        TZ="Asia/Tokyo",
    )
    refused = "RunError the Spark session that is used here lacks of.Nobody"
    assert [line for line in done.stdout.splitlines() if line] == ["True UTC", refused, "3"]


@pytest.mark.deep
def test_a_session_of_the_caller_whose_java_has_ended_is_replaced() -> None:
    done = _run(
        "from pyspark import SparkContext\n"
        "from pyspark.sql import SparkSession\n"
        "mine = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "SparkContext._gateway.proc.kill()\n"
        "SparkContext._gateway.proc.wait()\n"
        "from ematix_flow.declare.spark_settings import SparkSettings\n"
        "from ematix_flow.run.spark.session import spark_session\n"
        "print(spark_session(SparkSettings()).range(4).count())\n"
    )
    assert done.stdout.split() == ["4"], done.stderr


@pytest.mark.deep
def test_a_connect_server_serves_the_same_work() -> None:
    pytest.importorskip("grpc")
    done = _run(
        "from ematix_flow.declare.spark_settings import SparkSettings\n"
        "from ematix_flow.run.spark.session import capabilities, spark_session, stop_session\n"
        "spark = spark_session(SparkSettings(remote='local[2]'))\n"
        "able = capabilities(spark)\n"
        "print(able.connect, able.context, spark.conf.get('spark.sql.session.timeZone'))\n"
        "rows = spark.range(0, 10, 1, 2).mapInArrow(lambda batches: batches, 'id long').collect()\n"
        "print(sorted(row.id for row in rows) == list(range(10)))\n"
        "stop_session()\n"
    )
    assert done.stdout == "True False UTC\nTrue\n", done.stderr


def _descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "ppid,pid"], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()[1:]]
    below = [int(child) for parent, child in pairs if int(parent) == pid]
    return below + [further for child in below for further in _descendants(child)]


def _await_end(pid: int) -> None:
    """Wait until the process is gone, however long a busy machine takes within the limit of the test."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select

    try:
        assert select.select([watch], [], [], WAIT)[0], f"process {pid} is still there"
    finally:
        os.close(watch)
