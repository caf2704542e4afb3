"""Fetches single packages from Java repositories with the Ivy that Spark brings; the caller decides which."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.run.spark.java import Java

_HOME = "${user.home}/.ivy2.5.2"
"""Where Spark stores what it has fetched, as Java spells it."""

_SETTINGS = """<ivysettings>
  <settings defaultResolver="all"/>
  <caches defaultCacheDir={cache}/>
  <resolvers><chain name="all">
    <ibiblio name="home" m2compatible="true" usepoms="{poms}" root="file:${{user.home}}/.m2/repository/"/>
    <ibiblio name="central" m2compatible="true" usepoms="{poms}"/>
    {others}
  </chain></resolvers>
</ivysettings>
"""
_MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="ematix-flow" module="wanted"/>
  <dependencies><dependency org={group} name={name} rev={version} conf="default->{part}">{artifact}</dependency></dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class PackageRequest:
    """One package of a repository, as `group:artifact:version`."""

    package: str
    alone: bool = True
    """Without the dependencies of the package."""
    classifier: str = ""
    """What distinguishes an archive of the package from its jar."""
    ending: str = "jar"


def fetch(
    java: Java, jars: Sequence[str], conf: Mapping[str, str], request: PackageRequest, folder: Path
) -> tuple[str, ...]:
    """Return the files of a package, fetched if need be, or nothing where the repositories lack it; `jars` are Spark's own."""
    answer = folder / "ivy.path"
    answer.unlink(missing_ok=True)
    settings = conf.get("spark.jars.ivySettings") or _write_file(folder / "ivysettings.xml", _settings(conf, request))
    module = _write_file(folder / "ivy.xml", _module(request))
    ivy = next(jar for jar in jars if Path(jar).name.startswith("ivy-"))
    options = ["-settings", settings, "-ivy", module, "-cachepath", str(answer), "-error"]
    command = [java.command, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", ivy, *options]
    code = subprocess.run(command, check=False, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True).returncode
    if code != 0 or not answer.is_file():
        return ()
    return tuple(path for path in answer.read_text("utf-8").strip().split(os.pathsep) if path)


def _write_file(file: Path, text: str) -> str:
    file.write_text(text, "utf-8")
    return str(file)


def _settings(conf: Mapping[str, str], request: PackageRequest) -> str:
    """Return the repositories that Spark would query, too; an archive is taken as it is, without its dependencies."""
    poms = "false" if request.classifier else "true"
    repositories = [
        repository.strip() for repository in conf.get("spark.jars.repositories", "").split(",") if repository.strip()
    ]
    others = "".join(
        f'<ibiblio name="repository-{number}" m2compatible="true" usepoms="{poms}" root={quoteattr(repository)}/>'
        for number, repository in enumerate(repositories)
    )
    cache = quoteattr(f"{conf.get('spark.jars.ivy', _HOME)}/cache")
    return _SETTINGS.format(cache=cache, poms=poms, others=others)


def _module(request: PackageRequest) -> str:
    group, name, version = request.package.split(":")
    artifact = ""
    if request.classifier:
        ending = quoteattr(request.ending)
        classifier = quoteattr(request.classifier)
        artifact = f"<artifact name={quoteattr(name)} type={ending} ext={ending} m:classifier={classifier}/>"
    return _MODULE.format(
        group=quoteattr(group),
        name=quoteattr(name),
        version=quoteattr(version),
        part="master" if request.alone and not request.classifier else "default",
        artifact=artifact,
    )
