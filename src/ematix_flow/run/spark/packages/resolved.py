"""Remembers which jars a list of Java packages led to, so that only the first run queries repositories.

Downloads nothing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ematix_flow.run.spark.worker_daemon import has_modules

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUEST_KEYS = ("spark.jars.packages", "spark.jars.excludes", "spark.jars.repositories", "spark.jars")

_MODULES = "spark.submit.pyFiles"
"""Archives that are put on the module path of Python."""


def with_known_jars(conf: Mapping[str, str], cache: Path | None) -> dict[str, str]:
    """Return the configuration with jars in place of packages, where an earlier run found them and they are still there."""
    file = _memory(conf, cache)
    if file is None or not file.is_file():
        return dict(conf)
    try:
        jars = json.loads(file.read_text("utf-8"))
    except ValueError:
        return dict(conf)
    if not isinstance(jars, list) or not all(isinstance(jar, str) and Path(jar).is_file() for jar in jars):
        return dict(conf)
    others = {key: value for key, value in conf.items() if key not in _REQUEST_KEYS}
    # Spark does so with packages that it resolves itself, but with all of them.
    modules = [jar for jar in jars if has_modules(jar)]
    python = {_MODULES: ",".join(filter(None, [conf.get(_MODULES, ""), *modules]))} if modules else {}
    return others | {"spark.jars": ",".join(jars)} | python


def remember_jars(conf: Mapping[str, str], resolved: str, cache: Path | None) -> None:
    """Note the jars that Spark resolved the packages of this configuration to."""
    file = _memory(conf, cache)
    jars = [unquote(urlsplit(jar).path) for jar in resolved.split(",") if jar]
    if file is None or not all(Path(jar).is_file() for jar in jars):
        return
    draft = file.with_suffix(f".{id(file)}.draft")
    draft.write_text(json.dumps(jars), "utf-8")
    draft.replace(file)


def _memory(conf: Mapping[str, str], cache: Path | None) -> Path | None:
    """Return the file for this request; None for versions that move, such as snapshots, and where there is no cache."""
    packages = conf.get("spark.jars.packages", "")
    if cache is None or not packages or "SNAPSHOT" in packages or "latest." in packages:
        return None
    request_key = json.dumps([conf.get(key, "") for key in _REQUEST_KEYS])
    return cache / f"jars-{hashlib.sha256(request_key.encode()).hexdigest()[:24]}.json"
