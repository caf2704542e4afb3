"""One record per kind of connection, and what is said when a kind cannot be imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from ematix_flow.connect.base.sink import Sink
from ematix_flow.connect.base.source import SourceSystem
from ematix_flow.connect.base.stream_source import StreamSource
from ematix_flow.connect.base.target import TargetSystem
from ematix_flow.connect.registry import SYSTEMS
from ematix_flow.declare.connection.registry import KINDS
from ematix_flow.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
ROLES = {"source": SourceSystem, "target": TargetSystem, "stream_source": StreamSource, "sink": Sink}
DECLARED_ONLY = {"bigquery", "glue_schema_registry", "redshift", "schema_registry", "snowflake"}
HEAVY = ("boto3", "confluent_kafka", "duckdb", "google.cloud", "pika", "psycopg", "pyarrow", "pyspark", "sqlglot")


def test_every_kind_that_can_be_declared_has_a_record_or_is_declared_only() -> None:
    assert {kind: record.connection for kind, record in SYSTEMS.items()} == {
        kind: connection for kind, connection in KINDS.items() if kind not in DECLARED_ONLY
    }


@pytest.mark.parametrize("kind", SYSTEMS)
def test_a_record_names_classes_that_have_its_roles(kind: str) -> None:
    record = SYSTEMS[kind]
    classes = {role: record.load(path) for role in ROLES if (path := getattr(record, role))}
    assert classes
    for role, systems in classes.items():
        assert issubclass(systems, ROLES[role])
    if "target" in classes:
        assert classes["target"].capabilities == record.capabilities


@pytest.mark.parametrize("kind", SYSTEMS)
def test_a_package_that_is_missing_is_installed_by_the_extra_of_the_kind(kind: str) -> None:
    record = replace(SYSTEMS[kind], source="not_installed.source:Source")
    with pytest.raises(MissingExtraError, match="'not_installed'") as caught:
        record.load(record.source)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert record.extra in {"", *project["optional-dependencies"]}
    name = project["name"] + (f"[{record.extra}]" if record.extra else "")
    assert caught.value.hint == f'pip install "{name}"'


@pytest.mark.slow
def test_the_records_are_known_without_any_system() -> None:
    code = f"import sys, ematix_flow.connect.registry; print([one for one in {HEAVY!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
