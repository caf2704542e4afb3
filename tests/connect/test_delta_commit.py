"""Commits to the log of a Delta table that no engine writes: each is made once, and a checkpoint keeps what they say."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect import delta_commit, delta_log
from ematix_flow.connect.base import FoundColumn
from ematix_flow.connect.delta_checkpoint import write_checkpoint
from ematix_flow.connect.delta_commit import NewFile
from ematix_flow.connect.lake_change import Change
from ematix_flow.connect.store import LocalStore
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "s/t/"
COLUMNS = (FoundColumn("id", "BIGINT", nullable=False), FoundColumn("amount", "DECIMAL(12,2)", nullable=True))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    opened = LocalStore(str(tmp_path))
    assert delta_commit.make_table(opened, FOLDER, COLUMNS)
    return opened


def change(number: int) -> Change:
    return Change(f"load-{number}", number, "books")


def add(store: LocalStore, number: int, check: Any = lambda _: None) -> None:
    delta_commit.add_files(store, FOLDER, change(number), [NewFile(f"{number}.parquet", 10, 2)], check)


def log_of(store: LocalStore) -> list[str]:
    return sorted(found.key.rpartition("/")[2] for found in store.listed(f"{FOLDER}_delta_log/"))


def files_of(store: LocalStore) -> set[str]:
    return {action["add"]["path"] for some in delta_log.commits(store, FOLDER) for action in some if "add" in action}


def test_a_table_is_made_once_with_its_columns(store: LocalStore) -> None:
    assert not delta_commit.make_table(store, FOLDER, COLUMNS)
    assert delta_log.columns(store, FOLDER) == [("id", "long", False), ("amount", "decimal(12,2)", True)]
    state = delta_log.state(store, FOLDER)
    assert state is not None
    assert (state.version, state.protocol) == (0, {"minReaderVersion": 1, "minWriterVersion": 2})
    assert delta_commit.takes_files(state)


def test_a_type_that_needs_more_than_every_reader_knows_is_left_to_delta(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert not delta_commit.make_table(store, FOLDER, [FoundColumn("v", "VARIANT", nullable=True)])
    assert delta_log.state(store, FOLDER) is None
    assert delta_commit.make_table(store, FOLDER, [FoundColumn("at", "TIMESTAMP_NTZ", nullable=True)])
    state = delta_log.state(store, FOLDER)
    assert state is not None
    assert state.protocol["readerFeatures"] == ["timestampNtz"]
    assert delta_commit.takes_files(state)


@pytest.mark.parametrize(
    ("protocol", "metadata"),
    [
        ({"minReaderVersion": 2, "minWriterVersion": 5}, {}),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["deletionVectors"]}, {}),
        ({}, {"partitionColumns": ["id"]}),
        (
            {},
            {
                "schemaString": '{"fields": [{"name": "id", "type": "long", "metadata": {"delta.invariants": "id > 0"}}]}'
            },
        ),
    ],
)
def test_a_table_that_asks_more_of_its_writers_takes_no_files(
    store: LocalStore, protocol: dict[str, Any], metadata: dict[str, Any]
) -> None:
    state = delta_log.state(store, FOLDER)
    assert state is not None
    other = delta_log.LogState(0, {**state.metadata, **metadata}, {**state.protocol, **protocol})
    assert not delta_commit.takes_files(other)


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
    seen: list[int] = []

    def check(state: delta_log.LogState) -> None:
        seen.append(state.version)
        if len(seen) == 1:
            assert store.create(delta_log.commit_key(FOLDER, 1), b'{"commitInfo": {"operation": "somebody"}}\n')

    add(store, 1, check)
    assert seen == [0, 1]
    assert len(delta_log.versions(store, FOLDER)) == 3


def test_many_who_add_at_once_all_get_their_turn(store: LocalStore) -> None:
    def one(number: int) -> None:
        books = Change(f"load-{number}", 1, f"books-{number}")
        delta_commit.add_files(store, FOLDER, books, [NewFile(f"{number}.parquet", 1, 1)], lambda _: None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(24)))
    assert files_of(store) == {f"{number}.parquet" for number in range(24)}
    assert delta_log.versions(store, FOLDER) == list(range(25))


def test_a_checkpoint_keeps_what_the_commits_before_it_say(store: LocalStore) -> None:
    for number in range(1, 25):
        add(store, number)
    assert [name for name in log_of(store) if not name.endswith(".json")] == [
        "00000000000000000010.checkpoint.parquet",
        "00000000000000000020.checkpoint.parquet",
        "_last_checkpoint",
    ]
    whole = delta_log.state(store, FOLDER)
    for version in range(20):
        store.delete(delta_log.commit_key(FOLDER, version))
    assert delta_log.state(store, FOLDER) == whole
    assert delta_log.columns(store, FOLDER) == [("id", "long", False), ("amount", "decimal(12,2)", True)]
    with pytest.raises(TransientError, match="takes it once"):
        add(store, 7)


def test_a_checkpoint_forgets_removed_files_and_keeps_the_others(store: LocalStore, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for number in range(1, 4):
        add(store, number)
    removed = {"remove": {"path": "2.parquet", "deletionTimestamp": 1, "dataChange": True}}
    store.create(delta_log.commit_key(FOLDER, 4), (json.dumps(removed) + "\n").encode())
    assert write_checkpoint(store, FOLDER, 4)
    rows = pq.read_table(tmp_path / FOLDER / "_delta_log" / f"{4:020}.checkpoint.parquet").to_pylist()
    assert [row["add"]["path"] for row in rows if row["add"]] == ["1.parquet", "3.parquet"]
    assert not [row for row in rows if row["remove"]]
    assert [row["txn"]["version"] for row in rows if row["txn"]] == [3]


@pytest.mark.parametrize(
    ("said", "days"),
    [
        (None, [6]),
        ("interval 30 days", [29, 8, 6]),
        ("interval 1 week", [6]),
        ("interval 12 hours", []),
        ("some time", [31, 29, 8, 6]),
    ],
)
def test_a_checkpoint_remembers_removed_files_as_long_as_the_table_says(
    store: LocalStore, tmp_path: Path, said: str | None, days: list[int]
) -> None:
    import pyarrow.parquet as pq

    metadata = json.loads((tmp_path / delta_log.commit_key(FOLDER, 0)).read_text().splitlines()[2])
    metadata["metaData"]["configuration"] = {} if said is None else {"delta.deletedFileRetentionDuration": said}
    now = time.time_ns() // 1_000_000
    gone = [
        {"remove": {"path": f"{age}.parquet", "deletionTimestamp": now - age * 86_400_000, "dataChange": True}}
        for age in (31, 29, 8, 6)
    ]
    store.create(delta_log.commit_key(FOLDER, 1), "".join(f"{json.dumps(a)}\n" for a in [metadata, *gone]).encode())
    assert write_checkpoint(store, FOLDER, 1)
    rows = pq.read_table(tmp_path / FOLDER / "_delta_log" / f"{1:020}.checkpoint.parquet").to_pylist()
    assert [row["remove"]["path"] for row in rows if row["remove"]] == [f"{age}.parquet" for age in days]


def test_an_action_that_is_not_known_leaves_the_checkpoint_to_others(store: LocalStore) -> None:
    store.create(delta_log.commit_key(FOLDER, 1), b'{"domainMetadata": {"domain": "d"}}\n')
    assert not write_checkpoint(store, FOLDER, 1)
    assert log_of(store) == [f"{0:020}.json", f"{1:020}.json"]


def test_a_checkpoint_of_another_kind_leaves_the_table_to_delta(store: LocalStore) -> None:
    for number in range(1, 12):
        add(store, number)
    folder = f"{FOLDER}_delta_log/"
    store.delete(f"{folder}{10:020}.checkpoint.parquet")
    store.create(f"{folder}{10:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", b"{}")
    assert delta_log.state(store, FOLDER) is None
    with pytest.raises(TransientError, match="cannot be read any more"):
        add(store, 12)
