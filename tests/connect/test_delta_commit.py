"""Commits to the log of a Delta table that no engine writes: each is made once, and a checkpoint keeps what they say."""

from __future__ import annotations

import json
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.columns import ColumnSchema
from ematix_flow.connect.delta import commit as delta_commit
from ematix_flow.connect.delta import log as delta_log
from ematix_flow.connect.delta.commit import NewFile
from ematix_flow.connect.delta.copy import snapshot
from ematix_flow.connect.lake.change import Change
from ematix_flow.connect.lake.location import in_bucket
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.errors import TransientError, UnsupportedError
from tests.services.http_faults import FaultyProxy
from tests.services.s3 import s3_fields

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connect.delta.copy import Snapshot
    from ematix_flow.connect.storage.base import Store
    from tests.services.s3 import S3Server

FOLDER = "s/t/"
COLUMNS = (ColumnSchema("id", "BIGINT", nullable=False), ColumnSchema("amount", "DECIMAL(12,2)", nullable=True))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    opened = LocalStore(str(tmp_path))
    assert delta_commit.create_table(opened, FOLDER, COLUMNS)
    return opened


def change(number: int) -> Change:
    return Change(f"load-{number}", number, "books")


def add(store: LocalStore, number: int, check: Any = lambda _: None) -> None:
    delta_commit.add_files(store, FOLDER, change(number), [NewFile(f"{number}.parquet", 10, 2)], check)


def log_of(store: LocalStore) -> list[str]:
    return sorted(entry.key.rpartition("/")[2] for entry in store.listed(f"{FOLDER}_delta_log/"))


def files_of(store: LocalStore) -> set[str]:
    return {action["add"]["path"] for some in delta_log.commits(store, FOLDER) for action in some if "add" in action}


def field(key: str, value: str) -> str:
    """Return a schema whose only column has something said of it."""
    column = {"name": "id", "type": "string", "nullable": True, "metadata": {key: value}}
    return json.dumps({"type": "struct", "fields": [column]})


def current(store: LocalStore) -> Snapshot:
    table = snapshot(store, FOLDER)
    assert table is not None
    return table


def alter(store: LocalStore, **metadata: Any) -> None:
    """Write the next version, which says something else of the table."""
    (about,) = [a["metaData"] for a in delta_log.commit(store, FOLDER, 0) or () if "metaData" in a]
    write(store, {"metaData": {**about, **metadata}})


def write(store: LocalStore, *actions: dict[str, Any]) -> int:
    """Write the next version as another program would, and return its number."""
    number = (delta_log.version(store, FOLDER) or 0) + 1
    assert store.create(delta_log.commit_key(FOLDER, number), "".join(f"{json.dumps(a)}\n" for a in actions).encode())
    return number


def checkpoints(store: LocalStore) -> list[int]:
    return [int(name.partition(".")[0]) for name in log_of(store) if ".checkpoint." in name]


def checkpoint_rows(tmp_path: Path, number: int) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    rows = pq.read_table(tmp_path / FOLDER / "_delta_log" / f"{number:020}.checkpoint.parquet").to_pylist()
    return list(rows)


def test_a_table_is_made_once_with_its_columns(store: LocalStore) -> None:
    assert not delta_commit.create_table(store, FOLDER, COLUMNS)
    table = current(store)
    assert table.columns == [("id", "long", False), ("amount", "decimal(12,2)", True)]
    assert (table.version, table.protocol, table.takes_files) == (0, (1, 2), True)


def test_a_log_names_the_table_and_no_folder_of_this_machine_but_its_own(store: LocalStore) -> None:
    add(store, 1)
    for number in (0, 1):
        text = (store.read(delta_log.commit_key(FOLDER, number)) or b"").decode()
        assert "ematix-flow-delta" not in text
        assert '"clientVersion":"ematix-flow"' in text
    assert store.address(FOLDER) in (store.read(delta_log.commit_key(FOLDER, 0)) or b"").decode()


