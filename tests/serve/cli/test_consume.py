from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from ematix_flow.engine.stream.restart_policy import CRASHES
from tests.serve.cli.streaming import SRC, create_project, running, stopped, wait_for, wait_for_rows
from tests.services.messages import send

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.cli.streaming import Project
    from tests.services.kafka import KafkaBroker

    Flow = Callable[..., Any]

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.fixture
def streams(kafka_broker: KafkaBroker, project: Path) -> Project:
    return create_project(kafka_broker)


def test_what_is_there_is_loaded_once_and_the_totals_are_json(flow: Flow, streams: Project) -> None:
    streams.send(range(30))
    result = flow("consume", "orders", "-m", "streams", "--once")
    assert result.code == 0
    assert json.loads(result.out) == {"total_rows": 30, "iterations": 1, "shutdown_triggered": False}
    first, second = result.err.splitlines()
    assert first == 'orders: this process moves the rows: the settings say engine = "local".'
    assert second.startswith("orders: 30 rows written")
    again = flow("consume", "orders", "-m", "streams", "--available-now")
    assert json.loads(again.out) == {"total_rows": 0, "iterations": 0, "shutdown_triggered": False}
    assert streams.ids() == list(range(30))


def test_streams_and_their_dead_letters_go_by_the_engine_that_was_asked_for(
    flow: Flow, streams: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path("streams.py").read_text("utf-8").replace("idle_pause_ms=50", 'transform_on_error="dlq"')
    Path("streams.py").write_text(text, "utf-8")
    send(streams.broker, streams.topic, "{torn")
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    result = flow("consume", "orders", "-m", "streams", "--once", "--engine", "local")
    assert result.err.startswith('orders: this process moves the rows: the settings say engine = "local".')
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    result = flow("dlq", "replay", "orders", "-m", "streams", "--all", "--engine", "local")
    assert json.loads(result.out)["redeadlettered"] == 1
    with closing(sqlite3.connect("lite.db")) as connection:
        rows = connection.execute("SELECT metrics_json FROM ematix_flow_run_history").fetchall()
    assert [json.loads(metrics)["engine"] for (metrics,) in rows] == ["local", "local"]


def test_the_run_log_has_a_record_of_each_run_with_its_numbers(flow: Flow, streams: Project) -> None:
    streams.send(range(7))
    flow("consume", "orders", "-m", "streams", "--once", "--run-log-path", "runs.db")
    (run,) = json.loads(flow("runs", "list", "--run-log-path", "runs.db", "--format", "json").out)["runs"]
    assert run["run_id"].startswith("orders-stream-20")
    assert (run["kind"], run["status"], run["rows_inserted"]) == ("streaming", "succeeded", 7)
    extras = run["extras"]
    totals = ("rows_consumed_total", "rows_written_total", "batches_total", "errors_total")
    assert [extras[name] for name in totals] == [7, 7, 1, 0]
    assert (extras["engine"], extras["engine_reason"]) == ("local", 'the settings say engine = "local"')
    assert extras["stats_1m"].keys() == extras["stats_5m"].keys() == {
        "rows_consumed_per_sec", "rows_written_per_sec", "batches_per_sec", "errors_per_sec", "avg_batch_cycle_ms",
        "span_seconds",
    }  # fmt: skip
    assert extras["stats_1m"]["rows_written_per_sec"] > 0
    assert run["run_id"] in flow("runs", "list", "--run-log-path", "runs.db").out


def test_batches_are_lines_of_json_if_asked_for(flow: Flow, streams: Project) -> None:
    streams.send(range(3))
    lines = flow("consume", "orders", "-m", "streams", "--once", "--format", "lines").out.splitlines()
    batch, end = (json.loads(line) for line in lines)
    assert batch.pop("seconds") > 0
    assert batch == {
        "event": "batch", "pipeline": "orders", "target": "main.orders", "messages": 3, "rows_written": 3,
        "rows_rejected": 0,
    }  # fmt: skip
    assert end == {"event": "end", "total_rows": 3, "iterations": 1, "shutdown_triggered": False}


def test_several_streams_run_in_one_process(flow: Flow, streams: Project) -> None:
    streams.send(range(5))
    result = flow("consume", "--all", "-m", "streams", "--once")
    assert result.code == 0
    assert {name: one["total_rows"] for name, one in json.loads(result.out).items()} == {"copies": 5, "orders": 5}
    assert streams.ids("orders") == streams.ids("copies") == list(range(5))


def test_a_stream_that_fails_is_named_and_the_others_say_what_they_did(flow: Flow, streams: Project) -> None:
    with Path("streams.py").open("a", encoding="utf-8") as module:
        module.write('declare("lost", Copies, "no-such-topic")\n')
    streams.send(range(5))
    result = flow("consume", "orders", "lost", "-m", "streams", "--once", "--restart-on-error", "--max-backoff-ms", "1")
    results = json.loads(result.out)
    assert result.code == 1
    assert results["orders"]["total_rows"] == 5
    assert "there is no topic 'no-such-topic'" in results["lost"]["error"]
    assert "there is no topic 'no-such-topic'" in result.err


def test_a_file_that_is_no_stream_is_an_error_of_usage(flow: Flow, streams: Project) -> None:
    Path("orders.toml").write_text('pipeline_name = "orders"\nsource_query = 5\n', encoding="utf-8")
    result = flow("consume", "orders.toml", "--once")
    assert result.code == 2
    assert "orders.toml" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("order",), "did you mean 'orders'?"),
        (("nothing.toml",), "there is no file nothing.toml"),
        ((), "which streams?"),
        (("orders", "--all"), "which streams?"),
    ],
)
def test_streams_that_are_not_there_are_errors_of_usage(
    flow: Flow, streams: Project, arguments: tuple[str, ...], message: str
) -> None:
    result = flow("consume", *arguments, "-m", "streams")
    assert result.code == 2
    assert message in result.err


