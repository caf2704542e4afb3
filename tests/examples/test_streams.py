"""The documented streams that move messages as they are, unchanged, on the services they speak of."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest

from ematix_flow import get_connection, run_pipeline
from ematix_flow.declare.project import PROJECT
from ematix_flow.streaming import get_streaming_pipeline
from tests.contracts.systems import PARAMETERS
from tests.examples.conftest import README
from tests.examples.streaming import DOCUMENT, Stopped, only
from tests.services.server import free_port
from tests.streams.mirrors import Mirror, empty_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contracts.systems import System
    from tests.examples.streaming import World

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.xdist_group("brokers")]

SRC = str(Path(__file__).parents[2] / "src")
EVENTS = [
    {"event_id": 1, "name": "opened", "amount": "19.90"},
    {"event_id": 2, "name": None, "amount": "0.10"},
    {"event_id": 3, "name": "closed"},
]
ROWS = "SELECT event_id, name, amount::text FROM public.events ORDER BY event_id"
LOADED = [(1, "opened", "19.90"), (2, None, "0.10"), (3, "closed", None)]
SERVE = "flow consume pipeline.toml --metrics-port 9100 --restart-on-error --max-backoff-ms 30000"


@pytest.fixture
def events(world: World) -> World:
    """Return the world with the table and the topic of events."""
    world.warehouse.run("CREATE TABLE public.events (event_id BIGINT PRIMARY KEY, name TEXT, amount NUMERIC(10,2))")
    world.send("events", *EVENTS)
    return world


def _numbers(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


# One file of TOML


@pytest.fixture
def file(events: World) -> Path:
    """Return the documented file, with the services of the test."""
    path = Path("pipeline.toml")
    path.write_text(events.with_services((README / "streams" / "seed.toml").read_text("utf-8")), "utf-8")
    return path


@pytest.mark.usefixtures("file")
def test_a_file_runs_from_python_and_shows_its_numbers(events: World) -> None:
    port = free_port()
    blocks = []

    def done() -> bool:
        if events.warehouse.count("public.events") == 3:
            blocks.append(_numbers(port))
        return bool(blocks) and 'rows_written_total{pipeline="events-to-pg"} 3' in blocks[-1]

    with Stopped(done):
        counts = run_pipeline(config="pipeline.toml", metrics_port=port)
    assert counts == {"total_rows": 3, "iterations": 1, "shutdown_triggered": True}
    assert events.warehouse.rows(ROWS) == LOADED
    assert 'ematix_streaming_rows_consumed_total{pipeline="events-to-pg"} 3' in blocks[-1]


@contextmanager
def _flow(command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a documented command on the side."""
    arguments = [sys.executable, "-m", "ematix_flow", *shlex.split(command)[1:]]
    environment = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}."}
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _stopped(process: subprocess.Popen[str]) -> dict[str, object]:
    """Stop a command as a service is stopped and return what it printed."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return dict(json.loads(out))


@pytest.mark.usefixtures("file")
def test_a_file_runs_from_the_command_line_and_goes_on_where_it_was_stopped(events: World) -> None:
    command = SERVE.replace("9100", str(free_port()))
    with _flow(command) as process:
        events.until(lambda: events.warehouse.count("public.events") == 3)
        assert _stopped(process) == {"total_rows": 3, "iterations": 1, "shutdown_triggered": True}
    events.send("events", {"event_id": 4, "name": "later", "amount": "1"})
    with _flow(command) as process:
        events.until(lambda: events.warehouse.count("public.events") == 4)
        assert _stopped(process)["total_rows"] == 1
    assert events.warehouse.rows(ROWS) == [*LOADED, (4, "later", "1.00")]


# A module with a decorator


@pytest.fixture
def module(events: World) -> Path:
    """Return the documented module; what runs at once in the documents is left out."""
    path = Path("my_pipelines.py")
    path.write_text(only(DOCUMENT.read_text("utf-8"), ""), "utf-8")
    return path


@pytest.mark.usefixtures("module")
def test_a_module_runs_by_the_name_of_its_stream(events: World) -> None:
    port = free_port()
    with _flow(f"flow consume      --module my_pipelines events_to_pg --metrics-port {port}") as process:
        events.until(lambda: events.warehouse.count("public.events") == 3)
        assert 'pipeline="events_to_pg"' in _numbers(port)
        assert _stopped(process)["total_rows"] == 3
    assert events.warehouse.rows(ROWS) == LOADED


@pytest.mark.usefixtures("module")
def test_the_streams_of_a_module_are_listed() -> None:
    with _flow("flow consume-list --module my_pipelines") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert {"events_to_pg", "events_fanout"} <= {line.strip() for line in out.splitlines()}


# Several targets


def test_one_topic_goes_to_a_table_and_to_files(events: World, stored: World) -> None:
    stored.declare()
    counts = get_streaming_pipeline("events_fanout")(available_now=True)
    assert (counts["total_rows"], counts["iterations"]) == (6, 1)
    assert events.warehouse.rows(ROWS) == LOADED
    (body,) = stored.objects("ematix-archive", "events/raw/").values()
    file = pq.ParquetFile(io.BytesIO(body))
    rows = sorted(file.read().to_pylist(), key=lambda row: row["event_id"])
    assert [(row["event_id"], row["name"], row["amount"]) for row in rows] == LOADED
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert "SECRET" not in repr(get_connection("lake"))


def test_the_options_of_csv_files_are_kept(events: World, stored: World) -> None:
    events.send("events", {"event_id": 4, "name": "it's; \\ here", "amount": "1"})
    written = stored.run("events_archive", lambda: bool(stored.objects("ematix-archive", "events/csv/")))
    assert written["csv_lake"].format == "csv"
    (body,) = stored.objects("ematix-archive", "events/csv/").values()
    assert body.decode().splitlines() == ["1;opened;19.90", r"2;\N;0.10", r"3;closed;\N", r"4;'it\'s; \\ here';1"]


@pytest.mark.usefixtures("events")
def test_options_for_reading_may_stand_on_a_target(stored: World) -> None:
    stored.run("events_read_back", lambda: bool(stored.objects("ematix-archive", "events/csv/")))
    (body,) = stored.objects("ematix-archive", "events/csv/").values()
    assert body.decode().splitlines() == ["event_id,name,amount", "1,opened,19.90", "2,,0.10", "3,closed,"]


# Change events


def _change(op: str, lsn: int, after: dict[str, object] | None, before: dict[str, object] | None = None) -> str:
    return json.dumps({"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": 1_767_225_600_000}})


CUSTOMERS = (
    _change("c", 1, {"customer_id": 1, "email": "a@x.test"}),
    _change("c", 2, {"customer_id": 2, "email": "b@x.test"}),
    _change("u", 3, {"customer_id": 1, "email": "new@x.test"}),
    _change("d", 4, None, {"customer_id": 2}),
    # Delivered again: the gate knows both keys, also the one whose row is gone.
    _change("c", 1, {"customer_id": 1, "email": "a@x.test"}),
    _change("c", 2, {"customer_id": 2, "email": "b@x.test"}),
)


def test_customers_are_mirrored(world: World) -> None:
    world.send("dbserver1.public.customers", *CUSTOMERS)
    world.declare()
    get_streaming_pipeline("mirror_customers")(available_now=True)
    assert world.warehouse.rows("SELECT customer_id, email FROM public.customer_mirror") == [(1, "new@x.test")]
    gate = "SELECT pk_json, last_seen_ts_ms FROM ematix_flow.cdc_idempotency WHERE pipeline_name = 'mirror_customers' ORDER BY 1"
    assert world.warehouse.rows(gate) == [
        ('{"customer_id": 1}', 1_767_225_600_000),
        ('{"customer_id": 2}', 1_767_225_600_000),
    ]


_LAKE = (pytest.mark.spark, pytest.mark.deep)
_TARGETS = [
    *(one for one in PARAMETERS if one.id != "postgres"),
    *(pytest.param(kind, id=kind, marks=_LAKE) for kind in ("delta_local", "delta_s3", "iceberg")),
]


@pytest.mark.parametrize("system", _TARGETS)
def test_customers_are_mirrored_by_the_same_words_on_every_target(
    world: World, system: System | str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    world.send("dbserver1.public.customers", *CUSTOMERS)
    names = world.declare()
    document = DOCUMENT.read_text("utf-8")
    begin = document.index("from ematix_flow import CDC\n")
    text = document[begin : document.index("from ematix_flow import Watermark\n", begin)]
    PROJECT.clear()
    names["warehouse"] = target = empty_target(request, system, tmp_path)
    exec(compile(text, str(DOCUMENT), "exec"), names)  # noqa: S102 - the documented example itself
    mirror = Mirror(None, target, names["customer_mirror"].__table__)
    if target.kind == "mysql":  # whose schemas outlive the database of a test
        mirror.drop()
    for _ in range(2):  # the second finds nothing new
        get_streaming_pipeline("mirror_customers")(available_now=True)
        assert mirror.rows("customer_id", "email") == [(1, "new@x.test")]
