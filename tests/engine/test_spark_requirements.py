"""What systems need of a Spark session adds up, and what the user says himself comes last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import pytest

from ematix_flow import ematix, pk
from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.delta.table import Delta
from ematix_flow.declare.connection.databases import DeltaLocalConnection
from ematix_flow.declare.connection.files import ObjectStoreLocalConnection
from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.engine.batch.target import expect_lakes, expect_work
from ematix_flow.engine.spark.session import session_settings, with_requirements
from ematix_flow.types import BigInt

if TYPE_CHECKING:
    from pathlib import Path

ONE = SparkRequirements(("a:a:1",), (("spark.sql.extensions", "a.Extension"), ("spark.x", "1")))
OTHER = SparkRequirements(("b:b:1", "a:a:1"), (("spark.sql.extensions", "b.Extension"),))


def test_needs_of_several_systems_add_up_in_any_order() -> None:
    settings = with_requirements(SparkSettings(), [ONE, OTHER, ONE])
    assert settings.packages == ("a:a:1", "b:b:1")
    assert settings.conf == {"spark.sql.extensions": "a.Extension,b.Extension", "spark.x": "1"}


def test_what_the_user_says_comes_last() -> None:
    given = SparkSettings(packages=("c:c:1",), conf={"spark.x": "2", "spark.sql.extensions": "c.Extension"})
    settings = with_requirements(given, [ONE])
    assert settings.packages == ("a:a:1", "c:c:1")
    assert settings.conf == {"spark.sql.extensions": "a.Extension,c.Extension", "spark.x": "2"}


def test_without_needs_the_settings_stay_as_they_are() -> None:
    assert with_requirements(SparkSettings(), []) == SparkSettings()


def test_what_packages_need_not_have_adds_up_too() -> None:
    requirements = [
        SparkRequirements(("a:a:1",), excludes=("x:y",)) + SparkRequirements(("b:b:1",)),
        SparkRequirements(excludes=("x:y", "z:*")),
    ]
    settings = with_requirements(SparkSettings(excludes=("mine:*",)), requirements)
    assert (settings.packages, settings.excludes) == (("a:a:1", "b:b:1"), ("x:y", "z:*", "mine:*"))


def test_work_on_a_large_table_is_no_reason_to_replace_a_session_that_runs() -> None:
    light, heavy = (
        with_requirements(SparkSettings(), [ONE]),
        with_requirements(SparkSettings(), [ONE, replace(ONE, heavy=True)]),
    )
    assert light == heavy
    assert not light.runs_long
    assert heavy.runs_long
    assert not with_requirements(SparkSettings(profile="short"), [replace(ONE, heavy=True)]).runs_long
    assert with_requirements(SparkSettings(profile="long"), [ONE]).runs_long
    assert (ONE + replace(OTHER, heavy=True)).heavy


@pytest.mark.parametrize(("mode", "size", "heavy"), [("merge", 200, True), ("merge", 1, False), ("append", 200, False)])
def test_a_session_is_made_for_long_work_where_a_load_rewrites_a_large_table(
    tmp_path: Path, mode: str, size: int, heavy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ematix_flow.engine.spark.session._REQUIREMENTS", [])
    monkeypatch.setattr("ematix_flow.engine.batch.target.session_runs", lambda: False)  # other tests may have one
    folder = tmp_path / "lake" / "public" / "events"
    folder.mkdir(parents=True)
    for name in ("a.parquet", "b.parquet"):
        with (folder / name).open("wb") as file:
            file.truncate(size << 19)

    @ematix.table(schema="public")
    class Events:
        id: Annotated[BigInt, pk()]

    def rows(files: str) -> str:
        return "."

    landing = ObjectStoreLocalConnection("landing", path=str(tmp_path), format="parquet")
    lake = DeltaLocalConnection("lake", path=str(tmp_path / "lake"))
    declared = ematix.pipeline(target=Events, source_connection=landing, target_connection=lake, mode=mode)(rows)
    assert expect_lakes(declared.pipeline) is (mode == "merge")  # an append may do without Spark
    assert session_settings().heavy is heavy


def test_a_table_is_not_looked_at_while_a_session_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Delta(DeltaLocalConnection("lake", path=str(tmp_path)), ("s", "t"))
    columns = (Column(BigInt(), primary_key=True, name="id"),)
    target = TargetDeclaration(Table("s", "t", columns), write(mode="merge"), None)
    inspections: list[int] = []
    monkeypatch.setattr(Delta, "is_large", lambda _: inspections.append(1))
    for runs in (True, False):
        monkeypatch.setattr("ematix_flow.engine.batch.target.session_runs", lambda runs=runs: runs)
        expect_work(table, target)
    assert len(inspections) == 1


@pytest.mark.slow
def test_a_table_of_many_small_files_is_large_and_one_that_is_not_there_is_not(tmp_path: Path) -> None:
    table = Delta(DeltaLocalConnection("lake", path=str(tmp_path)), ("s", "t"))
    assert not table.is_large()
    (tmp_path / "s" / "t").mkdir(parents=True)
    for number in range(10_000):
        (tmp_path / "s" / "t" / f"{number}.parquet").touch()
    assert table.is_large()
