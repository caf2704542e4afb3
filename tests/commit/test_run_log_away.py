"""Run logs that are away for a while, and writers that are late, killed or not answered."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ematix_flow
from ematix_flow.commit.runlog.objects import documents as object_versions
from ematix_flow.commit.runlog.objects.backend import ObjectBackend
from ematix_flow.commit.runlog.records import PeriodicJob
from ematix_flow.connect.storage import object_store as bucket
from ematix_flow.connect.storage import requests as bucket_requests
from ematix_flow.errors import RunLogError
from ematix_flow.records import RunRecord
from ematix_flow.run_log import PipelineState, RunLog, from_url
from tests.commit.conftest import FILES
from tests.services.buckets import SERVICES, bucket_fields, bucket_store
from tests.services.http_faults import FaultyProxy

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = RunRecord("run-1", "p", "succeeded", NOW.isoformat())
STATE = "state/pipeline_state/p/"


@pytest.mark.service
@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("kind", ["postgres", "mysql", "s3"])
def test_a_server_that_was_away_is_used_again(
    kind: str, url_of: Callable[[str], str], request: pytest.FixtureRequest
) -> None:
    log = from_url(url_of(kind))
    run_request = log.open_request("p", NOW)
    server = request.getfixturevalue(f"{kind}_server")
    server.stop()
    for call in (lambda: log.all(PipelineState), lambda: log.claim("p", "w", 9), log.list_runs, log.backend.now):
        with pytest.raises(RunLogError, match="does not answer"):
            call()
    log.record(replace(RUN, status="running"))
    log.record(RUN)
    log.close_request(run_request, NOW)
    with pytest.warns(UserWarning, match="the run log lacks 2 entries about this run"):
        assert log.reconcile() == 2
    server.start()
    if kind == "s3":  # the buckets of this service are gone with its process
        server.execute(f"bucket {request.getfixturevalue('s3_bucket')}")
    assert log.reconcile() == 0
    assert log.get_run("run-1") == RUN
    assert not log.open_request("p", NOW).resumed
    log.close()


@pytest.mark.parametrize("kind", [*FILES, *(pytest.param(k, marks=pytest.mark.service) for k in ("postgres", "mysql"))])
def test_eight_who_start_together_on_nothing_share_it(kind: str, url_of: Callable[[str], str]) -> None:
    url = url_of(kind)
    with ThreadPoolExecutor(8) as pool:
        logs = list(pool.map(lambda _: from_url(url), range(8)))
    stored = logs[0].swap(None, PipelineState("p"))
    assert all(log.all(PipelineState) == [stored] for log in logs)
    for log in logs:
        log.close()


COUNT = """
import sys
from dataclasses import replace
from ematix_flow.run_log import from_url
log = from_url(sys.argv[1])
for _ in range(5):
    log.change_state("p", lambda state: replace(state, attempt=state.attempt + 1))
