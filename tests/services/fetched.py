"""Servers that come out of package repositories instead of the system's packages; fetched once, into the environment of the tests."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from ematix_flow.run.driver import spark_jars
from ematix_flow.run.ivy import Wanted, fetch
from ematix_flow.run.java import find_java

FOLDER = Path(sys.prefix) / "servers"

JAVA_SERVERS = {
    "Kafka": (Wanted("org.apache.kafka:kafka_2.13:4.3.1", alone=False), Wanted("org.slf4j:slf4j-simple:1.7.36")),
}
"""Server -> the packages with its jars; the versions are part of the file that remembers where the jars are."""


def java_files(server: str) -> list[str]:
    """Give the files of a Java server, or none where they are not fetched yet or not there any more."""
    note = _note(server)
    files = json.loads(note.read_text("utf-8")) if note.is_file() else []
    return files if all(Path(file).is_file() for file in files) else []


def fetch_java_server(server: str) -> None:
    """Fetch the files of a Java server; they stay with what Spark has fetched for this user."""
    java, jars = find_java(os.environ), spark_jars(os.environ)
    files: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for wanted in JAVA_SERVERS[server]:
            found = fetch(java, jars, {}, wanted, Path(folder))
            if not found:
                raise FileNotFoundError(f"{server}: the Java repositories have no {wanted.package}")
            files += found
    FOLDER.mkdir(parents=True, exist_ok=True)
    _note(server).write_text(json.dumps(files), "utf-8")


def _note(server: str) -> Path:
    version = JAVA_SERVERS[server][0].package.rpartition(":")[2]
    return FOLDER / f"{server.lower()}-{version}.json"
