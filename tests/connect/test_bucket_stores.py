"""What buckets of every service promise: one winner per key, answers that may get lost, objects that are seen whole."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.retry import BUCKET_REQUEST
from ematix_flow.connect.storage import object_io as bucket_streams
from ematix_flow.connect.storage import object_store as bucket
from ematix_flow.connect.storage import requests as bucket_requests
from ematix_flow.connect.storage.base import StoreError, StoreUnavailableError, parse_staged_path
from tests.services.azure import sas_token
from tests.services.buckets import SERVICES, bucket_fields, bucket_store
from tests.services.http_faults import FaultyProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.storage.object_store import BucketStore

pytestmark = [pytest.mark.service, pytest.mark.parametrize("service", SERVICES)]

ATTEMPTS = BUCKET_REQUEST.attempts or 0
SMALLEST_PART = 5 << 20
"""What S3 takes as a part that is not the last one."""

WRITES = {"s3": "PUT", "gcs": "POST", "azure": "PUT"}
"""The method that puts an object."""


@pytest.fixture
def store(request: pytest.FixtureRequest, service: str) -> BucketStore[Any]:
    return bucket_store(bucket_fields(request, service, prefix="lake"))


@pytest.fixture
def proxy(request: pytest.FixtureRequest, service: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(request.getfixturevalue(f"{service}_server").port)
    yield proxy
    proxy.close()


@pytest.fixture
def behind(store: BucketStore[Any], proxy: FaultyProxy) -> BucketStore[Any]:
    """Return the same store behind the proxy."""
    field = "service" if hasattr(store.location, "account") else "endpoint"
    there = store.location.endpoint.replace(f":{proxy.upstream}", f":{proxy.server_port}")
    return type(store)(replace(store.location, **{field: there}))


@pytest.fixture
def shaky(behind: BucketStore[Any], no_waits: None, monkeypatch: pytest.MonkeyPatch) -> BucketStore[Any]:
    """Return the store behind the proxy, impatient and already known to keep conditions."""
    monkeypatch.setattr(bucket_requests, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(bucket, "_trusted", {(os.getpid(), behind.location)})
    return behind


def test_of_many_writers_of_one_key_one_wins(store: BucketStore[Any]) -> None:
    with ThreadPoolExecutor(32) as pool:
        won = list(pool.map(lambda n: store.create("commits/1", f"writer {n}".encode()), range(32)))
    assert won.count(True) == 1
    assert store.read("commits/1") == f"writer {won.index(True)}".encode()


def test_a_key_that_is_taken_is_not_replaced(store: BucketStore[Any]) -> None:
    assert store.create("k", b"first")
    assert not store.create("k", b"second")
    assert not store.create("k", b"first"), "equal bytes are no proof without a lost answer"
    assert store.read("k") == b"first"
    large = bytes(9 << 20)
    assert [store.create("large", large), store.create("large", large + b"x")] == [True, False]
    assert store.read("large") == large


@pytest.mark.parametrize("fault", ["lost", "unanswered", "silent", "busy", "broken"])
def test_a_writer_whose_answer_was_lost_knows_that_it_won(
    shaky: BucketStore[Any], proxy: FaultyProxy, fault: str, service: str
) -> None:
    proxy.faults.append((WRITES[service], fault))
    assert shaky.create("k", b"mine")
    assert shaky.read("k") == b"mine"
    assert not proxy.faults


@pytest.mark.parametrize("fault", ["lost", "unanswered", "silent", "busy"])
def test_a_writer_whose_answer_was_lost_knows_that_it_did_not_win(
    store: BucketStore[Any], shaky: BucketStore[Any], proxy: FaultyProxy, fault: str, service: str
) -> None:
    store.create("k", b"theirs")
    proxy.faults.append((WRITES[service], fault))
    assert not shaky.create("k", b"mine")
    assert store.read("k") == b"theirs"


def test_an_outcome_that_cannot_be_known_is_said_to_be_unknown(
    shaky: BucketStore[Any], proxy: FaultyProxy, service: str
) -> None:
    proxy.faults.extend([(WRITES[service], "lost")] * ATTEMPTS)
    with pytest.raises(StoreUnavailableError, match="unknown"):
        shaky.create("k", b"mine")
    assert proxy.methods.count(WRITES[service]) == ATTEMPTS


def test_all_answers_lost_and_yet_written(shaky: BucketStore[Any], proxy: FaultyProxy, service: str) -> None:
    write = WRITES[service]
    proxy.faults.extend([(write, "unanswered"), *[(write, "lost")] * (ATTEMPTS - 1)])
    assert shaky.create("k", b"mine")


def test_requests_are_repeated_a_few_times_and_not_for_ever(shaky: BucketStore[Any], proxy: FaultyProxy) -> None:
    shaky.put("k", b"x")
    # Two at a time: on a busy machine an answer that comes too late is one more.
    for faults in (("busy", "broken"), ("lost", "silent")):
        proxy.faults.extend(("GET", fault) for fault in faults)
        assert shaky.read("k") == b"x"
    proxy.faults.extend([("GET", "busy"), ("GET", "lost")])
    assert [entry.key for entry in shaky.listed("")] == ["k"]
    proxy.faults.extend([("GET", "busy")] * ATTEMPTS)
    with pytest.raises(StoreUnavailableError, match=r"503|SlowDown"):
        shaky.read("k")


def test_a_service_that_ignores_conditions_is_no_target(
    behind: BucketStore[Any], proxy: FaultyProxy, service: str
) -> None:
    if service == "azure":  # a key signs the condition, a token does not
        behind = type(behind)(replace(behind.location, account_key="", sas_token=sas_token()))
    proxy.faults.extend([(WRITES[service], "ignored")] * 2)
    with pytest.raises(StoreError, match="it can be a source, but no target"):
        behind.create("k", b"x")


def test_a_service_is_asked_once_whether_it_keeps_conditions(
    behind: BucketStore[Any], proxy: FaultyProxy, service: str
) -> None:
    assert [behind.create(f"k{n}", b"x") for n in range(3)] == [True] * 3
    assert proxy.methods.count(WRITES[service]) == 4


def test_what_is_not_there(store: BucketStore[Any]) -> None:
    assert (store.read("no"), store.size("no"), list(store.listed("no/"))) == (None, None, [])
    store.delete("no")
    with pytest.raises(FileNotFoundError):
        store.reader("no")
    with pytest.raises(FileNotFoundError):
        store.move("no", "neither")


def test_listing_goes_on_after_a_page(store: BucketStore[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "PAGE", 20)
    for number in range(53):
        store.put(f"many/{number:05d}", b"x")
    store.put("many-others", b"x")
    entries = list(store.listed("many/"))
    assert [one.key for one in entries] == [f"many/{n:05d}" for n in range(53)]
    assert {one.size for one in entries} == {1}
    assert all(-5 < one.age < 300 for one in entries)
    assert store.folders() == {"many"}


def test_a_version_is_the_same_however_it_is_asked_for_and_changes_with_the_content(store: BucketStore[Any]) -> None:
    store.put("k", b"one")
    one, (listed,) = store.find("k"), store.listed("")
    assert one is not None
    assert (one.key, one.size, one.version) == (listed.key, listed.size, listed.version)
    store.put("k", b"two")
    assert [entry.version for entry in store.listed("")] != [listed.version]


def test_names_with_signs_of_their_own_are_kept(store: BucketStore[Any]) -> None:
    name = "in/ä ö%20+&=?#/a b.csv"
    store.put(f"stage/{name}", b"x")
    store.move(f"stage/{name}", name)
    assert [entry.key for entry in store.listed("")] == [name]
    with store.reader(name) as reader:
        assert reader.read() == b"x"
    store.delete(name)
    assert list(store.listed("")) == []


def test_every_key_is_listed_but_for_those_that_stand_for_folders(store: BucketStore[Any]) -> None:
    for key in ("in/", "in//a.csv", "in/b.csv"):
        store.put(key, b"x")
    assert [entry.key for entry in store.listed("in/")] == ["in//a.csv", "in/b.csv"]
    assert store.read("in//a.csv") == b"x"


def test_a_copy_that_fails_is_not_taken_for_one_that_somebody_else_made(
    store: BucketStore[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise bucket_requests.MissingObjectError("no such key")

    store.put("stage/a", b"rows")
    monkeypatch.setattr(type(store), "copy", refused)
    with pytest.raises(StoreError, match="no such key"):
        store.move("stage/a", "table/a")
    assert store.read("stage/a") == b"rows"


def test_a_large_object_is_written_in_parts_from_a_small_buffer(
    store: BucketStore[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_streams, "PART", SMALLEST_PART)
    data = os.urandom(2 * SMALLEST_PART + 17)
    output = store.output("stage/part.bin")
    for start in range(0, len(data), 1 << 20):
        output.stream.write(data[start : start + (1 << 20)])
        assert len(output.stream._buffer) <= SMALLEST_PART  # type: ignore[attr-defined]
    assert store.size("stage/part.bin") is None
    assert list(store.listed("")) == []
    key, size = parse_staged_path(output.finish())
    assert (store.size(key), size) == (len(data), len(data))
    for _ in range(2):
        store.move(key, "table/final.bin")
    assert store.size(key) is None
    with store.reader("table/final.bin") as reader:
        reader.seek(-40, os.SEEK_END)
        assert reader.read(100) == data[-40:]
        reader.seek(0)
        assert reader.read() == data


ENDS = {"s3": "POST", "gcs": "PUT", "azure": "PUT"}
"""The method of the request that ends an upload."""


@pytest.mark.parametrize("fault", ["lost", "unanswered"])
def test_lost_answers_to_the_parts_and_to_the_end_of_an_upload(
    shaky: BucketStore[Any], proxy: FaultyProxy, service: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_streams, "PART", SMALLEST_PART)
    monkeypatch.setattr(bucket_requests, "ANSWER_SECONDS", 10.0)
    data = os.urandom(2 * SMALLEST_PART + 1)
    output = shaky.output("stage/part.bin")
    proxy.faults.append(("PUT", fault))
    output.stream.write(data[: SMALLEST_PART + 1])
    output.stream.write(data[SMALLEST_PART + 1 :])
    assert not proxy.faults
    proxy.faults.append((ENDS[service], fault))
    assert parse_staged_path(output.finish()) == ("stage/part.bin", len(data))
    assert not proxy.faults
    assert shaky.read("stage/part.bin") == data


def test_an_abandoned_upload_leaves_nothing(store: BucketStore[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_streams, "PART", SMALLEST_PART)
    outputs = [store.output(f"stage/{name}.bin") for name in ("one", "two", "three")]
    for output in outputs:
        output.stream.write(bytes(SMALLEST_PART + 1))
    outputs[0].abandon()
    store.put("stage/kept.bin", b"x")
    store.remove_below("stage/")
    assert list(store.listed("stage/")) == []


def test_a_file_that_is_replaced_or_removed_while_it_is_read(store: BucketStore[Any]) -> None:
    store.put("k", bytes(1 << 20))
    with store.reader("k") as reader:
        reader.read(10)
        store.put("k", b"other")
        with pytest.raises(StoreUnavailableError, match="replaced while it was read"):
            reader.read()
        store.delete("k")
        with pytest.raises((FileNotFoundError, StoreUnavailableError)):
            reader.read()


def test_a_store_travels_to_another_process(store: BucketStore[Any]) -> None:
    store.put("k", b"x")
    there = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    assert (there, there.read("k")) == (store, b"x")
    assert there.at("").read("lake/k") == b"x"


def test_a_forked_process_sends_requests_of_its_own(store: BucketStore[Any]) -> None:
    store.put("k", b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, for a fork beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if store.read("k") == b"x" else 1)
    assert os.waitpid(child, 0)[1] == 0
