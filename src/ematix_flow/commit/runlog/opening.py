"""Chooses the run log by URL or path; a run log that cannot be written never stops a load."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import warnings
from pathlib import Path

from ematix_flow.commit.runlog.sqlite import SqliteRunLog
from ematix_flow.errors import DeclareError

DEFAULT = "~/.ematix-flow/run_log.db"


def open_run_log(url: str | None = None, path: str | None = None) -> SqliteRunLog:
    """Give the run log of a URL, a path, the environment or the default file, in this order."""
    place = (
        url
        or path
        or os.environ.get("EMATIX_FLOW_RUN_LOG_URL")
        or os.environ.get("EMATIX_FLOW_RUN_LOG_PATH")
        or DEFAULT
    )
    try:
        return SqliteRunLog(_file(place))
    except (OSError, sqlite3.Error) as error:
        text = f"the run log {place} cannot be written ({error}); this run is not remembered and cannot be resumed"
        warnings.warn(text, UserWarning, stacklevel=2)
        return forgotten_run_log()


def forgotten_run_log() -> SqliteRunLog:
    """Give a run log that ends with this process."""
    folder = tempfile.mkdtemp(prefix="ematix-flow-runlog-")
    return SqliteRunLog(Path(folder) / "run_log.db")


def _file(place: str) -> Path:
    scheme, separator, rest = place.partition("://")
    if not separator:
        return Path(place)
    if scheme == "memory":
        return Path(tempfile.mkdtemp(prefix="ematix-flow-runlog-")) / "run_log.db"
    if scheme in ("sqlite", "file"):
        return Path(rest)
    message = f"a run log cannot live in {scheme!r} yet"
    raise DeclareError(message, hint="use a path, sqlite://relative, sqlite:///absolute or memory://.")
