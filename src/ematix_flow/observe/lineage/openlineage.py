"""Sends loads as OpenLineage events: what was read and written, and which column came from which."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.connect.config.redact import redact
from ematix_flow.connect.config.secrets import remember
from ematix_flow.events import RunCommitted, RunFailed, RunPlanned, RunStarted
from ematix_flow.observe.background_queue import BackgroundQueue
from ematix_flow.observe.http.client import CLIENT, post

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ematix_flow.clock import Clock
    from ematix_flow.events import ColumnOrigin, Dataset, Event, LoadFacts
    from ematix_flow.observe.http.client import HttpClient

PRODUCER = "urn:ematix-flow-spark"
SPEC = "https://openlineage.io/spec"
RUN_EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
NAMESPACE, API_KEY = "OPENLINEAGE_NAMESPACE", "OPENLINEAGE_API_KEY"
_FACETS = {
    "schema": "1-2-0/SchemaDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
}
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class _LoadEvent:
    """A load that began or ended."""

    type: str
    at: str
    run_id: str
    job: str
    facts: Callable[[], LoadFacts] | None = None
    rows: int | None = None
    failure: str = ""


class Lineage:
    """Receives events of loads and hands them on, in order and in the background."""

    def __init__(self, deliver: Callable[[dict[str, Any]], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._box: BackgroundQueue[_LoadEvent] = BackgroundQueue(
            lambda load_event: deliver(run_event(load_event)), "lineage"
        )
        self._clock = clock
        self._plans: dict[tuple[str, str], RunPlanned] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        key = (event.pipeline, event.target)
        match event:
            case RunPlanned():
                with self._lock:
                    self._plans[key] = event
            case RunStarted():
                self._enqueue("START", event, self._plans.get(key))
            case RunCommitted():
                self._enqueue("COMPLETE", event, self._pop(key), rows=event.counts.staged)
            case RunFailed():
                self._enqueue("FAIL", event, self._pop(key), failure=event.message)

    def _pop(self, key: tuple[str, str]) -> RunPlanned | None:
        with self._lock:
            return self._plans.pop(key, None)

    def _enqueue(
        self, kind: str, event: RunStarted | RunCommitted | RunFailed, plan: RunPlanned | None, **known: Any
    ) -> None:
        job = event.pipeline if plan is None else plan.job
        at = self._clock.now().isoformat()
        self._box.put(_LoadEvent(kind, at, event.run_id, job, None if plan is None else plan.facts, **known))

    def close(self, seconds: float) -> None:
        """Send what waits, for as long as that takes at most."""
        self._box.close(seconds)


def run_event(load_event: _LoadEvent) -> dict[str, Any]:
    """Return a load as an event of OpenLineage."""
    facts = None if load_event.facts is None else load_event.facts()
    run: dict[str, Any] = {"runId": load_event.run_id}
    if load_event.failure:
        message = redact(load_event.failure)[:_LONGEST]
        run["facets"] = {"errorMessage": _facet("errorMessage", message=message, programmingLanguage="SQL")}
    return {
        "eventType": load_event.type,
        "eventTime": load_event.at,
        "producer": PRODUCER,
        "schemaURL": RUN_EVENT,
        "run": run,
        "job": {"namespace": os.environ.get(NAMESPACE) or "ematix-flow", "name": redact(load_event.job)},
        "inputs": [] if facts is None else [_named(one) for one in facts.inputs],
        "outputs": [] if facts is None else [_output(facts, load_event.rows)],
    }


def _output(facts: LoadFacts, rows: int | None) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in facts.columns]
    facets = {"schema": _facet("schema", fields=fields)}
    if facts.origins:
        origins = {name: {"inputFields": [_field(one) for one in inputs]} for name, inputs in facts.origins.items()}
        facets["columnLineage"] = _facet("columnLineage", fields=origins)
    output = {**_named(facts.output), "facets": facets}
    if rows is not None:
        output["outputFacets"] = {"outputStatistics": _facet("outputStatistics", rowCount=rows)}
    return output


def _field(origin: ColumnOrigin) -> dict[str, Any]:
    how = {"type": "DIRECT", "subtype": "TRANSFORMATION" if origin.changed else "IDENTITY"}
    return {**_named(origin.dataset), "field": origin.field, "transformations": [how]}


def _named(dataset: Dataset) -> dict[str, Any]:
    return {"namespace": redact(dataset.namespace), "name": redact(dataset.name)}


def _facet(name: str, **content: Any) -> dict[str, Any]:
    facet_path = _FACETS[name]
    what = facet_path.rpartition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{facet_path}.json#/$defs/{what}", **content}


def to_stderr(event: Mapping[str, Any]) -> None:
    """Write an event as a line; stdout belongs to results."""
    sys.stderr.write(f"[LINEAGE] {json.dumps(event, ensure_ascii=False)}\n")
    sys.stderr.flush()


def to_file(path: str) -> Callable[[Mapping[str, Any]], None]:
    """Return what adds events to a file, one in a line; whole lines, also when several processes write."""
    file_path = Path(path)

    def deliver(event: Mapping[str, Any]) -> None:
        line = json.dumps(event, ensure_ascii=False) + "\n"
        with file_path.open("ab", buffering=0) as file:
            file.write(line.encode())

    return deliver


def to_service(url: str, client: HttpClient = CLIENT) -> Callable[[Mapping[str, Any]], None]:
    """Return what posts events to a service."""
    headers = {"Content-Type": "application/json"}
    key = os.environ.get(API_KEY)
    if key:
        remember(key)
        headers["Authorization"] = f"Bearer {key}"
    return lambda event: post(url, json.dumps(event).encode(), headers, client)
