"""Every TOML block of the documents means something: what it shows is read as the product reads it, and no key is unknown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.project_name import current_project
from ematix_flow.connect.config.sources import PROJECT_SOURCE, project_file
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.replication_toml import replication_from_toml
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.toml import parsed
from ematix_flow.engine.schedule.pools import pool_sizes
from ematix_flow.engine.spark.session import spark_settings
from ematix_flow.errors import DeclareError
from ematix_flow.run.spark.conf import session_conf
from tests.examples.test_documents import DOCUMENTS, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOML = [
    pytest.param(block.text, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(blocks(document))
    if block.language == "toml"
]
PROJECT_KEYS = {"module", "name"}
"""What `[project]` may say."""


def check(text: str) -> None:
    """Read a file as the product reads it; whatever it would refuse or not look at is an error."""
    document = parsed(text, "the document")
    if "pipeline_name" in document:
        stream_from_toml(text)
        return
    if "replicate" in document:
        replication_from_toml(text)
        return
    project_file().write_text(text, encoding="utf-8")
    for table, value in document.items():
        _check_table(table, value)


def _check_table(table: str, value: Any) -> None:
    match table:
        case "connections":
            for name in value:
                resolve_connection(name)
        case "spark":
            session_conf(spark_settings(), Path("folder"), {})
        case "project":
            assert value.keys() <= PROJECT_KEYS
            assert current_project().name == value["name"]
        case "pools":
            assert pool_sizes(PROJECT) == value
        case _:
            message = f"{PROJECT_SOURCE} has no table [{table}]"
            raise DeclareError(message)


@pytest.mark.parametrize("text", TOML)
def test_settings_of_documents_are_known(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{(?:env:)?(\w+)\}", text):
        monkeypatch.setenv(name, "eA==")
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        '[connections.a]\nkind = "duckdb"\npaths = "a.duckdb"',
        '[spark]\nmasters = "local"',
        '[spark.conf]\n"park.executor.memory" = "2g"',
        '[spark.conf]\n"spark.ssl.rpc.keyPassword" = "written down"',
        '[sparks]\nmaster = "local"',
        'pipeline_name = "a"\nsource_querry = "b"',
    ],
)
def test_settings_that_nobody_knows_are_noticed(text: str) -> None:
    with pytest.raises((DeclareError, TypeError)):
        check(text)


TLS = ("rpc", "standalone", "ui")
"""What Spark can encrypt, each with the same names behind it."""


@pytest.mark.spark
def test_settings_of_spark_in_documents_are_sparks(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    for home in ("internal.config.package$", "deploy.k8s.Config$"):
        java.java.lang.Class.forName(f"org.apache.spark.{home}")
    options = {one.getName() for one in java.java.lang.Class.forName("org.apache.spark.SSLOptions").getDeclaredFields()}
    known = {f"spark.ssl.{what}.{name}" for what in TLS for name in options}
    find = java.org.apache.spark.internal.config.ConfigEntry.findEntry
    shown = {key for block in TOML for key in parsed(str(block.values[0]), "").get("spark", {}).get("conf", {})}
    assert len(shown) > 20
    assert [key for key in sorted(shown) if key not in known and find(key) is None] == []
    assert find("spark.executor.memry") is None
