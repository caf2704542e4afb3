"""Chooses where lineage goes by a URL; one that is not usable is reported, and then there is none."""

from __future__ import annotations

import warnings
from urllib.parse import unquote, urlsplit

from ematix_flow.connect.config.secrets import expand
from ematix_flow.errors import DeclareError, FlowError, did_you_mean
from ematix_flow.observe.lineage.openlineage import Lineage, to_file, to_service, to_stderr

FORMS = ("openlineage+https://host/path", "openlineage+file:///path.ndjson", "openlineage+stdout://")
PATH = "/api/v1/lineage"
"""Where services of OpenLineage listen, unless the URL says something else."""


def from_url(url: str) -> Lineage | None:
    """Return the lineage of a URL; a bad one is a warning and None."""
    try:
        return lineage_of(url)
    except FlowError as error:
        warnings.warn(f"there is no lineage of this run: {error}", UserWarning, stacklevel=2)
        return None


def lineage_of(url: str) -> Lineage:
    """Return the lineage of a URL, or raise what is wrong with it."""
    try:
        parts = urlsplit(expand(url).removeprefix("openlineage+"))
    except ValueError:
        parts = urlsplit("")
    match parts.scheme if url.startswith("openlineage+") else "":
        case "stdout":
            return Lineage(to_stderr)
        case "file" if parts.path:
            return Lineage(to_file(unquote(parts.path)))
        case "https" | "http" if parts.hostname:
            full = parts if parts.path.strip("/") else parts._replace(path=PATH)
            return Lineage(to_service(full.geturl()))
    scheme = url.partition("://")[0]
    raise DeclareError(f"lineage cannot go to {scheme!r}", hint=did_you_mean(scheme, FORMS))
