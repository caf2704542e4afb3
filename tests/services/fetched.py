"""Servers that come out of package repositories instead of the system's packages; fetched once, into the environment of the tests."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from ematix_flow.run.spark.java import find_java
from ematix_flow.run.spark.java_process import spark_jars
from ematix_flow.run.spark.packages.ivy import PackageRequest, fetch

FOLDER = Path(sys.prefix).resolve() / "servers"

JAVA_SERVERS = {
    "Kafka": (
        PackageRequest("org.apache.kafka:kafka_2.13:4.3.1", alone=False),
        PackageRequest("org.slf4j:slf4j-simple:1.7.36"),
    ),
    "Apicurio": (PackageRequest("io.apicurio:apicurio-registry-app:3.0.9", classifier="all", ending="tar.gz"),),
    "Debezium": (
        PackageRequest("io.debezium:debezium-connector-postgres:3.4.0.Final", alone=False),
        PackageRequest("org.apache.kafka:connect-runtime:4.3.1", alone=False),
        PackageRequest("org.slf4j:slf4j-simple:1.7.36"),
    ),
}
"""Server -> the packages with its files; the first one's version is part of the file that remembers where they are."""


def java_files(server: str) -> list[str]:
    """Return the files of a Java server, or none where they are not fetched yet or not there any more."""
    note = _note(server)
    files = json.loads(note.read_text("utf-8")) if note.is_file() else []
    return files if all(Path(file).is_file() for file in files) else []


def fetch_java_servers() -> None:
    """Fetch the Java servers that are not there, one after the other: they share what they have fetched."""
    for server in [server for server in JAVA_SERVERS if not java_files(server)]:
        print(f"services: fetching {server}", file=sys.stderr)  # noqa: T201 - for the person who waits
        _fetch(server)


def _fetch(server: str) -> None:
    """Fetch the files of a Java server; they stay with what Spark has fetched for this user."""
    java, jars = find_java(os.environ), spark_jars(os.environ)
    files: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for jar in JAVA_SERVERS[server]:
            jar_files = fetch(java, jars, {}, jar, Path(folder))
            if not jar_files:
                raise FileNotFoundError(f"{server}: the Java repositories have no {jar.package}")
            files += jar_files
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = [part for file in files for part in _unpacked(file, _note(server).with_suffix(""))]
    _note(server).write_text(json.dumps(files), "utf-8")


def _unpacked(file: str, folder: Path) -> list[str]:
    """Return the jars that an archive has in its top folder, unpacked; any other file stays as it is."""
    if not file.endswith(".tar.gz"):
        return [file]
    with tarfile.open(file) as archive:
        archive.extractall(folder, filter="data")
    return sorted(map(str, folder.glob("*.jar")))


def prepared_folder(server: str, name: str) -> Path:
    """Return the folder that this version of a server has for something that takes long to make."""
    return _note(server).with_suffix(f".{name}")


def _note(server: str) -> Path:
    version = JAVA_SERVERS[server][0].package.rpartition(":")[2]
    return FOLDER / f"{server.lower()}-{version}.json"
