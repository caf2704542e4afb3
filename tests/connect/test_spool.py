"""The durable log of queues that forget: what is safe stays, what is torn is cut, what is settled goes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ematix_flow
from ematix_flow.connect.spool import log as spools
from ematix_flow.connect.spool.log import QueueMessage, Spool, SpoolFullError
from ematix_flow.connect.spool.segments import read_batches
from ematix_flow.errors import RunError, StreamLostError

if TYPE_CHECKING:
    from collections.abc import Iterator


_APPENDS = """
import sys
from pathlib import Path
from pathlib import Path
from ematix_flow.connect.spool.log import QueueMessage, Spool

spool = Spool(Path(sys.argv[1]))
for number in range(5):
    spool.append([QueueMessage(b"%d" % number, id=str(number))])
    print(number, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def some(first: int, end: int, **more: object) -> list[QueueMessage]:
    return [QueueMessage(b"%d" % number, id=str(number), **more) for number in range(first, end)]


def payloads(spool: Spool, begin: int, end: int) -> list[bytes]:
    tables = read_batches(spool.batches(begin, end), begin, end, ("_queue", "q"), [])
    return [value for table in tables for value in table.column("value").to_pylist()]


def reopened(spool: Spool) -> Spool:
    spool.close()
    return Spool(spool._folder)


def segments(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.glob("*.seg")))


def test_messages_are_read_again_by_their_numbers(folder: Path) -> None:
    spool = Spool(folder)
    spool.append(some(0, 10))
    spool.append(some(10, 25, key="k", headers='{"a": 1}', at=1_000_000))
    assert (spool.first, spool.end) == (0, 25)
    assert payloads(spool, 7, 12) == [b"7", b"8", b"9", b"10", b"11"]
    (table,) = read_batches(spool.batches(12, 13), 12, 13, ("_queue", "q"), ["_key", "_queue", "_event_ts"])
    assert table.drop_columns(["_event_ts"]).to_pylist() == [
        {"value": b"12", "_key": "k", "_queue": "q", "_place": '{"queue": "q", "number": 12}'}
    ]
    spool.close()


def test_numbers_and_messages_outlive_the_process(folder: Path) -> None:
    spool = Spool(folder)
    name = spool.id
    spool.append(some(0, 3))
    spool = reopened(spool)
    spool.append(some(3, 5))
    assert (spool.id, spool.end, payloads(spool, 0, 5)) == (name, 5, [b"0", b"1", b"2", b"3", b"4"])
    spool.close()


def test_a_message_that_comes_again_is_known_and_other_contents_under_its_id_are_new(folder: Path) -> None:
    spool = Spool(folder)
    assert (
        spool.append([QueueMessage(b"a", id="1"), QueueMessage(b"a", id="1"), QueueMessage(b"a"), QueueMessage(b"a")])
        == 3
    )
    spool = reopened(spool)
    assert spool.append([QueueMessage(b"a", id="1"), QueueMessage(b"b", id="1"), QueueMessage(b"a")]) == 2
    assert payloads(spool, 0, spool.end) == [b"a", b"a", b"a", b"b", b"a"]
    spool.close()


def test_settled_files_go_but_their_messages_are_still_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 1)
    spool = Spool(folder)
    for number in range(4):
        spool.append(some(number, number + 1))
    spool.trim(2)
    assert (spool.first, spool.end, len(list(segments(folder)))) == (2, 4, 2)
    spool.trim(4)
    assert (spool.first, spool.end) == (3, 4), "the newest file knows what comes next"
    spool = reopened(spool)
    assert spool.append(some(0, 5)) == 1
    assert spool.end == 5
    spool.close()


def test_only_the_newest_ids_are_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "REMEMBERED", 3)
    spool = Spool(folder)
    spool.append(some(0, 5))
    assert spool.append(some(4, 5)) == 0
    assert spool.append(some(0, 1)) == 1
    spool = reopened(spool)
    assert spool.append(some(4, 5)) == 0
    assert spool.append(some(1, 2)) == 1
    spool.close()


