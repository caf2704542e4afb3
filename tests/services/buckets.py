"""The buckets of every service by one name, for tests that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.services.azure import azure_fields
from tests.services.gcs import gcs_fields
from tests.services.s3 import s3_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.storage.object_store import BucketStore

TOGETHER = pytest.mark.xdist_group("clouds")
"""Azurite takes two seconds to start, so that one test process has all tests of it."""

CLOUDS = [pytest.param("gcs", marks=TOGETHER), pytest.param("azure", marks=TOGETHER)]
SERVICES = ["s3", *CLOUDS]
_FIELDS: dict[str, Callable[..., dict[str, Any]]] = {"s3": s3_fields, "gcs": gcs_fields, "azure": azure_fields}


def bucket_fields(request: pytest.FixtureRequest, service: str, **more: object) -> dict[str, Any]:
    """Return the settings of a connection to an empty bucket of a service."""
    server, bucket = (request.getfixturevalue(f"{service}_{what}") for what in ("server", "bucket"))
    return _FIELDS[service](server, bucket, **more)


def bucket_store(fields: dict[str, Any]) -> BucketStore[Any]:
    """Return the store that settings name."""
    from ematix_flow.connect.registry import target_of
    from ematix_flow.declare.connection.registry import connection_from_fields

    return target_of(connection_from_fields("lake", fields)).store  # type: ignore[attr-defined, no-any-return]
