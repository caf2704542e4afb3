"""Substitutes another version for a part that the repositories lack, where that is known to work."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.run.spark.java_process import spark_jars
from ematix_flow.run.spark.packages.ivy import PackageRequest, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ematix_flow.run.spark.java import Java


@dataclass(frozen=True, slots=True)
class Substitute:
    """A part of a package, which has the package's version, and the older version that does the same."""

    artifact: str
    instead: str


SUBSTITUTES = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": Substitute(
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13", "4.0.0"
    ),
}
"""Package -> the part of it that some repositories do not carry for every version."""


def with_substitutes(conf: Mapping[str, str], java: Java, folder: Path) -> dict[str, str]:
    """Return the configuration with a substitute for each part of its packages that cannot be fetched."""
    changed = dict(conf)
    for package in conf.get("spark.jars.packages", "").split(","):
        name, _, version = package.strip().rpartition(":")
        known = SUBSTITUTES.get(name)
        if known is not None and known.artifact not in conf.get("spark.jars.excludes", ""):
            changed |= _replaced(changed, known, version, java, folder)
    return changed


def _replaced(conf: Mapping[str, str], known: Substitute, version: str, java: Java, folder: Path) -> dict[str, str]:
    """Return what changes: nothing where the part is there, and nothing where its substitute is missing as well."""
    jars = spark_jars(os.environ)
    if fetch(java, jars, conf, PackageRequest(f"{known.artifact}:{version}"), folder):
        return {}
    substitute_jars = fetch(java, jars, conf, PackageRequest(f"{known.artifact}:{known.instead}"), folder)
    if not substitute_jars:
        return {}
    print(  # noqa: T201 - for the person who waits
        f"java packages: the repositories lack {known.artifact}:{version}; {known.instead} is used instead",
        file=sys.stderr,
    )
    added = {"spark.jars.excludes": (known.artifact,), "spark.jars": substitute_jars}
    return {key: ",".join(filter(None, (conf.get(key, ""), *values))) for key, values in added.items()}
