from __future__ import annotations

import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect import s3_client, s3_streams, store_s3
from ematix_flow.connect.s3_client import S3Place
from ematix_flow.connect.store import StoreError, StoreUnavailableError, told_parts
from ematix_flow.connect.store_s3 import S3Store
from ematix_flow.errors import MissingExtraError
from tests.services.http_faults import FaultyProxy
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.s3 import S3Server

pytestmark = pytest.mark.service

SMALLEST_PART = 5 << 20
"""What the service takes as a part that is not the last one."""


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str) -> S3Store:
    return S3Store(S3Place(s3_bucket, "lake/", s3_server.endpoint, REGION, True, "", KEY, SECRET))


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(s3_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def shaky(store: S3Store, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """Give the same store behind the proxy, already known to keep conditions."""
    monkeypatch.setattr(s3_client, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(s3_client, "ANSWER_SECONDS", 0.5)
    place = replace(store.place, endpoint=proxy.endpoint)
    monkeypatch.setattr(store_s3, "_trusted", {(os.getpid(), place)})
    return S3Store(place)


def test_of_many_writers_of_one_key_one_wins(store: S3Store) -> None:
    with ThreadPoolExecutor(32) as pool:
        won = list(pool.map(lambda n: store.create("commits/1", f"writer {n}".encode()), range(32)))
    assert won.count(True) == 1
    assert store.read("commits/1") == f"writer {won.index(True)}".encode()


def test_a_key_that_is_taken_is_not_replaced(store: S3Store) -> None:
    assert store.create("k", b"first")
    assert not store.create("k", b"second")
    assert not store.create("k", b"first"), "equal bytes are no proof without a lost answer"
    assert store.read("k") == b"first"


@pytest.mark.parametrize("fault", ["lost", "unanswered", "silent", "busy", "broken", "raced"])
def test_a_writer_whose_answer_was_lost_knows_that_it_won(shaky: S3Store, proxy: FaultyProxy, fault: str) -> None:
    proxy.faults.append(("PUT", fault))
    assert shaky.create("k", b"mine")
    assert shaky.read("k") == b"mine"
    assert not proxy.faults


@pytest.mark.parametrize("fault", ["lost", "unanswered", "silent", "busy"])
def test_a_writer_whose_answer_was_lost_knows_that_it_did_not_win(
    store: S3Store, shaky: S3Store, proxy: FaultyProxy, fault: str
) -> None:
    store.create("k", b"theirs")
    proxy.faults.append(("PUT", fault))
    assert not shaky.create("k", b"mine")
    assert store.read("k") == b"theirs"


def test_an_outcome_that_cannot_be_known_is_said_to_be_unknown(shaky: S3Store, proxy: FaultyProxy) -> None:
    proxy.faults.extend([("PUT", "lost")] * s3_client.ATTEMPTS)
    with pytest.raises(StoreUnavailableError, match="unknown"):
        shaky.create("k", b"mine")
    assert proxy.seen.count("PUT") == s3_client.ATTEMPTS


def test_all_answers_lost_and_yet_written(shaky: S3Store, proxy: FaultyProxy) -> None:
    proxy.faults.extend([("PUT", "unanswered"), *[("PUT", "lost")] * (s3_client.ATTEMPTS - 1)])
    assert shaky.create("k", b"mine")


def test_requests_are_repeated_a_few_times_and_not_for_ever(shaky: S3Store, proxy: FaultyProxy) -> None:
    shaky.put("k", b"x")
    proxy.faults.extend([("GET", "busy"), ("GET", "broken"), ("GET", "lost"), ("GET", "silent")])
    assert shaky.read("k") == b"x"
    proxy.faults.extend([("GET", "busy")] * s3_client.ATTEMPTS)
    with pytest.raises(StoreUnavailableError, match="SlowDown"):
        shaky.read("k")


def test_a_service_that_ignores_conditions_is_no_target(store: S3Store, proxy: FaultyProxy) -> None:
    careless = S3Store(replace(store.place, endpoint=proxy.endpoint))
    proxy.faults.extend([("PUT", "ignored")] * 2)
    with pytest.raises(StoreError, match="it can be a source, but no target"):
        careless.create("k", b"x")


def test_a_service_is_asked_once_whether_it_keeps_conditions(store: S3Store, proxy: FaultyProxy) -> None:
    careful = S3Store(replace(store.place, endpoint=proxy.endpoint))
    assert [careful.create(f"k{n}", b"x") for n in range(3)] == [True] * 3
    assert proxy.seen.count("PUT") == 4


def test_what_is_not_there(store: S3Store) -> None:
    assert (store.read("no"), store.size("no"), list(store.listed("no/"))) == (None, None, [])
    store.delete("no")
    with pytest.raises(FileNotFoundError):
        store.reader("no")
    with pytest.raises(FileNotFoundError):
        store.move("no", "neither")


def test_listing_goes_on_after_a_page(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_s3, "PAGE", 20)
    for number in range(53):
        store.put(f"many/{number:05d}", b"x")
    store.put("many-others", b"x")
    found = list(store.listed("many/"))
    assert [one.key for one in found] == [f"many/{n:05d}" for n in range(53)]
    assert {one.size for one in found} == {1}
    assert all(-5 < one.age < 300 for one in found)


def test_a_large_object_is_written_in_parts_from_a_small_buffer(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_streams, "PART", SMALLEST_PART)
    data = os.urandom(2 * SMALLEST_PART + 17)
    output = store.output("stage/part.bin")
    for start in range(0, len(data), 1 << 20):
        output.stream.write(data[start : start + (1 << 20)])
        assert len(output.stream._buffer) <= SMALLEST_PART  # type: ignore[attr-defined]
    assert store.size("stage/part.bin") is None
    key, size = told_parts(output.keep())
    assert (store.size(key), size) == (len(data), len(data))
    monkeypatch.setattr(store_s3, "COPIED_WHOLE", 1)
    monkeypatch.setattr(store_s3, "COPY_PART", SMALLEST_PART)
    store.move(key, "table/final.bin")
    store.move(key, "table/final.bin")
    assert store.size(key) is None
    with store.reader("table/final.bin") as reader:
        reader.seek(-40, os.SEEK_END)
        assert reader.read(100) == data[-40:]
        reader.seek(0)
        assert reader.read() == data


def test_the_lost_answer_to_the_end_of_an_upload(
    shaky: S3Store, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_streams, "PART", SMALLEST_PART)
    monkeypatch.setattr(s3_client, "ANSWER_SECONDS", 10.0)
    output = shaky.output("stage/part.bin")
    output.stream.write(os.urandom(SMALLEST_PART + 1))
    proxy.faults.append(("POST", "unanswered"))
    assert told_parts(output.keep()) == ("stage/part.bin", SMALLEST_PART + 1)


def test_an_abandoned_upload_leaves_nothing(
    store: S3Store, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_streams, "PART", SMALLEST_PART)
    outputs = [store.output(f"stage/{name}.bin") for name in ("one", "two", "three")]
    for output in outputs:
        output.stream.write(bytes(SMALLEST_PART + 1))
    outputs[0].abandon()
    store.put("stage/kept.bin", b"x")
    store.remove_below("stage/")
    client = s3_server.client()
    assert list(store.listed("stage/")) == []
    assert client.list_multipart_uploads(Bucket=store.place.bucket).get("Uploads", []) == []


def test_a_file_that_is_replaced_while_it_is_read(store: S3Store) -> None:
    store.put("k", bytes(1 << 20))
    with store.reader("k") as reader:
        reader.read(10)
        store.put("k", b"other")
        with pytest.raises(StoreUnavailableError, match="replaced while it was read"):
            reader.read()


def test_a_store_travels_to_another_process_and_shows_no_key(store: S3Store) -> None:
    store.put("k", b"x")
    there = pickle.loads(pickle.dumps(store))  # noqa: S301 - our own bytes
    assert there.read("k") == b"x"
    wrong = S3Store(replace(store.place, access_key_id="AKIAWRONG", secret_access_key="canary-wrong"))
    with pytest.raises(StoreError) as refused:
        wrong.probe()
    said = [repr(store), str(store), repr(store.place), store.shown, store.probe(), str(refused.value)]
    assert not [text for text in said for secret in (KEY, SECRET, "canary-wrong", "AKIAWRONG") if secret in text]


def test_refusals_say_what_is_wrong(store: S3Store) -> None:
    expected = {
        "bucket 'no-such-bucket' does not exist": {"bucket": "no-such-bucket"},
        "may not list there": {"bucket": "forbidden-bucket"},
        "does not know the access_key_id": {"access_key_id": "AKIAWRONG"},
        "cannot be reached": {"endpoint": "http://127.0.0.1:9"},
        "no credentials were found": {"access_key_id": ""},
        "profile (nobody) could not be found": {"profile": "nobody", "access_key_id": ""},
    }
    for said, change in expected.items():
        with pytest.raises(StoreError) as refused:
            S3Store(replace(store.place, **change)).probe()  # type: ignore[arg-type]
        assert said in str(refused.value)


@pytest.mark.parametrize("ask", ["probe", "read"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("boto3", "botocore", "botocore.exceptions", "botocore.config"):
        monkeypatch.setitem(sys.modules, name, None)
    s3_client._client.cache_clear()
    store = S3Store(S3Place("bucket"))
    with pytest.raises(MissingExtraError, match=r'pip install "ematix-flow-spark\[s3\]"'):
        store.probe() if ask == "probe" else store.read("k")
