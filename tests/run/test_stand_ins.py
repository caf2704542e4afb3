from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ematix_flow.run.spark.java import find_java
from ematix_flow.run.spark.packages.substitutes import SUBSTITUTES, with_substitutes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

PACKAGE, KNOWN = next(iter(SUBSTITUTES.items()))
SETTINGS = """<ivysettings>
  <settings defaultResolver="here"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="file:{root}/"/></resolvers>
</ivysettings>
"""
POM = """<project><modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></project>
"""


def configuration_with(folder: Path, *versions: str) -> dict[str, str]:
    """Return a configuration whose only repository has these versions of the part."""
    group, _, name = KNOWN.artifact.partition(":")
    for version in versions:
        folder_of_version = folder / "root" / group.replace(".", "/") / name / version
        folder_of_version.mkdir(parents=True)
        (folder_of_version / f"{name}-{version}.jar").write_bytes(b"a jar")
        (folder_of_version / f"{name}-{version}.pom").write_text(POM.format(group=group, name=name, version=version))
    settings = folder / "settings.xml"
    settings.write_text(SETTINGS.format(cache=folder / "cache", root=folder / "root"))
    return {
        "spark.jars.packages": f"a:b:1,{PACKAGE}:4.1.3",
        "spark.jars.ivySettings": str(settings),
        "spark.jars": "/mine.jar",
        "spark.jars.excludes": "x:y",
    }


def test_a_part_that_the_repositories_lack_has_a_stand_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = configuration_with(tmp_path, KNOWN.instead)
    changed = with_substitutes(conf, find_java(os.environ), tmp_path)
    mine, jar = changed["spark.jars"].split(",")
    assert (mine, changed["spark.jars.excludes"]) == ("/mine.jar", f"x:y,{KNOWN.artifact}")
    assert jar.endswith(f"-{KNOWN.instead}.jar")
    assert changed["spark.jars.packages"] == conf["spark.jars.packages"]
    (warning,) = capsys.readouterr().err.splitlines()
    assert f"lack {KNOWN.artifact}:4.1.3; {KNOWN.instead} is used instead" in warning


@pytest.mark.parametrize("versions", [("4.1.3", "4.0.0"), ()], ids=["complete", "nothing"])
def test_packages_stay_as_they_are_where_the_part_is_there_or_nothing_is(
    tmp_path: Path, versions: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    conf = configuration_with(tmp_path, *versions)
    assert with_substitutes(conf, find_java(os.environ), tmp_path) == conf
    assert capsys.readouterr().err == ""


def test_nobody_looks_for_what_the_user_has_arranged(tmp_path: Path) -> None:
    conf = {"spark.jars.packages": f"{PACKAGE}:4.1.3", "spark.jars.excludes": KNOWN.artifact}
    assert with_substitutes(conf, find_java({"JAVA_HOME": "", "PATH": os.environ["PATH"]}), tmp_path) == conf
    assert list(tmp_path.iterdir()) == []
