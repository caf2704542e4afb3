"""What the documented streams run on: topics and buckets with the names they say, and a way to stop them as their users do."""

from __future__ import annotations

import ast
import json
import os
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.registry import clear_registry
from ematix_flow.declare.project import PROJECT
from tests.examples.conftest import README
from tests.services.s3 import KEY, SECRET
from tests.services.topics import fill, payloads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.examples.databases import UserDatabase
    from tests.services.kafka import KafkaBroker
    from tests.services.s3 import S3Server

DOCUMENT = README / "streams.py"
TENTHS = 1200
"""Tenths of a second after which a stream is stopped that brought nothing."""


@dataclass(frozen=True)
class World:
    """The services that the documents speak of."""

    broker: KafkaBroker
    warehouse: UserDatabase
    s3: S3Server | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that the documents read."""
        return {
            "KAFKA_BOOTSTRAP": self.broker.address,
            "WAREHOUSE_DSN": self.warehouse.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def with_services(self, text: str) -> str:
        """Return a document with the services of the test where it writes out a host."""
        hosts = {
            "localhost:9092": "${KAFKA_BOOTSTRAP}",
            "postgres://localhost/mydb": "${WAREHOUSE_DSN}",
            "postgres://localhost/wh": "${WAREHOUSE_DSN}",
        }
        if self.s3 is not None:
            hosts["https://s3.amazonaws.com"] = self.s3.endpoint
        for host, mine in hosts.items():
            text = text.replace(host, mine)
        return text

    def send(self, topic: str, *messages: Mapping[str, Any] | str) -> None:
        """Send messages to a topic; an object is sent as JSON, a text as it is."""
        texts = (message if isinstance(message, str) else json.dumps(message) for message in messages)
        fill(self.broker.address, topic, (text.encode() for text in texts))

    def received(self, topic: str) -> list[str]:
        """Return the payloads that readers of a topic see."""
        return [payload.decode() for payload in payloads_of(self.broker.address, topic)]

    def objects(self, bucket: str, prefix: str) -> dict[str, bytes]:
        """Return the objects of a folder of a bucket, by key."""
        assert self.s3 is not None
        client = self.s3.client()
        listing = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
        return {one["Key"]: client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in listing}

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until something is done."""
        pause = threading.Event()
        for _ in range(TENTHS):
            if done():
                return
            pause.wait(0.1)
        raise AssertionError("it is not done, and two minutes are over")

    def declare(self) -> dict[str, Any]:
        """Declare the documented streams without running any and return the document's names."""
        return self._done(only(DOCUMENT.read_text("utf-8"), ""))

    def run(self, name: str, done: Callable[[], bool]) -> dict[str, Any]:
        """Run a documented stream as it stands, stop it when that is done, and return its module's names."""
        with Stopped(done):
            return self._done(only(DOCUMENT.read_text("utf-8"), name))

    def _done(self, text: str) -> dict[str, Any]:
        PROJECT.clear()
        clear_registry()
        names: dict[str, Any] = {"__name__": "documented"}
        exec(compile(self.with_services(text), str(DOCUMENT), "exec"), names)  # noqa: S102 - the documented example itself
        return names


def only(text: str, name: str) -> str:
    """Return a document without the streams that it runs, but for one; every line stays at its number."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            declared_name = {one.arg: one.value for one in node.value.keywords}.get("name")
            if not (isinstance(declared_name, ast.Constant) and declared_name.value == name):
                lines[node.lineno - 1 : node.end_lineno] = [""] * (1 + (node.end_lineno or 0) - node.lineno)
    return "\n".join(lines)


class Stopped:
    """A block in which a stream runs until something is done; then this process gets SIGTERM, as a service gets it."""

    def __init__(self, done: Callable[[], bool]) -> None:
        self._done = done
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        # A stream that hears the signal too late must not end the tests.
        self._before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        signal.signal(signal.SIGTERM, self._before)

    def _watch(self) -> None:
        for _ in range(TENTHS):
            if self._over.wait(0.1):
                return
            if self._done():
                break
        os.kill(os.getpid(), signal.SIGTERM)