def test_streams_are_listed(flow: Flow, streams: Project) -> None:
    assert flow("consume-list", "-m", "streams").out == "copies\norders\n"
    listed = flow("consume-list", "-m", "streams", "--format", "json").out
    assert json.loads(listed) == {"pipelines": ["copies", "orders"]}


def test_kafka_tools_see_how_far_the_group_has_come(flow: Flow, streams: Project) -> None:
    streams.send(range(12))
    flow("consume", "orders", "-m", "streams", "--once")
    admin = streams.broker.admin()
    requested = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(streams.topic)])
    offsets = requested[streams.topic].result(30).topic_partitions
    assert sum(offset.offset for offset in offsets) == 12


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_a_batch_finish_and_the_exit_is_a_success(
    streams: Project, tmp_path: Path, number: signal.Signals
) -> None:
    streams.send(range(10))
    begun, go_on = tmp_path / "under_way", tmp_path / "go_on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    points = f"commit.verified=note:{begun},commit.applied=note:{go_on}"
    with running("orders", FLOW_FAILPOINTS=points) as process:
        assert "commit.verified" in begun.read_text(encoding="utf-8")
        process.send_signal(number)
        wait_for("stopping", process.stderr)
        assert "commit.applied" in go_on.read_text(encoding="utf-8")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out) == {"total_rows": 10, "iterations": 1, "shutdown_triggered": True}
    assert streams.ids() == list(range(10))


def test_the_second_signal_ends_at_once_and_nothing_is_lost(flow: Flow, streams: Project, tmp_path: Path) -> None:
    streams.send(range(10))
    begun, never = tmp_path / "under_way", tmp_path / "never"
    os.mkfifo(begun)
    os.mkfifo(never)
    points = f"commit.verified=note:{begun},commit.applied=note:{never}"
    with running("orders", FLOW_FAILPOINTS=points) as process:
        begun.read_text(encoding="utf-8")
        process.send_signal(signal.SIGTERM)
        wait_for("stopping", process.stderr)
        code, out, err = stopped(process)
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert "ended at once" in err
    assert json.loads(flow("consume", "orders", "-m", "streams", "--once").out)["total_rows"] == 10
    assert streams.ids() == list(range(10))


def test_each_stream_has_a_log_of_its_run_with_the_traceback_of_every_failure(flow: Flow, streams: Project) -> None:
    with Path("streams.py").open("a", encoding="utf-8") as module:
        module.write('declare("lost", Copies, "no-such-topic")\n')
    streams.send(range(5))
    log = ("--run-log-path", "runs.db")
    result = flow(
        "consume", "orders", "lost", "-m", "streams", "--once", "--restart-on-error", "--max-backoff-ms", "1", *log
    )
    assert result.code == 1
    assert "Traceback" not in result.err
    log_text = flow("logs", "lost").out
    again = r"^\d{4}-.*Z lost: connection 'broker': there is no topic 'no-such-topic'; trying again in .* s\.$"
    assert re.search(again, log_text, re.MULTILINE)
    assert log_text.count("Traceback (most recent call last)") >= CRASHES, "one for each failure"
    assert re.search(r"RunError: .*there is no topic", log_text)
    assert log_text.splitlines()[-1].endswith("Z lost: failed")
    fine = flow("logs", "orders").out.splitlines()
    assert [line.partition("Z ")[2].partition("-")[0] for line in fine] == ["orders: orders", "orders: done"]
    runs = json.loads(flow("runs", "list", "--run-log-path", "runs.db", "--format", "json").out)["runs"]
    (run_id,) = (run["run_id"] for run in runs if run["pipeline"] == "lost")
    assert flow("logs", run_id, *log).out == log_text


def test_batches_add_nothing_to_the_folder_of_logs(flow: Flow, streams: Project) -> None:
    for number in range(3):
        streams.send([number])
        assert flow("consume", "orders", "-m", "streams", "--once").code == 0
    files = list((Path.home() / ".ematix-flow" / "logs").glob("*.log"))
    assert len([file for file in files if not file.is_symlink()]) == 3
    assert len(files) == 6, "a log has the id of its run as a second name, and not those of its batches"


def test_no_log_of_a_stream_is_kept_where_that_is_forbidden(
    flow: Flow, streams: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CAPTURE_LOGS", "0")
    assert flow("consume", "orders", "-m", "streams", "--once").code == 0
    assert flow("logs", "orders").code == 1


def test_the_log_of_a_stream_is_followed_until_it_ends(streams: Project) -> None:
    streams.send(range(3))
    environ = {**os.environ, "PYTHONPATH": SRC}
    with running("orders", "--format", "lines") as process:
        wait_for_rows(process.stdout, 3)
        command = [sys.executable, "-m", "ematix_flow", "logs", "orders", "--follow"]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as reader:
            assert "orders: orders-stream-" in wait_for("attempt 1", reader.stdout)
            assert reader.poll() is None
            stopped(process)
            rest, _ = reader.communicate(timeout=60)
    assert rest.splitlines()[-1].endswith("orders: done")
