"""The run logs of every kind of place by one name, for tests that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from ematix_flow.run_log import from_url
from tests.services.buckets import TOGETHER, bucket_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ematix_flow.run_log import RunLog

FILES = ["sqlite", pytest.param("duckdb", marks=pytest.mark.slow), "folder"]
SERVERS = [pytest.param(name, marks=pytest.mark.service) for name in ("postgres", "mysql")]
BUCKETS = [
    pytest.param("s3", marks=pytest.mark.service),
    *(pytest.param(name, marks=[pytest.mark.service, TOGETHER]) for name in ("gcs", "azure")),
]
OPTIONS = {
    "s3": ("region", "endpoint", "access_key_id", "secret_access_key"),
    "gcs": ("endpoint", "anonymous"),
    "azure": ("endpoint", "account_key"),
}


def bucket_url(request: pytest.FixtureRequest, service: str) -> str:
    """Return the address of a run log in an empty bucket of a service."""
    fields = bucket_fields(request, service)
    bucket_name = fields.get("bucket") or f"{fields['account']}/{fields['container']}"
    scheme = {"gcs": "gs"}.get(service, service)
    options = urlencode(
        {name: str(fields[name]).lower() if fields[name] is True else fields[name] for name in OPTIONS[service]}
    )
    return f"{scheme}://{bucket_name}/logs/run?{options}"


@pytest.fixture
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Return the address of an empty run log of a kind."""

    def url(kind: str) -> str:
        match kind:
            case "sqlite":
                return f"sqlite://{tmp_path}/log.db"
            case "duckdb":
                return f"duckdb://{tmp_path}/log.duckdb"
            case "folder":
                return f"file://{tmp_path}/log/"
            case "memory":
                return "memory://"
            case "postgres" | "mysql":
                return str(request.getfixturevalue(f"{kind}_url"))
        return bucket_url(request, kind)

    return url


@pytest.fixture(params=[*FILES, "memory", *SERVERS, *BUCKETS])
def log(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[RunLog]:
    """Return an empty run log of every kind."""
    run_log = from_url(url_of(request.param))
    yield run_log
    run_log.close()


@pytest.fixture(params=[*FILES, *SERVERS, *BUCKETS])
def twice(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> Iterator[tuple[RunLog, RunLog]]:
    """Return the same empty run log two times, as two processes have it."""
    url = url_of(request.param)
    logs = from_url(url), from_url(url)
    yield logs
    for one in logs:
        one.close()
