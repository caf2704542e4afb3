"""Loads as OpenLineage events: what a service, a file and a person get to read."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.clock import Clock
from ematix_flow.connect.config.secrets import remember
from ematix_flow.events import (
    ColumnOrigin,
    Dataset,
    LoadFacts,
    RunCommitted,
    RunFailed,
    RunPlanned,
    RunStarted,
)
from ematix_flow.observe.http.client import HttpClient
from ematix_flow.observe.http.host_guard import allowed_hosts
from ematix_flow.observe.lineage.openlineage import Lineage, to_service
from ematix_flow.observe.lineage.urls import from_url
from ematix_flow.records import Counts

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.events import Event
    from tests.observe.endpoints import Endpoint

RUN = "f78da51a-df69-50a8-9a38-609cb548e740"
SOURCE, TARGET = Dataset("postgres://db:5432", "shop.public.orders"), Dataset("duckdb:///w.duckdb", "sales.orders")
FACTS = LoadFacts(
    (SOURCE,),
    TARGET,
    (("id", "big_int"), ("customer", "text")),
    {"id": (ColumnOrigin(SOURCE, "order_id", False),), "customer": (ColumnOrigin(SOURCE, "mail", True),)},
)
PLANNED = RunPlanned("orders", "sales.orders", RUN, "orders", lambda: FACTS)
STARTED = RunStarted("orders", "sales.orders", RUN, "cross_db")
DONE = RunCommitted("orders", "sales.orders", RUN, Counts(staged=7), replayed=False)
FAILED = RunFailed("orders", "sales.orders", RUN, "no login with canary-of-lineage")


def lineage_of(*events: Event) -> list[dict[str, Any]]:
    got: list[dict[str, Any]] = []
    lineage = Lineage(got.append, Clock(now=lambda: datetime(2026, 1, 1, tzinfo=UTC)))
    for event in events:
        lineage(event)
    lineage.close(10)
    return got


def test_a_load_that_succeeds() -> None:
    start, complete = lineage_of(PLANNED, STARTED, DONE)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    assert start["eventTime"] == "2026-01-01T00:00:00+00:00"
    assert start["run"] == complete["run"] == {"runId": RUN}
    assert start["job"] == {"namespace": "ematix-flow", "name": "orders"}
    assert start["inputs"] == [{"namespace": "postgres://db:5432", "name": "shop.public.orders"}]
    (output,) = complete["outputs"]
    assert (output["namespace"], output["name"]) == (TARGET.namespace, TARGET.name)
    assert output["facets"]["schema"]["fields"][0] == {"name": "id", "type": "big_int"}
    fields = output["facets"]["columnLineage"]["fields"]
    assert {name: one["inputFields"][0]["field"] for name, one in fields.items()} == {
        "id": "order_id",
        "customer": "mail",
    }
    how = {name: one["inputFields"][0]["transformations"][0]["subtype"] for name, one in fields.items()}
    assert how == {"id": "IDENTITY", "customer": "TRANSFORMATION"}
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert all("_producer" in facet and "_schemaURL" in facet for facet in output["facets"].values())


def test_a_load_that_fails_before_and_after_its_plan() -> None:
    remember("canary-of-lineage")
    (early,) = lineage_of(FAILED)
    assert (early["eventType"], early["inputs"], early["outputs"]) == ("FAIL", [], [])
    assert early["run"]["facets"]["errorMessage"]["message"] == "no login with <redacted>"
    late = lineage_of(PLANNED, STARTED, FAILED)[-1]
    assert [one["name"] for one in late["outputs"]] == ["sales.orders"]


def test_targets_of_one_pipeline_are_jobs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    other = replace(PLANNED, target="b", job="orders::b")
    events = lineage_of(PLANNED, STARTED, DONE, other, replace(STARTED, target="b"), replace(DONE, target="b"))
    assert [event["job"]["name"] for event in events] == ["orders", "orders", "orders::b", "orders::b"]
    assert {event["job"]["namespace"] for event in events} == {"shop"}


def test_a_run_does_not_wait_for_the_columns_to_be_found() -> None:
    go_on, requested = threading.Event(), threading.Event()

    def slow() -> LoadFacts:
        requested.set()
        go_on.wait(30)
        return FACTS

    got: list[dict[str, Any]] = []
    lineage = Lineage(got.append)
    for event in (replace(PLANNED, facts=slow), STARTED, DONE):
        lineage(event)
    requested.wait(10)
    assert got == []
    go_on.set()
    lineage.close(10)
    assert [event["eventType"] for event in got] == ["START", "COMPLETE"]


def test_a_file_gets_a_line_for_each_event(tmp_path: Path) -> None:
    path = tmp_path / "lineage of today.ndjson"
    for _ in range(2):
        lineage = from_url(f"openlineage+file://{str(path).replace(' ', '%20')}")
        assert lineage is not None
        for event in (PLANNED, STARTED, DONE):
            lineage(event)
        lineage.close(10)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["eventType"] for line in lines] == ["START", "COMPLETE"] * 2


def test_a_service_gets_the_events_with_its_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "canary-of-key")
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    lineage = from_url(f"openlineage+http://127.0.0.1:{endpoint.port}")
    assert lineage is not None
    lineage(STARTED)
    lineage.close(10)
    (got,) = endpoint.got
    assert (got.path, got.headers["authorization"]) == ("/api/v1/lineage", "Bearer canary-of-key")
    assert got.json["eventType"] == "START"


def test_a_service_by_https(secure_endpoint: Endpoint) -> None:
    client = HttpClient(allowed_hosts("localhost"))
    to_service(f"https://localhost:{secure_endpoint.port}/ol?x=1", client)({"eventType": "START"})
    assert secure_endpoint.got[0].path == "/ol?x=1"


def test_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    lineage = from_url("openlineage+stdout://")
    assert lineage is not None
    lineage(STARTED)
    lineage.close(10)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err.removeprefix("[LINEAGE] "))["run"] == {"runId": RUN}


@pytest.mark.parametrize(
    "url", ["https://host", "openlineage+ftp://host", "openlineage+file://", "openlineage+https://"]
)
def test_a_bad_address_is_a_warning_and_no_lineage(url: str) -> None:
    with pytest.warns(UserWarning, match="no lineage of this run"):
        assert from_url(url) is None