print(log.claim("p", sys.argv[2], 300).acquired)
"""


@pytest.mark.parametrize("kind", FILES)
def test_several_processes_share_a_file(kind: str, url_of: Callable[[str], str]) -> None:
    url = url_of(kind)
    command = [sys.executable, "-c", COUNT, url]
    own = {**os.environ, "PYTHONPATH": str(Path(ematix_flow.__file__).parents[1])}
    started = [subprocess.Popen([*command, f"w{n}"], stdout=subprocess.PIPE, text=True, env=own) for n in range(3)]
    outputs = [process.communicate(timeout=120)[0].strip() for process in started]
    assert sorted(outputs) == ["False", "False", "True"]
    state = from_url(url).find(PipelineState, "p")
    assert state is not None
    assert state.attempt == 15


@pytest.mark.service
def test_what_a_log_never_takes_keeps_nothing_else_away(mysql_url: str) -> None:
    log = from_url(mysql_url)
    log.record(replace(RUN, run_id="x" * 300))
    log.record(RUN)
    assert log.list_runs() == ([RUN], 1)
    with pytest.warns(UserWarning, match="the run log lacks 1 entry about this run"):
        log.close()


@pytest.fixture
def folder(tmp_path: Path) -> RunLog:
    return from_url(f"{tmp_path}/log/")


def test_a_writer_who_stood_still_cannot_bring_an_old_version_back(
    folder: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = from_url(f"{folder.display_address}/")
    first = folder.swap(None, PipelineState("p"))
    assert first is not None
    assert late.find(PipelineState, "p") == first
    monkeypatch.setattr(object_versions, "RETAIN_SECONDS", -1.0)
    for number in range(4):
        folder.change_state("p", lambda state, number=number: replace(state, attempt=number))  # type: ignore[misc]
    assert [path.name for path in Path(folder.display_address, STATE).iterdir()] == ["000000000005.json"]
    with pytest.raises(RunLogError, match="who was first is unknown"):
        late.swap(first, replace(first, attempt=99))
    assert [path.name for path in Path(folder.display_address, STATE).iterdir()] == ["000000000005.json"]
    second = folder.find(PipelineState, "p")
    assert second is not None
    assert second.attempt == 3


def test_who_is_followed_at_once_has_won_all_the_same(folder: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = folder.backend.everything
    assert isinstance(backend, ObjectBackend)
    create, hurried = backend._store.create, from_url(f"{folder.display_address}/")

    def create_and_be_followed(key: str, data: bytes) -> bool:
        created = create(key, data)
        hurried.change_state("p", lambda state: replace(state, paused=True))
        return created

    monkeypatch.setattr(backend._store, "create", create_and_be_followed)
    stored = folder.swap(None, PipelineState("p", attempt=1))
    assert stored is not None
    assert stored.version == 1
    newest = hurried.find(PipelineState, "p")
    assert newest is not None
    assert (newest.version, newest.attempt, newest.paused) == (2, 1, True)


def test_a_killed_writer_of_a_run_leaves_it_in_the_list_once(folder: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = folder.backend.everything
    assert isinstance(backend, ObjectBackend)
    folder.record(replace(RUN, status="running"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for status, method, calls in (("failed", "write", 1), ("succeeded", "delete", 0)):
        original = getattr(backend._store, method)
        turns = iter([*[original] * calls, killed])
        monkeypatch.setattr(backend._store, method, lambda *given, turns=turns: next(turns)(*given))
        with pytest.raises(KeyboardInterrupt):
            folder.record(replace(RUN, status=status))
        monkeypatch.setattr(backend._store, method, original)
        assert len(list(Path(folder.display_address).glob("runs/*/*"))) > 1
        assert folder.list_runs()[1] == 1
    assert folder.get_run("run-1") == RUN
    assert folder.list_runs() == ([RUN], 1)


def test_what_somebody_else_put_into_the_folder_is_left_alone(folder: RunLog) -> None:
    folder.swap(None, PipelineState("p"))
    folder.record(RUN)
    strange = [
        Path(folder.display_address, name)
        for name in ("runs/notes.txt", f"{STATE}notes.txt", "runs/2026-03-01/x~y.jsonl")
    ]
    for path in strange:
        path.write_text("hello")
    assert folder.list_runs() == ([RUN], 1)
    assert [state.pipeline for state in folder.all(PipelineState)] == ["p"]
    folder.set_pause("p")
    folder.prune(NOW + timedelta(days=9999))
    assert all(path.exists() for path in strange)


def test_what_was_dropped_long_ago_is_removed(folder: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = folder.swap(None, PipelineState("p"))
    assert stored is not None
    assert folder.drop(stored)
    folder.prune(datetime.now(UTC) - timedelta(days=1))
    assert len(list(Path(folder.display_address, STATE).iterdir())) == 2
    monkeypatch.setattr("ematix_flow.commit.runlog.objects.backend.RETAIN_SECONDS", -1.0)
    folder.prune(datetime.now(UTC) + timedelta(days=1))
    assert not Path(folder.display_address, STATE).exists()


@pytest.mark.service
@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("fault", ["lost", "unanswered", "busy"])
def test_who_got_no_answer_knows_whether_it_won(
    request: pytest.FixtureRequest, service: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = bucket_store(bucket_fields(request, service, prefix="log"))
    proxy = FaultyProxy(request.getfixturevalue(f"{service}_server").port)
    field = "service" if hasattr(store.location, "account") else "endpoint"
    there = store.location.endpoint.replace(f":{proxy.upstream}", f":{proxy.server_port}")
    shaky: Any = type(store)(replace(store.location, **{field: there}))
    monkeypatch.setattr(bucket_requests, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(bucket, "_trusted", {(os.getpid(), shaky.location)})
    log, other = RunLog(ObjectBackend(shaky)), RunLog(ObjectBackend(store))
    first = log.swap(None, PipelineState("p"))
    assert first is not None
    proxy.faults.append(("POST" if service == "gcs" else "PUT", fault))
    second = log.swap(first, replace(first, attempt=1))
    assert second is not None
    assert not proxy.faults
    assert other.find(PipelineState, "p") == second
    assert other.swap(first, replace(first, attempt=2)) is None
    proxy.close()


def test_what_is_old_is_forgotten_once_a_day(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/log.db"
    from_url(url).record(RUN)
    log = from_url(f"{url}?retention_days=1")
    assert log.list_runs()[1] == 0
    log.record(RUN)
    assert from_url(f"{url}?retention_days=1").list_runs()[1] == 1, "somebody did it today"
    job = log.find(PeriodicJob, "prune")
    assert job is not None
    log.swap(job, replace(job, done_at=NOW.isoformat()))
    assert from_url(f"{url}?retention_days=1").list_runs()[1] == 0
