"""Loads whose tasks run on other machines: what only this machine has is refused while planning, and no Spark starts."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, ematix, pk  # noqa: TC001 - the table reads its annotations
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection
from ematix_flow.declare.pipeline.pipeline import Source
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.engine.review.preview import PreviewResult

MASTER = "spark://cluster:7077"


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    monkeypatch.setenv("EMATIX_FLOW_SPARK_MASTER", MASTER)
    with sqlite3.connect(tmp_path / "raw.db") as raw:
        raw.execute("CREATE TABLE numbers (id INTEGER PRIMARY KEY)")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one.csv").write_text("id\n1\n")


def _connect(name: str, kind: str, tmp_path: Path) -> None:
    path = {"sqlite": "raw.db", "duckdb": "raw.duckdb", "object_store_local": "files", "delta_local": "lake"}[kind]
    fields: dict[str, Any] = {"kind": kind, "path": str(tmp_path / path)}
    register_connection(connection_from_fields(name, fields | ({"format": "csv"} if "object" in kind else {})))


def _previewed(source: str, target: str, tmp_path: Path) -> PreviewResult:
    _connect("source", source, tmp_path)
    _connect("target", target, tmp_path)

    @ematix.table(schema="main", name="copied")
    class Copied:
        id: Annotated[BigInt, pk()]

    @ematix.pipeline(target=Copied, source_connection="source", target_connection="target", mode="append")
    def copy(_conn: object) -> Any:
        if source == "delta_local":
            return Source.delta("source", "main.numbers")
        return "one.csv" if source == "object_store_local" else "SELECT id FROM numbers"

    return preview_pipeline(copy.pipeline)


@pytest.mark.parametrize(
    ("source", "target", "path"),
    [
        ("sqlite", "duckdb", "raw.db"),
        ("object_store_local", "duckdb", "files"),
        ("object_store_local", "sqlite", "files"),
    ],
)
def test_a_source_that_only_the_driver_has_is_refused(source: str, target: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        _previewed(source, target, tmp_path)
    assert f"tasks run on {MASTER} and cannot read {tmp_path / path}, which only this machine has" in str(caught.value)
    assert 'engine = "local"' in str(caught.value)
    assert "shared_paths" in str(caught.value)


@pytest.mark.parametrize("target", ["object_store_local", "delta_local"])
def test_a_target_that_only_the_driver_has_is_refused(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_SPARK_SHARED_PATHS", str(tmp_path / "raw.db"))
    with pytest.raises(PlanError, match=r"cannot write to .*(files|lake), which only this machine has"):
        _previewed("sqlite", target, tmp_path)


@pytest.mark.parametrize(
    ("staging", "path"), [("", "through the results of tasks"), ("s3://between/here?region=x", "through a store")]
)
def test_folders_that_executors_see_too_are_read_and_rows_for_files_of_the_driver_are_carried(
    staging: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_SPARK_SHARED_PATHS", f"/nowhere,{tmp_path / 'files'}")
    monkeypatch.setenv("EMATIX_FLOW_SPARK_STAGING", staging)
    shown = _previewed("object_store_local", "duckdb", tmp_path).text()
    assert f"rows come here {path}: executors cannot write next to {tmp_path}/raw.duckdb.flow_stage" in shown


def test_this_machine_moves_what_only_it_has_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    assert "by this process" in _previewed("sqlite", "duckdb", tmp_path).text()


@pytest.mark.parametrize(
    ("variable", "value", "shown"),
    [
        ("EMATIX_FLOW_SPARK_REMOTE", "sc://localhost:15002/;token=CANARY", "tasks run on sc://localhost:15002 and"),
        ("EMATIX_FLOW_SPARK_MASTER", "yarn", "tasks run on yarn and"),
        ("EMATIX_FLOW_SPARK_MASTER", "k8s://https://h:6443", "tasks run on k8s://https://h:6443 and"),
    ],
)
def test_every_master_that_is_not_local_is_another_machine(
    variable: str, value: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EMATIX_FLOW_SPARK_MASTER")
    monkeypatch.setenv(variable, value)
    with pytest.raises(PlanError) as caught:
        _previewed("sqlite", "duckdb", tmp_path)
    assert shown in str(caught.value)
    assert "CANARY" not in str(caught.value)
