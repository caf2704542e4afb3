"""What befalls the state of a stream from outside: it is refused with a reason, or the windows are right in the end."""

from __future__ import annotations

import resource
import shutil
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import failpoints
from ematix_flow.clock import Clock
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.operations import stream_rewind
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.state.folder import state_folder
from ematix_flow.errors import DeclareError, FlowError, StreamLostError
from ematix_flow.events import BatchLoaded, StreamFailed
from tests.crash.journey import Place
from tests.crash.state_lives import run_windows
from tests.crash.windows import EventWriter, WindowFeed, complaints, window_stream, windows_in
from tests.depth import STREAM_STATE, deep

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from ematix_flow.events import Event
    from tests.services.kafka import KafkaBroker
    from tests.services.postgres import PostgresServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("_own_engine"),
]

ROOT_VARIABLE = "EMATIX_FLOW_CHECKPOINT_ROOT"
SMALL = 512
"""The size beyond which Java may not write any file, as if its disk were full."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the folder below which state is kept."""
    return str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def _own_engine(spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the engine to the product."""
    del spark
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setenv(ROOT_VARIABLE, root)


@dataclass
class Standing:
    """A stream into a DuckDB file, its events, and where its state is."""

    place: Place
    feed: WindowFeed
    writer: EventWriter

    @property
    def file(self) -> Path:
        return Path(self.place.fields["path"])

    @property
    def folder(self) -> Path:
        stream = window_stream(self.place, self.feed)
        return Path(state_folder(stream, stream.targets[0], stream.name))

    @property
    def offsets(self) -> Path:
        """Give the file in which Spark has written down the last batch."""
        return max((self.folder / "query" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))

    @property
    def range(self) -> str:
        """Give the name of the range that the last batch reads."""
        return self.offsets.read_text().splitlines()[-1]

    def drain(self, **options: Any) -> dict[str, Any]:
        """Load everything that is there."""
        return run_windows(self.place, self.feed, available_now=True, **options)

    def interrupted(self, points: str) -> None:
        """Load until an error at a failpoint."""
        failpoints.arm(points)
        try:
            with pytest.raises(failpoints.FailpointError):
                self.drain()
        finally:
            failpoints.arm("")

    def finished(self) -> list[str]:
        """Load the rest and the event that closes all windows, and give what is wrong."""
        self.writer.end()
        # In one range, because the last event would make those late that come in a later one.
        replace(self, feed=replace(self.feed, most=10_000)).drain()
        return complaints(windows_in(self.place, self.feed.table), self.writer.written)


@pytest.fixture(scope="module")
def standing_in(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Standing]:
    """Give the function that makes a stream with some events; nothing is loaded yet."""

    def make(table: str, events: int, **feed: Any) -> Standing:
        path = tmp_path_factory.mktemp(table) / "target.duckdb"
        made = WindowFeed(kafka_broker.address, kafka_broker.create_topic(3), "", table, **feed)
        writer = EventWriter(made)
        writer.write(events)
        return Standing(Place("duckdb", {"path": str(path)}, "", "", "crash"), made, writer)

    return make


@dataclass
class Kept:
    """A stream whose last batch was interrupted, with copies of its state and its table, and of the table before."""

    standing: Standing
    state: Path
    table: Path
    older: Path

    def restore(self) -> Standing:
        """Put everything back."""
        shutil.rmtree(self.standing.folder, ignore_errors=True)
        shutil.copytree(self.state, self.standing.folder)
        shutil.copy(self.table, self.standing.file)
        return self.standing


@pytest.fixture(scope="module")
def kept(root: str, standing_in: Callable[..., Standing], tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Give a stream whose last batch was interrupted before its load."""
    standing, copies = standing_in("faults", 54, most=18), tmp_path_factory.mktemp("copies")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(ENGINE_VARIABLE, raising=False)
        patch.setenv(ROOT_VARIABLE, root)
        # The first range once more, the second one and the third one.
        standing.interrupted("state.loaded=raise@1")
        shutil.copy(standing.file, copies / "older")
        standing.interrupted("state.computed=raise@3")
        shutil.copytree(standing.folder, copies / "state")
    shutil.copy(standing.file, copies / "table")
    return Kept(standing, copies / "state", copies / "table", copies / "older")


def lose_folder(standing: Standing) -> None:
    shutil.rmtree(standing.folder)


def empty_offsets(standing: Standing) -> None:
    standing.offsets.write_bytes(b"")


def halve_offsets(standing: Standing) -> None:
    data = standing.offsets.read_bytes()
    standing.offsets.write_bytes(data[: len(data) // 2])


def cut_offsets(standing: Standing) -> None:
    """Cut two letters off the name of the range."""
    standing.offsets.write_bytes(standing.offsets.read_bytes().rstrip()[:-2])


def lose_state_files(standing: Standing) -> None:
    for path in (standing.folder / "query" / "state").rglob("*"):
        if path.suffix in (".changelog", ".zip"):
            path.unlink()


def lose_lines(standing: Standing) -> None:
    shutil.rmtree(standing.folder / "input" / standing.range)


def lose_one_file_of_lines(standing: Standing) -> None:
    next((standing.folder / "input" / standing.range).glob("part-0*")).unlink()


def lose_manifest(standing: Standing) -> None:
    (standing.folder / "ranges" / f"{standing.range}.json").unlink()


def cut_manifest(standing: Standing) -> None:
    path = standing.folder / "ranges" / f"{standing.range}.json"
    path.write_bytes(path.read_bytes()[:40])


DAMAGES = [
    deep(lose_folder, "is gone"),
    deep(halve_offsets, "is damaged: query/offsets/3 is not as it was written"),
    deep(empty_offsets, "is damaged: what batch 3 reads is not written there in whole"),
    deep(cut_offsets, "is damaged: query/offsets/3 is not as it was written"),
    deep(lose_state_files, ".changelog does not exist"),
    deep(lose_lines, "is gone or cut"),
    (lose_one_file_of_lines, "is gone or cut"),
    deep(lose_manifest, ".json is gone"),
    deep(cut_manifest, ".json is not as it was written"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_state_is_refused_and_nothing_is_changed(
    kept: Kept, damage: Callable[[Standing], None], words: str
) -> None:
    standing = kept.restore()
    before = windows_in(standing.place, standing.feed.table)
    damage(standing)
    with pytest.raises(StreamLostError) as caught:
        standing.drain()
    assert words in caught.value.what
    assert str(standing.folder) in caught.value.what
    assert "--confirm-state-reset" in str(caught.value.hint)
    assert windows_in(standing.place, standing.feed.table) == before


@pytest.mark.deep
def test_a_table_that_was_restored_is_refused_until_it_is_the_right_one_again(kept: Kept) -> None:
    standing = kept.restore()
    shutil.copy(kept.older, standing.file)
    with pytest.raises(StreamLostError, match="is at batch 3, and its target at another one, 1"):
        standing.drain()
    shutil.copy(kept.table, standing.file)
    standing.writer.write(18)
    assert standing.finished() == []


@pytest.mark.deep
def test_a_state_that_was_restored_is_refused(kept: Kept) -> None:
    standing = kept.restore()
    standing.interrupted("state.loaded=raise@1")
    shutil.rmtree(standing.folder)
    shutil.copytree(kept.state, standing.folder)
    # As a machine leaves it whose power was cut: the last batch was loaded, and never written down here.
    standing.offsets.unlink()
    with pytest.raises(StreamLostError, match="is at batch 2, and its target at another one, 3"):
        standing.drain()


@pytest.mark.deep
def test_the_state_of_another_stream_is_refused(kept: Kept, standing_in: Callable[..., Standing]) -> None:
    standing, other = kept.restore(), standing_in("others", 20)
    other.drain()
    shutil.rmtree(standing.folder)
    shutil.copytree(other.folder, standing.folder)
    with pytest.raises(StreamLostError, match="is that of another stream, or was begun anew"):
        standing.drain()


def test_a_reset_lets_a_stream_go_on_whose_state_is_lost(kept: Kept) -> None:
    standing = kept.restore()
    shutil.rmtree(standing.folder)
    stream = window_stream(standing.place, standing.feed)
    with pytest.raises(DeclareError, match="remembers rows between batches"):
        stream_rewind(stream, "earliest")
    (moved,) = move_stream(stream, "ledger", StreamOptions())
    assert moved.before is not None
    assert "state" in moved.before
    assert "state" not in moved.after
    assert moved.after["offsets"] == moved.before["offsets"]
    found = windows_in(standing.place, standing.feed.table)
    standing.drain()
    assert windows_in(standing.place, standing.feed.table)[: len(found)] == found


@pytest.mark.deep
def test_a_rewind_forgets_the_state_and_gives_the_same_windows_again(standing_in: Callable[..., Standing]) -> None:
    standing = standing_in("merged", 42, mode="merge", most=18)
    standing.drain()
    before = windows_in(standing.place, standing.feed.table)
    assert before
    answer = stream_rewind(window_stream(standing.place, standing.feed), "earliest", confirm_state_reset=True)
    assert answer["state_cleared"] is True
    assert not standing.folder.exists()
    assert standing.drain()["iterations"] == 3
    assert windows_in(standing.place, standing.feed.table) == before
    assert standing.finished() == []


@pytest.mark.deep
def test_a_state_that_no_load_has_followed_from_goes_on(standing_in: Callable[..., Standing]) -> None:
    standing = standing_in("begun", 42, most=18)
    standing.interrupted("state.computed=raise@2")
    assert standing.offsets.name == "1"
    first = standing.range
    standing.interrupted("state.loaded=raise@1")
    assert standing.range == first
    assert standing.finished() == []


@pytest.mark.deep
def test_what_a_reset_has_left_of_a_state_is_begun_anew(standing_in: Callable[..., Standing], tmp_path: Path) -> None:
    standing = standing_in("left", 42, most=18)
    standing.interrupted("state.computed=raise@2")
    shutil.copytree(standing.folder, tmp_path / "left")
    first = standing.range
    move_stream(window_stream(standing.place, standing.feed), "earliest", StreamOptions())
    move_stream(window_stream(standing.place, standing.feed), "earliest", StreamOptions())
    assert not standing.folder.exists()
    shutil.copytree(tmp_path / "left", standing.folder)
    standing.interrupted("state.loaded=raise@1")
    assert standing.range != first
    assert standing.finished() == []


@pytest.mark.deep
def test_a_full_disk_ends_the_stream_and_the_next_run_goes_on(
    kept: Kept, spark: SparkSession, standing_in: Callable[..., Standing]
) -> None:
    del kept
    standing = standing_in("full", 42, most=18)
    standing.interrupted("state.loaded=raise@2")
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]
    limits = resource.prlimit(java, resource.RLIMIT_FSIZE)
    resource.prlimit(java, resource.RLIMIT_FSIZE, (SMALL, limits[1]))
    try:
        with pytest.raises(FlowError, match="there is no room left"):
            standing.drain()
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, limits)
    assert standing.finished() == []


@pytest.mark.deep
def test_a_root_that_is_no_folder_is_told(standing_in: Callable[..., Standing], tmp_path: Path) -> None:
    standing = standing_in("rootless", 20)
    (tmp_path / "root").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(tmp_path / "root"))
        with pytest.raises(FlowError, match="root"):
            standing.drain()


@pytest.mark.deep
def test_a_clock_that_jumps_back_changes_no_window(standing_in: Callable[..., Standing]) -> None:
    standing, calls = standing_in("clocks", 42, most=18), [0]

    def now() -> datetime:
        calls[0] += 1
        return datetime.now(UTC) - timedelta(minutes=calls[0])

    standing.drain(clock=Clock(now=now))
    assert calls[0] > 10
    assert standing.finished() == []


@pytest.mark.deep
def test_a_target_that_is_away_for_a_while_gets_every_window(
    standing_in: Callable[..., Standing], postgres_server: PostgresServer, postgres_url: str
) -> None:
    standing = standing_in("away", 48, restart=True)
    standing = replace(standing, place=Place("postgres", {"url": postgres_url}, "", "", "crash"))
    failures: list[Event] = []

    def come_back() -> None:
        time.sleep(3)
        postgres_server.start()

    def listen(event: Event) -> None:
        if isinstance(event, StreamFailed):
            failures.append(event)
        if isinstance(event, BatchLoaded) and not helpers:
            postgres_server.crash()
            helpers.append(threading.Thread(target=come_back))
            helpers[0].start()

    helpers: list[threading.Thread] = []
    options = StreamOptions()
    options.bus.subscribe(listen)
    try:
        standing.drain(bus=options.bus, max_backoff=1.0)
    finally:
        helpers[0].join()
    assert failures, "nobody noticed"
    assert standing.finished() == []
