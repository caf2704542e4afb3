"""What befalls the state of a stream from outside: it is refused with a reason, or the windows are right in the end."""

from __future__ import annotations

import resource
import shutil
import threading
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
from tests.crash.journey import CrashTarget
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
    """Return the folder below which state is kept."""
    return str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def _own_engine(spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the engine to the product."""
    del spark
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    monkeypatch.setenv(ROOT_VARIABLE, root)


@dataclass
class StreamRig:
    """A stream into a DuckDB file, its events, and where its state is."""

    target: CrashTarget
    feed: WindowFeed
    writer: EventWriter

    @property
    def file(self) -> Path:
        return Path(self.target.fields["path"])

    @property
    def folder(self) -> Path:
        stream = window_stream(self.target, self.feed)
        return Path(state_folder(stream, stream.targets[0], stream.name))

    @property
    def offsets(self) -> Path:
        """Return the file in which Spark has written down the last batch."""
        return max((self.folder / "query" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))

    @property
    def range(self) -> str:
        """Return the name of the range that the last batch reads."""
        return self.offsets.read_text().splitlines()[-1]

    def drain(self, **options: Any) -> dict[str, Any]:
        """Load everything that is there."""
        return run_windows(self.target, self.feed, available_now=True, **options)

    def interrupted(self, points: str) -> None:
        """Load until an error at a failpoint."""
        failpoints.arm(points)
        try:
            with pytest.raises(failpoints.FailpointError):
                self.drain()
        finally:
            failpoints.arm("")

    def finished(self) -> list[str]:
        """Load the rest and the event that closes all windows, and return what is wrong."""
        self.writer.end()
        # In one range, because the last event would make those late that come in a later one.
        replace(self, feed=replace(self.feed, most=10_000)).drain()
        return complaints(windows_in(self.target, self.feed.table), self.writer.written)


@pytest.fixture(scope="module")
def rig_of(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., StreamRig]:
    """Return the function that makes a stream with some events; nothing is loaded yet."""

    def create(table: str, events: int, **feed: Any) -> StreamRig:
        path = tmp_path_factory.mktemp(table) / "target.duckdb"
        window_feed = WindowFeed(kafka_broker.address, kafka_broker.create_topic(3), "", table, **feed)
        writer = EventWriter(window_feed)
        writer.write(events)
        return StreamRig(CrashTarget("duckdb", {"path": str(path)}, "", "", "crash"), window_feed, writer)

    return create


@dataclass
class SavedStream:
    """A stream whose last batch was interrupted, with copies of its state and its table, and of the table before."""

    rig: StreamRig
    state: Path
    table: Path
    older: Path

    def restore(self) -> StreamRig:
        """Put everything back."""
        shutil.rmtree(self.rig.folder, ignore_errors=True)
        shutil.copytree(self.state, self.rig.folder)
        shutil.copy(self.table, self.rig.file)
        return self.rig


@pytest.fixture(scope="module")
def saved(root: str, rig_of: Callable[..., StreamRig], tmp_path_factory: pytest.TempPathFactory) -> SavedStream:
    """Return a stream whose last batch was interrupted before its load."""
    rig, copies = rig_of("faults", 54, most=18), tmp_path_factory.mktemp("copies")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(ENGINE_VARIABLE, raising=False)
        patch.setenv(ROOT_VARIABLE, root)
        # The first range once more, the second one and the third one.
        rig.interrupted("state.loaded=raise@1")
        shutil.copy(rig.file, copies / "older")
        rig.interrupted("state.computed=raise@3")
        shutil.copytree(rig.folder, copies / "state")
    shutil.copy(rig.file, copies / "table")
    return SavedStream(rig, copies / "state", copies / "table", copies / "older")


def lose_folder(rig: StreamRig) -> None:
    shutil.rmtree(rig.folder)


def empty_offsets(rig: StreamRig) -> None:
    rig.offsets.write_bytes(b"")


def halve_offsets(rig: StreamRig) -> None:
    data = rig.offsets.read_bytes()
    rig.offsets.write_bytes(data[: len(data) // 2])


def cut_offsets(rig: StreamRig) -> None:
    """Cut two letters off the name of the range."""
    rig.offsets.write_bytes(rig.offsets.read_bytes().rstrip()[:-2])


def lose_state_files(rig: StreamRig) -> None:
    for path in (rig.folder / "query" / "state").rglob("*"):
        if path.suffix in (".changelog", ".zip"):
            path.unlink()


def lose_lines(rig: StreamRig) -> None:
    shutil.rmtree(rig.folder / "input" / rig.range)


def lose_one_file_of_lines(rig: StreamRig) -> None:
    next((rig.folder / "input" / rig.range).glob("part-0*")).unlink()


def lose_manifest(rig: StreamRig) -> None:
    (rig.folder / "ranges" / f"{rig.range}.json").unlink()


def cut_manifest(rig: StreamRig) -> None:
    path = rig.folder / "ranges" / f"{rig.range}.json"
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


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_state_is_refused_and_nothing_is_changed(
    saved: SavedStream, damage: Callable[[StreamRig], None], message: str
) -> None:
    rig = saved.restore()
    before = windows_in(rig.target, rig.feed.table)
    damage(rig)
    with pytest.raises(StreamLostError) as caught:
        rig.drain()
    assert message in caught.value.what
    assert str(rig.folder) in caught.value.what
    assert "--confirm-state-reset" in str(caught.value.hint)
    assert windows_in(rig.target, rig.feed.table) == before


@pytest.mark.deep
def test_a_table_that_was_restored_is_refused_until_it_is_the_right_one_again(saved: SavedStream) -> None:
    rig = saved.restore()
    shutil.copy(saved.older, rig.file)
    with pytest.raises(StreamLostError, match="is at batch 3, and its target at another one, 1"):
        rig.drain()
    shutil.copy(saved.table, rig.file)
    rig.writer.write(18)
    assert rig.finished() == []


@pytest.mark.deep
def test_a_state_that_was_restored_is_refused(saved: SavedStream) -> None:
    rig = saved.restore()
    rig.interrupted("state.loaded=raise@1")
    shutil.rmtree(rig.folder)
    shutil.copytree(saved.state, rig.folder)
    # As a machine leaves it whose power was cut: the last batch was loaded, and never written down here.
    rig.offsets.unlink()
    with pytest.raises(StreamLostError, match="is at batch 2, and its target at another one, 3"):
        rig.drain()


@pytest.mark.deep
def test_the_state_of_another_stream_is_refused(saved: SavedStream, rig_of: Callable[..., StreamRig]) -> None:
    rig, other = saved.restore(), rig_of("others", 20)
    other.drain()
    shutil.rmtree(rig.folder)
    shutil.copytree(other.folder, rig.folder)
    with pytest.raises(StreamLostError, match="is that of another stream, or was begun anew"):
        rig.drain()


def test_a_reset_lets_a_stream_go_on_whose_state_is_lost(saved: SavedStream) -> None:
    rig = saved.restore()
    shutil.rmtree(rig.folder)
    stream = window_stream(rig.target, rig.feed)
    with pytest.raises(DeclareError, match="remembers rows between batches"):
        stream_rewind(stream, "earliest")
    (moved,) = move_stream(stream, "ledger", StreamOptions())
    assert moved.before is not None
    assert "state" in moved.before
    assert "state" not in moved.after
    assert moved.after["offsets"] == moved.before["offsets"]
    windows = windows_in(rig.target, rig.feed.table)
    rig.drain()
    assert windows_in(rig.target, rig.feed.table)[: len(windows)] == windows


@pytest.mark.deep
def test_a_rewind_forgets_the_state_and_gives_the_same_windows_again(rig_of: Callable[..., StreamRig]) -> None:
    rig = rig_of("merged", 42, mode="merge", most=18)
    rig.drain()
    before = windows_in(rig.target, rig.feed.table)
    assert before
    answer = stream_rewind(window_stream(rig.target, rig.feed), "earliest", confirm_state_reset=True)
    assert answer["state_cleared"] is True
    assert not rig.folder.exists()
    assert rig.drain()["iterations"] == 3
    assert windows_in(rig.target, rig.feed.table) == before
    assert rig.finished() == []


@pytest.mark.deep
def test_a_state_that_no_load_has_followed_from_goes_on(rig_of: Callable[..., StreamRig]) -> None:
    rig = rig_of("begun", 42, most=18)
    rig.interrupted("state.computed=raise@2")
    assert rig.offsets.name == "1"
    first = rig.range
    rig.interrupted("state.loaded=raise@1")
    assert rig.range == first
    assert rig.finished() == []


@pytest.mark.deep
def test_what_a_reset_has_left_of_a_state_is_begun_anew(rig_of: Callable[..., StreamRig], tmp_path: Path) -> None:
    rig = rig_of("left", 42, most=18)
    rig.interrupted("state.computed=raise@2")
    shutil.copytree(rig.folder, tmp_path / "left")
    first = rig.range
    move_stream(window_stream(rig.target, rig.feed), "earliest", StreamOptions())
    move_stream(window_stream(rig.target, rig.feed), "earliest", StreamOptions())
    assert not rig.folder.exists()
    shutil.copytree(tmp_path / "left", rig.folder)
    rig.interrupted("state.loaded=raise@1")
    assert rig.range != first
    assert rig.finished() == []


@pytest.mark.deep
def test_a_full_disk_ends_the_stream_and_the_next_run_goes_on(
    saved: SavedStream, spark: SparkSession, rig_of: Callable[..., StreamRig]
) -> None:
    del saved
    rig = rig_of("full", 42, most=18)
    rig.interrupted("state.loaded=raise@2")
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]
    limits = resource.prlimit(java, resource.RLIMIT_FSIZE)
    resource.prlimit(java, resource.RLIMIT_FSIZE, (SMALL, limits[1]))
    try:
        with pytest.raises(FlowError, match="there is no room left"):
            rig.drain()
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, limits)
    assert rig.finished() == []


@pytest.mark.deep
def test_a_root_that_is_no_folder_is_told(rig_of: Callable[..., StreamRig], tmp_path: Path) -> None:
    rig = rig_of("rootless", 20)
    (tmp_path / "root").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(tmp_path / "root"))
        with pytest.raises(FlowError, match="root"):
            rig.drain()


@pytest.mark.deep
def test_a_clock_that_jumps_back_changes_no_window(rig_of: Callable[..., StreamRig]) -> None:
    rig, calls = rig_of("clocks", 42, most=18), [0]

    def now() -> datetime:
        calls[0] += 1
        return datetime.now(UTC) - timedelta(minutes=calls[0])

    rig.drain(clock=Clock(now=now))
    assert calls[0] > 10
    assert rig.finished() == []


@pytest.mark.deep
def test_a_target_that_is_away_for_a_while_gets_every_window(
    rig_of: Callable[..., StreamRig], postgres_server: PostgresServer, postgres_url: str
) -> None:
    rig = rig_of("away", 48, restart=True)
    rig = replace(rig, target=CrashTarget("postgres", {"url": postgres_url}, "", "", "crash"))
    noticed = threading.Event()

    def come_back() -> None:
        noticed.wait(60)
        postgres_server.start()

    def listen(event: Event) -> None:
        if isinstance(event, StreamFailed):
            noticed.set()
        if isinstance(event, BatchLoaded) and not helpers:
            postgres_server.crash()
            helpers.append(threading.Thread(target=come_back))
            helpers[0].start()

    helpers: list[threading.Thread] = []
    options = StreamOptions()
    options.bus.subscribe(listen)
    try:
        rig.drain(bus=options.bus, max_backoff=1.0)
    finally:
        helpers[0].join()
    assert noticed.is_set()
    assert rig.finished() == []
