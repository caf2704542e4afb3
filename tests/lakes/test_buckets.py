"""Lake tables in a bucket give what DuckDB gives, and one of two drivers wins; the service fails where it hurts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from ematix_flow import failpoints
from ematix_flow.connect.lake import lock as lake_lock
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.review.dry_run import dry_run_pipeline
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.engine.review.validate import validate_pipeline
from ematix_flow.errors import DeclareError, UnsupportedError
from ematix_flow.failpoints import FailpointError
from tests.depth import deep
from tests.lakes.targets import MODES, START, TargetTable, bucket_of, lake_fields, row_counts, sample_rows
from tests.lakes.test_faults import FIRST, SECOND, committed, keys_and_texts, locks
from tests.lakes.test_loads import copied
from tests.services.http_faults import FaultyProxy
from tests.services.postgres import PASSWORD
from tests.services.s3 import KEY, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lakes.targets import Row
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.service, pytest.mark.xdist_group("lakes")]

LAKES = ("delta_s3", "iceberg_s3")
MERGED = [("1", "a"), ("2", "c"), ("3", "d")]
LOG = "PUT _delta_log/"
"""A commit of a Delta table."""


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TargetTable]:
    """Return a table in a bucket that merges: a Delta one unless a test asks for others."""
    kind = getattr(request, "param", "delta_s3")
    yield TargetTable(lake_fields(kind, tmp_path, bucket_of(request)), tmp_path, {"mode": "merge"})
    failpoints.arm("")


@pytest.fixture
def proxy(target: TargetTable, s3_server: S3Server) -> Iterator[FaultyProxy]:
    """Return the faults of the way to the service, which the target takes from now on."""
    between = FaultyProxy(s3_server.port)
    target.fields["endpoint"] = between.endpoint
    yield between
    between.let_go.set()
    between.close()


@pytest.mark.parametrize(
    "modes", [("append", "truncate", "merge"), deep(("scd2_event", "scd2_event"))], ids=lambda m: m[0]
)
@pytest.mark.parametrize("kind", ["delta_s3", deep("iceberg_s3")])
def test_every_mode_gives_what_duckdb_gives(
    kind: str, modes: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    lake = TargetTable(lake_fields(kind, tmp_path, bucket_of(request)), tmp_path / "one", {})
    reference = TargetTable({"kind": "duckdb", "path": str(tmp_path / "two" / "t.duckdb")}, tmp_path / "two", {})
    for number, mode in enumerate(modes):
        lake.options = reference.options = MODES[mode] | ({"incremental_column": None} if mode == "append" else {})
        rows = sample_rows(mode, number)
        assert row_counts(lake.load(rows)) == row_counts(reference.load(rows)), mode
        assert lake.rows() == reference.rows(), mode
    lake.again(rows, f"slot-{len(modes)}")
    assert lake.rows() == reference.rows(), "a load that was made is not made again"
    if "merge" in modes:
        keys = [str(key) for key, _ in copied(lake, "SELECT id, word FROM shop.things")]
        assert keys == [row[0] for row in reference.rows("id")]


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["merge", "append"])
def test_whatever_the_service_answers_to_a_commit_the_load_is_made_once(
    target: TargetTable, proxy: FaultyProxy, mode: str
) -> None:
    target.options = {"mode": mode}
    target.load([(0, "fine", None, None, START)])
    for number, fault in enumerate(("broken", "raced", "unanswered"), 1):
        proxy.faults = deque([(LOG, fault)])
        loaded_at_last(target, [(number, fault, None, None, START)], fault)
        assert not proxy.faults, fault
        assert (committed(target), locks(target)) == (number + 1, []), fault
    assert keys_and_texts(target) == [("0", "fine"), ("1", "broken"), ("2", "raced"), ("3", "unanswered")]


@pytest.mark.deep
@pytest.mark.parametrize("target", ["iceberg_s3"], indirect=True)
def test_faults_around_data_and_records_leave_the_load_to_be_made_once(target: TargetTable, proxy: FaultyProxy) -> None:
    target.load(FIRST)
    proxy.faults = deque([("PUT .parquet", "broken"), ("PUT metadata/", "unanswered"), ("PUT commits/", "unanswered")])
    failpoints.arm("store.after_change=raise")
    with pytest.raises(FailpointError):
        target.load(SECOND, "slot-2")
    failpoints.arm("")
    loaded_at_last(target, SECOND, "slot-2")
    assert not proxy.faults
    assert keys_and_texts(target) == MERGED
    assert (committed(target), locks(target)) == (2, [])


@pytest.mark.deep
def test_of_two_drivers_one_commits_and_a_late_one_changes_nothing(
    target: TargetTable, proxy: FaultyProxy, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = dict(target.fields)
    target.fields["endpoint"] = s3_server.endpoint
    target.load(FIRST)
    proxy.faults = deque([(LOG, "held")])
    late = started(target, slow)
    try:
        assert proxy.held.wait(300), late.communicate(timeout=5)
        shown = b"".join(command for command in commands() if b"java" in command)
        assert b"org.apache.spark" in shown
        monkeypatch.setattr(lake_lock, "DEAD_SECONDS", 0.0)
        target.load([(4, "e", None, None, START)], "slot-3")
        before = log_of(target)
        proxy.let_go.set()
        output = late.communicate(timeout=200)
    finally:
        late.kill()
    assert late.returncode == 1, output
    assert keys_and_texts(target) == [("1", "a"), ("2", "b"), ("4", "e")]
    assert log_of(target) == before, "no commit was replaced and none was added"
    events = b"".join(path.read_bytes() for path in target.folder.glob("events/**/*") if path.is_file())
    assert f"fs.s3a.bucket.{slow['bucket']}".encode() in events, "the settings are there, but nobody can read them"
    for text in (shown, events, *output):
        assert SECRET.encode() not in text
        assert KEY.encode() not in text


@pytest.mark.deep
def test_a_process_that_is_killed_after_its_change_leaves_the_load_to_be_made_once(target: TargetTable) -> None:
    ended = started(target, target.fields, FLOW_FAILPOINTS="store.after_change=kill")
    output = ended.communicate(timeout=200)
    assert ended.returncode == -signal.SIGKILL, output
    target.again(SECOND, "slot-2")
    assert keys_and_texts(target) == [("2", "c"), ("3", "d")]
    assert (committed(target), locks(target)) == (1, [])


@pytest.mark.deep
@pytest.mark.parametrize("target", LAKES, indirect=True)
def test_what_a_load_would_do_leaves_nothing_in_the_bucket(target: TargetTable) -> None:
    target.give(FIRST)
    pipeline = target.pipeline("id, word, share, amount, at")
    shown = preview_pipeline(pipeline).text(verbose=True)
    checked = validate_pipeline(pipeline)
    (tried,) = dry_run_pipeline(pipeline).targets
    assert (tried.dry_run_error, (tried.dry_run_rows_affected or {})["rows_staged"]) == (None, 2)
    assert list(target.database().store.listed("")) == []  # type: ignore[attr-defined]
    assert SECRET not in f"{shown}{checked}{tried}"


@pytest.mark.deep
def test_a_catalog_may_be_in_postgres(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> None:
    parts = urlsplit(postgres_url)
    uri = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    login = {"uri": uri, "user": parts.username, "password": PASSWORD}
    target = TargetTable(lake_fields("iceberg_s3", tmp_path, bucket_of(request)) | login, tmp_path, {"mode": "merge"})
    target.load(FIRST)
    target.load(SECOND)
    assert keys_and_texts(target) == MERGED
    assert PASSWORD not in str(target.database().engine().query("SET"))  # type: ignore[attr-defined]


@pytest.mark.deep
def test_a_bucket_has_one_way_to_it_in_a_process(target: TargetTable) -> None:
    target.database().engine()  # type: ignore[attr-defined]
    other = TargetTable({**target.fields, "region": "eu-west-1"}, target.folder, target.options)
    with pytest.raises(UnsupportedError, match="is used with other settings or keys in this process already"):
        other.database().engine()  # type: ignore[attr-defined]


def test_a_catalog_of_folders_cannot_be_in_a_bucket() -> None:
    fields = {"kind": "iceberg", "catalog_type": "hadoop", "warehouse": "s3://bucket/lake"}
    with pytest.raises(DeclareError, match="cannot be in a bucket") as refused:
        connection_from_fields("lake", fields)
    assert refused.value.hint == "use catalog_type 'jdbc', 'rest' or 'glue'."
    with pytest.raises(DeclareError, match="has a password in its uri"):
        connection_from_fields(
            "lake", {"kind": "iceberg", "catalog_type": "jdbc", "warehouse": "w", "uri": "jdbc:x://h/d?password=p"}
        )


CHILD = """
import json, os, sys
from pathlib import Path
from tests.lakes.targets import TargetTable
from tests.lakes.test_faults import SECOND
TargetTable(json.loads(os.environ["LAKE"]), Path(sys.argv[1]), {"mode": "merge"}).again(SECOND, "slot-2")
"""


def started(target: TargetTable, fields: dict[str, Any], **environment: str) -> subprocess.Popen[bytes]:
    """Start a driver of its own that merges the second rows, with an event log."""
    (target.folder / "late").mkdir()
    (target.folder / "events").mkdir()
    logging = {"ENABLED": "true", "DIR": f"file://{target.folder}/events", "COMPRESS": "false"}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(target.folder / "late")],
        env={
            **os.environ,
            **environment,
            "LAKE": json.dumps(fields),
            **{f"EMATIX_FLOW_SPARK_CONF_spark__eventLog__{name.lower()}": value for name, value in logging.items()},
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def loaded_at_last(target: TargetTable, rows: list[Row], slot: str) -> None:
    """Ask for a load until it is made, as a scheduler would."""
    for _ in range(3):
        try:
            target.again(rows, slot)
        except Exception as error:  # noqa: BLE001 - whatever it says, the next attempt settles it
            last = error
        else:
            return
    raise last


def commands() -> Iterator[bytes]:
    """Return the command lines of all processes, as everybody may see them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # ended since it was listed
            yield path.read_bytes()


def log_of(target: TargetTable) -> dict[str, bytes | None]:
    """Return the commits of a Delta table as they stand."""
    store = target.database().store  # type: ignore[attr-defined]
    return {entry.key: store.read(entry.key) for entry in store.listed("shop/things/_delta_log/")}
