# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Whoever listens hears once that a pipeline begins and once how it ends, whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, ematix, pk
from ematix_flow.connect.config.secrets import forget_secrets, remember
from ematix_flow.declare.connection.registry import SQLiteConnection
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.errors import FlowError
from ematix_flow.events import PipelineBegan, PipelineEnded
from ematix_flow.observe.bus import Bus

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.events import Event


@ematix.table(schema="main", name="one")
class One:
    id: Annotated[BigInt, pk()]


@ematix.table(schema="main", name="two")
class Two:
    id: Annotated[BigInt, pk()]


class Listener:
    """Keeps the events of whole pipelines."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.bus = Bus()
        self.bus.subscribe(self)

    def __call__(self, event: Event) -> None:
        if isinstance(event, PipelineBegan | PipelineEnded):
            self.heard.append(event)

    @property
    def ended(self) -> PipelineEnded:
        began, ended = self.heard
        assert isinstance(began, PipelineBegan)
        assert (began.pipeline, began.slot, began.attempt) == (ended.pipeline, ended.slot, ended.attempt)
        return ended


@pytest.fixture
def connection(tmp_path: Path) -> SQLiteConnection:
    """Return a connection to an empty database."""
    return SQLiteConnection(name="place", path=str(tmp_path / "place.db"))


def run(listener: Listener, declared: Any, **options: Any) -> Any:
    return run_pipeline(declared.pipeline, Options(bus=listener.bus, **options))


def test_a_success(connection: SQLiteConnection) -> None:
    listener = Listener()
    declared = ematix.pipeline(target=One, target_connection=connection, mode="append", name="p")(
        lambda _: "SELECT 1 AS id"
    )
    result = run(listener, declared)
    ended = listener.ended
    assert (ended.success, ended.slot[:4], ended.attempt, ended.max_attempts) == (True, "req-", 1, 1)
    assert (ended.gave_up, ended.run_ids, ended.seconds >= 0) == (False, (result["run_id"],), True)


def test_a_failure_without_its_secrets(connection: SQLiteConnection) -> None:
    listener = Listener()
    remember("canary-of-telling")
    query = "SELECT id FROM canary_table, 'canary-of-telling'"
    declared = ematix.pipeline(target=One, target_connection=connection, mode="append", name="p")(lambda _: query)
    with pytest.raises(FlowError):
        run(listener, declared)
    forget_secrets()
    assert (listener.ended.success, listener.ended.gave_up) == (False, True)
    assert "canary_table" in listener.ended.error_message
    assert "canary-of-telling" not in listener.ended.error_message
    assert listener.ended.error_type.endswith("Error")


def test_an_error_of_the_users_own_code(connection: SQLiteConnection) -> None:
    listener = Listener()
    declared = ematix.pipeline(target=One, target_connection=connection, mode="append", name="p")(lambda _: {}["x"])
    with pytest.raises(KeyError):
        run(listener, declared)
    assert (listener.ended.run_ids, listener.ended.error_type) == ((), "KeyError")


@pytest.mark.slow
def test_targets_that_failed_while_others_went_on(connection: SQLiteConnection) -> None:
    listener = Listener()
    targets = [
        ematix.target(One, mode="append", target_connection=connection, column_map={"id": "no_such_column"}),
        ematix.target(Two, mode="append", target_connection=connection),
    ]
    declared = ematix.pipeline(targets=targets, source_connection=connection, continue_on_failure=True, name="p")(
        lambda _: "SELECT 1 AS id"
    )
    result = run(listener, declared)
    assert result["status"] == "failed"
    assert (listener.ended.success, listener.ended.error_type) == (False, "RunError")
    assert listener.ended.error_message.startswith("main.one: ")
    assert listener.ended.run_ids == (result["results"]["main.two"]["run_id"],)


def test_a_run_that_is_stopped(connection: SQLiteConnection) -> None:
    def stopped(_: Any) -> str:
        raise KeyboardInterrupt

    listener = Listener()
    declared = ematix.pipeline(target=One, target_connection=connection, mode="append", name="p")(stopped)
    with pytest.raises(KeyboardInterrupt):
        run(listener, declared)
    assert listener.ended.error_type == "KeyboardInterrupt"


def test_a_listener_that_fails_does_not_stop_the_run(
    connection: SQLiteConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(event: Event) -> None:
        raise LookupError(type(event).__name__)

    listener = Listener()
    listener.bus.subscribe(broken)
    declared = ematix.pipeline(target=One, target_connection=connection, mode="append", name="p")(
        lambda _: "SELECT 1 AS id"
    )
    assert run(listener, declared)["rows_inserted"] == 1
    assert "an observer failed: PipelineEnded" in capsys.readouterr().err
