"""A folder as a store: one winner per name, whole objects or none, and drafts that nobody takes for objects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.storage.base import LocalStore, parse_staged_path

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "root"))


def keys(store: LocalStore, prefix: str = "") -> list[str]:
    return [entry.key for entry in store.listed(prefix)]


def test_of_many_that_create_one_object_one_wins_and_its_bytes_stay(store: LocalStore) -> None:
    writers = 12
    start = Barrier(writers)

    def create(writer: int) -> list[bool]:
        start.wait()
        return [store.create(f"deep/{number}", b"%d" % writer * 1000) for number in range(20)]

    with ThreadPoolExecutor(writers) as pool:
        won = list(pool.map(create, range(writers)))
    for number in range(20):
        (winner,) = [writer for writer in range(writers) if won[writer][number]]
        assert store.read(f"deep/{number}") == b"%d" % winner * 1000
    assert len(keys(store, "deep/")) == 20
    assert list(store.unfinished("deep/")) == []


def test_what_is_not_there_is_none_and_removing_it_is_no_error(store: LocalStore) -> None:
    assert (store.read("a"), store.size("a"), keys(store), keys(store, "b/")) == (None, None, [], [])
    store.delete("a")
    store.remove_below("b/")


def test_an_output_is_seen_when_it_is_kept_under_a_name_with_its_bytes(store: LocalStore) -> None:
    output = store.output("stage/part-1.csv")
    output.stream.write(b"x" * 70_000)
    assert keys(store) == []
    assert [entry.size >= 0 for entry in store.unfinished("stage/")] == [True]
    assert parse_staged_path(output.finish()) == ("stage/part-1.csv", 70_000)
    assert keys(store) == ["stage/part-1.csv"]
    assert store.size("stage/part-1.csv") == 70_000


def test_an_abandoned_output_leaves_nothing(store: LocalStore) -> None:
    output = store.output("stage/part-1.csv")
    output.stream.write(b"x")
    output.abandon()
    assert (keys(store), list(store.unfinished(""))) == ([], [])


def test_a_move_can_be_made_again_and_one_without_a_source_is_an_error(store: LocalStore) -> None:
    store.create("stage/a", b"rows")
    for _ in range(2):
        store.move("stage/a", "table/deep/a")
    assert (store.read("table/deep/a"), store.read("stage/a")) == (b"rows", None)
    with pytest.raises(FileNotFoundError):
        store.move("stage/b", "table/b")


def test_removing_below_a_folder_takes_drafts_too_and_spares_its_neighbours(store: LocalStore) -> None:
    store.create("stage/one/a", b"")
    store.output("stage/one/b").stream.close()
    store.create("stage/one_more/a", b"")
    store.remove_below("stage/one/")
    assert keys(store) == ["stage/one_more/a"]
    assert list(store.unfinished("")) == []


def test_an_age_is_told_in_seconds(store: LocalStore) -> None:
    store.create("a", b"12345")
    (entry,) = store.listed("")
    assert entry.size == 5
    assert -1 < entry.age < 60
