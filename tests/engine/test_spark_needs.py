"""What systems need of a Spark session adds up, and what the user says himself comes last."""

from __future__ import annotations

from ematix_flow.connect.lake_engine import SparkNeeds
from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.engine.spark import with_needs

ONE = SparkNeeds(("a:a:1",), (("spark.sql.extensions", "a.Extension"), ("spark.x", "1")))
OTHER = SparkNeeds(("b:b:1", "a:a:1"), (("spark.sql.extensions", "b.Extension"),))


def test_needs_of_several_systems_add_up_in_any_order() -> None:
    settings = with_needs(SparkSettings(), [ONE, OTHER, ONE])
    assert settings.packages == ("a:a:1", "b:b:1")
    assert settings.conf == {"spark.sql.extensions": "a.Extension,b.Extension", "spark.x": "1"}


def test_what_the_user_says_comes_last() -> None:
    given = SparkSettings(packages=("c:c:1",), conf={"spark.x": "2", "spark.sql.extensions": "c.Extension"})
    settings = with_needs(given, [ONE])
    assert settings.packages == ("a:a:1", "c:c:1")
    assert settings.conf == {"spark.sql.extensions": "a.Extension,c.Extension", "spark.x": "2"}


def test_without_needs_the_settings_stay_as_they_are() -> None:
    assert with_needs(SparkSettings(), []) == SparkSettings()


def test_what_packages_need_not_have_adds_up_too() -> None:
    needs = [SparkNeeds(("a:a:1",), excludes=("x:y",)) + SparkNeeds(("b:b:1",)), SparkNeeds(excludes=("x:y", "z:*"))]
    settings = with_needs(SparkSettings(excludes=("mine:*",)), needs)
    assert (settings.packages, settings.excludes) == (("a:a:1", "b:b:1"), ("x:y", "z:*", "mine:*"))