def test_a_type_that_needs_more_than_every_reader_knows_is_left_to_delta(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert not delta_commit.create_table(store, FOLDER, [ColumnSchema("v", "VARIANT", nullable=True)])
    assert snapshot(store, FOLDER) is None
    assert delta_commit.create_table(store, FOLDER, [ColumnSchema("at", "TIMESTAMP_NTZ", nullable=True)])
    # Delta refuses a table that has NOT NULL columns and lists features, but not this one.
    assert current(store).features == {"appendOnly", "invariants", "timestampNtz"}
    assert current(store).takes_files


@pytest.mark.parametrize(
    "more",
    [
        {"protocol": (2, 5)},
        {"protocol": (3, 7), "features": frozenset({"deletionVectors"})},
        {"protocol": (1, 7), "features": frozenset({"checkConstraints"})},
        {"partitions": ("id",)},
        {"schema": field("delta.invariants", "id > 0")},
        {"schema": field("delta.generationExpression", "1")},
        {"schema": field("__CHAR_VARCHAR_TYPE_STRING", "varchar(3)")},
    ],
    ids=str,
)
def test_a_table_that_asks_more_of_its_writers_takes_no_files(store: LocalStore, more: dict[str, Any]) -> None:
    assert not replace(current(store), **more).takes_files
    assert replace(current(store), schema=field("comment", "what it is")).takes_files


def test_a_change_is_made_once_and_a_refused_one_never(store: LocalStore) -> None:
    add(store, 1)
    assert delta_log.remembers(store, FOLDER, "load-1")
    with pytest.raises(TransientError, match="takes it once"):
        add(store, 1)
    delta_commit.refuse(store, FOLDER, change(2))
    with pytest.raises(TransientError, match="takes it once"):
        add(store, 2)
    assert not delta_log.remembers(store, FOLDER, "load-2")
    add(store, 3)
    assert files_of(store) == {"1.parquet", "3.parquet"}


def test_commits_of_others_are_gone_around_and_looked_at(store: LocalStore) -> None:
    numbers: list[int] = []

    def check(table: Snapshot) -> None:
        numbers.append(table.version)
        if len(numbers) == 1:
            assert store.create(delta_log.commit_key(FOLDER, 1), b'{"commitInfo": {"operation": "somebody"}}\n')

    add(store, 1, check)
    assert numbers == [0, 1]
    assert len(delta_log.versions(store, FOLDER)) == 3


@pytest.mark.slow
def test_many_who_add_at_once_all_get_their_turn(store: LocalStore) -> None:
    def one(number: int) -> None:
        next_change = Change(f"load-{number}", 1, f"books-{number}")
        delta_commit.add_files(store, FOLDER, next_change, [NewFile(f"{number}.parquet", 1, 1)], lambda _: None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(24)))
    assert files_of(store) == {f"{number}.parquet" for number in range(24)}
    assert delta_log.versions(store, FOLDER) == list(range(25))


@pytest.mark.slow
def test_a_checkpoint_keeps_what_the_commits_before_it_say(store: LocalStore) -> None:
    for number in range(1, 25):
        add(store, number)
    assert [name for name in log_of(store) if not name.endswith(".json")] == [
        "00000000000000000010.checkpoint.parquet",
        "00000000000000000020.checkpoint.parquet",
        "_last_checkpoint",
    ]
    whole = current(store)
    for version in range(20):
        store.delete(delta_log.commit_key(FOLDER, version))
    assert current(store) == whole
    with pytest.raises(TransientError, match="takes it once"):
        add(store, 7)
    store.delete(f"{FOLDER}_delta_log/_last_checkpoint")
    assert current(store) == whole, "what is noted of a checkpoint is a help, and not needed"


@pytest.mark.slow
def test_commits_that_are_cleaned_up_while_a_log_is_read_are_not_its_end(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 25):
        add(store, number)
    note, really = f"{FOLDER}_delta_log/_last_checkpoint", store.read
    noted = really(note) or b""
    store.write(note, json.dumps({"version": 10}).encode())

    def cleaned(key: str) -> bytes | None:
        if key == delta_log.commit_key(FOLDER, 11) and really(key) is not None:
            store.write(note, noted)
            for version in range(20):
                store.delete(delta_log.commit_key(FOLDER, version))
        return really(key)

    monkeypatch.setattr(store, "read", cleaned)
    add(store, 25)
    assert delta_log.versions(store, FOLDER) == list(range(20, 26))


@pytest.mark.slow
@pytest.mark.parametrize(("interval", "numbers"), [("3", [3, 6, 9]), ("1", list(range(2, 10))), (None, [])])
def test_a_table_says_itself_how_often_it_has_a_checkpoint(
    store: LocalStore, interval: str | None, numbers: list[int]
) -> None:
    alter(store, configuration={"delta.checkpointInterval": interval} if interval else {})
    for number in range(2, 10):
        add(store, number)
    assert checkpoints(store) == numbers