@pytest.mark.parametrize("left", [1, 20, 40, -1])
def test_a_torn_end_is_cut(folder: Path, left: int) -> None:
    spool = Spool(folder)
    spool.append(some(0, 3))
    size = next(segments(folder)).stat().st_size
    spool.append(some(3, 6))
    spool.close()
    file = next(segments(folder))
    os.truncate(file, size + left if left > 0 else file.stat().st_size + left)
    spool = Spool(folder)
    assert (spool.end, file.stat().st_size) == (3, size)
    assert spool.append(some(3, 5)) == 2, "what was cut is not known"
    assert payloads(reopened(spool), 0, 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_hole_in_the_last_batch_is_a_torn_end(folder: Path) -> None:
    spool = Spool(folder)
    spool.append(some(0, 3))
    size = next(segments(folder)).stat().st_size
    spool.append(some(3, 6))
    spool.close()
    damage(next(segments(folder)), size + 60)
    assert Spool(folder).end == 3


def test_damage_before_the_last_batch_is_not_cut_away(folder: Path) -> None:
    spool = Spool(folder)
    for number in range(3):
        spool.append(some(number, number + 1))
    spool.close()
    size = next(segments(folder)).stat().st_size
    for offset in (0, 60):
        data = damage(next(segments(folder)), offset)
        with pytest.raises(StreamLostError, match="damaged from message 0"):
            Spool(folder)
        assert next(segments(folder)).stat().st_size == size
        next(segments(folder)).write_bytes(data)
    Spool(folder).close()


def test_damage_that_comes_later_is_told_by_the_reader(folder: Path) -> None:
    spool = Spool(folder)
    spool.append(some(0, 3))
    damage(next(segments(folder)), 60)
    with pytest.raises(StreamLostError, match="messages 0 to 2"):
        payloads(spool, 0, 3)
    spool.close()


def test_one_owner_at_a_time(folder: Path) -> None:
    spool = Spool(folder)
    with pytest.raises(RunError, match="another process"):
        Spool(folder)
    reopened(spool).close()


def test_files_are_only_for_their_owner(folder: Path) -> None:
    spool = Spool(folder)
    spool.append(some(0, 1))
    spool.close()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_full_disk_takes_nothing_and_later_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(folder)
    spool.append(some(0, 1))
    monkeypatch.setattr(spools, "RESERVE_BYTES", 1 << 60)
    with pytest.raises(SpoolFullError):
        spool.append(some(1, 3))
    monkeypatch.setattr(spools, "RESERVE_BYTES", 0)
    assert (spool.end, spool.append(some(1, 3))) == (1, 2)
    assert payloads(reopened(spool), 0, 3) == [b"0", b"1", b"2"]


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Let no file grow beyond a size, as if the disk were full."""
    limits, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_spool_that_cannot_be_opened_says_why(folder: Path) -> None:
    with small_files(0), pytest.raises(SpoolFullError, match="no room"):
        Spool(folder)
    Spool(folder).close()
    with pytest.raises(RunError, match="cannot be used: Not a directory"):
        Spool(Path("/dev/null/spool"))


def test_settled_files_stay_while_there_is_no_room_to_note_what_they_held(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 1)
    spool = Spool(folder)
    for number in range(5):
        spool.append(some(number, number + 1))
    with small_files(10):
        spool.trim(4)
    assert (spool.first, len(list(segments(folder)))) == (0, 5)
    spool.trim(4)
    assert (spool.first, len(list(segments(folder)))) == (4, 1)
    assert spool.append(some(0, 6)) == 1, "what was removed is still known"


def test_a_write_that_stops_half_way_leaves_nothing(folder: Path) -> None:
    spool = Spool(folder)
    spool.append(some(0, 1))
    before = next(segments(folder)).stat().st_size
    with small_files(before + 100), pytest.raises(SpoolFullError):
        spool.append(some(1, 3))
    assert next(segments(folder)).stat().st_size == before
    assert spool.append(some(1, 3)) == 2
    assert payloads(reopened(spool), 0, 3) == [b"0", b"1", b"2"]


@pytest.mark.crash
@pytest.mark.parametrize(("where", "remaining"), [("spool.before_fsync", (2, 3)), ("spool.after_fsync", (3,))])
def test_what_was_told_to_be_safe_outlives_a_kill(folder: Path, where: str, remaining: tuple[int, ...]) -> None:
    code = str(Path(ematix_flow.__file__).parents[1])
    surroundings = {**os.environ, "FLOW_FAILPOINTS": f"{where}=kill@3", "PYTHONPATH": code}
    killed = subprocess.run(
        [sys.executable, "-c", _APPENDS, str(folder)], env=surroundings, capture_output=True, text=True, check=False
    )
    assert (killed.returncode, killed.stdout.split()) == (-signal.SIGKILL, ["0", "1"])
    spool = Spool(folder)
    assert spool.end in remaining
    assert payloads(spool, 0, spool.end) == [b"0", b"1", b"2"][: spool.end]
    spool.append(some(0, 5))
    assert payloads(spool, 0, spool.end) == [b"0", b"1", b"2", b"3", b"4"]
    spool.close()


def damage(file: Path, offset: int) -> bytes:
    """Change bytes of a file and return what it was."""
    data = file.read_bytes()
    file.write_bytes(data[:offset] + bytes(byte ^ 0xFF for byte in data[offset : offset + 4]) + data[offset + 4 :])
    return data


def test_somebody_else_can_look_and_changes_nothing(folder: Path) -> None:
    spool = Spool(folder)
    spool.append(some(0, 3))
    with next(segments(folder)).open("ab") as file:
        file.write(b"half a batch")
    size = next(segments(folder)).stat().st_size
    reader = Spool(folder, own=False)
    assert (reader.id, reader.first, reader.end) == (spool.id, 0, 3)
    reader.close()
    assert next(segments(folder)).stat().st_size == size
    spool.close()