@pytest.mark.slow
def test_a_checksum_of_what_was_noted_before_goes_with_it(store: LocalStore, tmp_path: Path) -> None:
    checksum = tmp_path / FOLDER / "_delta_log" / "._last_checkpoint.crc"
    for number in range(1, 10):
        add(store, number)
    checksum.write_bytes(b"of another file")
    add(store, 10)
    assert not checksum.exists()
    assert json.loads(store.read(f"{FOLDER}_delta_log/_last_checkpoint") or b"")["version"] == 10


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_is_left_to_a_later_commit(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = store.create

    def full(key: str, data: bytes) -> bool:
        if key.endswith(".parquet"):
            raise OSError("no space left on device")
        return really(key, data)

    monkeypatch.setattr(store, "create", full)
    for number in range(1, 12):
        add(store, number)
    assert (checkpoints(store), current(store).version) == ([], 11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("duration", "days"),
    [(None, [6]), ("interval 30 days", [29, 8, 6]), ("interval 1 week", [6]), ("interval 12 hours", [])],
)
def test_a_checkpoint_remembers_removed_files_as_long_as_the_table_says(
    store: LocalStore, tmp_path: Path, duration: str | None, days: list[int]
) -> None:
    alter(store, configuration={} if duration is None else {"delta.deletedFileRetentionDuration": duration})
    now = time.time_ns() // 1_000_000
    gone = [
        {"remove": {"path": f"old {age}", "deletionTimestamp": now - age * 86_400_000, "dataChange": True}}
        for age in (31, 29, 8, 6)
    ]
    write(store, *gone)
    for number in range(3, 11):
        add(store, number)
    rows = checkpoint_rows(tmp_path, 10)
    assert {row["remove"]["path"] for row in rows if row["remove"]} == {f"old {age}" for age in days}
    assert {row["add"]["path"] for row in rows if row["add"]} == {f"{number}.parquet" for number in range(3, 11)}
    assert [row["txn"]["version"] for row in rows if row["txn"]] == [10]


@pytest.mark.slow
@pytest.mark.parametrize("sidecar", [True, False])
def test_a_checkpoint_of_the_second_version_is_read(store: LocalStore, tmp_path: Path, sidecar: bool) -> None:
    for number in range(1, 12):
        add(store, number)
    log = tmp_path / FOLDER / "_delta_log"
    before = current(store)
    second_version(log, 10, sidecar=sidecar)
    assert current(store) == replace(before, protocol=(3, 7), features=frozenset({"v2Checkpoint", "invariants"}))
    assert not current(store).takes_files, "Delta itself writes the next checkpoint"
    with pytest.raises(TransientError, match="takes it once"):
        add(store, 9)
    add(store, 12)
    assert current(store).version == 12


def second_version(log: Path, number: int, *, sidecar: bool) -> None:
    """Put a checkpoint of the second version in place of one, and of the commits before it."""
    import pyarrow.parquet as pq

    one = log / f"{number:020}.checkpoint.parquet"
    rows = [{k: v for k, v in row.items() if v} for row in pq.read_table(one).to_pylist(maps_as_pydicts="strict")]
    features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint", "invariants"]}
    actions = [{"checkpointMetadata": {"version": number}}]
    actions += [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}]
    actions += [row for row in rows if "metaData" in row or "txn" in row]
    adds = [row for row in rows if "add" in row]
    if sidecar:
        (log / "_sidecars").mkdir()
        pq.write_table(pq.read_table(one, columns=["add"]), log / "_sidecars" / "a.parquet")
        size = (log / "_sidecars" / "a.parquet").stat().st_size
        adds = [{"sidecar": {"path": "a.parquet", "sizeInBytes": size, "modificationTime": 1}}]
    name = f"{number:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (log / name).write_text("\n".join(json.dumps(action) for action in (*actions, *adds)))
    one.unlink()
    for version in range(number + 1):
        (log / f"{version:020}.json").unlink()


def test_a_log_that_is_not_understood_is_named_with_its_place(store: LocalStore) -> None:
    features = {"readerFeatures": ["tomorrow"], "writerFeatures": ["tomorrow"]}
    write(store, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(UnsupportedError, match="tomorrow") as refused:
        snapshot(store, FOLDER)
    assert store.address(FOLDER) in str(refused.value)
    assert "ematix-flow-delta" not in str(refused.value)


@pytest.mark.service
@pytest.mark.parametrize("fault", ["broken", "raced", "lost", "unanswered"])
def test_whatever_a_bucket_answers_a_commit_is_made_once(s3_server: S3Server, s3_bucket: str, fault: str) -> None:
    proxy = FaultyProxy(s3_server.port)
    try:
        store = bucket(s3_server, s3_bucket, proxy.endpoint)
        assert delta_commit.create_table(store, FOLDER, COLUMNS)
        for number in range(1, 12):
            proxy.faults = deque([("PUT _delta_log/", fault)] if number in (2, 10) else [])
            delta_commit.add_files(store, FOLDER, change(number), [NewFile(f"{number}.parquet", 1, 1)], lambda _: None)
            assert not proxy.faults
    finally:
        proxy.close()
    straight = bucket(s3_server, s3_bucket, s3_server.endpoint)
    table = snapshot(straight, FOLDER)
    assert delta_log.versions(straight, FOLDER) == list(range(12))
    assert table is not None
    assert table.version == 11


def bucket(server: S3Server, name: str, endpoint: str) -> Store:
    """Return the store of a prefix with letters that addresses have other ways to write."""
    fields = s3_fields(server, name, kind="delta_s3", endpoint=endpoint, prefix="a b%20[c]")
    del fields["format"]
    return in_bucket(connection_from_fields("lake", fields)).store  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a%20b", "p%zz", "back\\slash", "q?y=1 #ü [x]"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    store, folder = LocalStore(str(tmp_path)), f"{name}/t/"
    assert delta_commit.create_table(store, folder, COLUMNS)
    delta_commit.add_files(store, folder, change(1), [NewFile("a.parquet", 1, 1)], lambda _: None)
    table = snapshot(store, folder)
    assert table is not None
    assert table.version == 1
