"""The location of a lake: a folder or a bucket, with what Spark needs to get there; its tables are not known here."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.connect.storage.s3.client import location_of
from ematix_flow.connect.storage.s3.store import S3Store
from ematix_flow.connect.storage.s3_spark import REQUIREMENTS, bucket_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.connect.storage.s3.client import BucketConnection, S3Location


@dataclass(frozen=True, slots=True)
class LakeLocation:
    """A location that our store and Spark both reach."""

    store: Store
    written: str
    """The location as the user wrote it."""
    bucket: S3Location | None = field(default=None)

    @property
    def spark_requirements(self) -> SparkRequirements:
        """Return what a session needs from its start."""
        return SparkRequirements() if self.bucket is None else REQUIREMENTS

    @property
    def task_imports(self) -> tuple[str, ...]:
        """Return the modules that tasks load when they stage here."""
        return () if self.bucket is None else ("ematix_flow.connect.staging.files", "boto3")

    def identity(self) -> tuple[str, ...]:
        """Return what two names of the same location have in common."""
        return (os.path.realpath(self.store.display_address),) if self.bucket is None else self.bucket.identity()

    def info(self) -> Mapping[str, object]:
        """Return the location under `dbname`."""
        if self.bucket is None:
            return {"host": None, "port": None, "dbname": self.written, "user": None}
        return self.bucket.info()

    def prepare(self, engine: LakeEngine) -> None:
        """Make the location known to the engine."""
        if self.bucket is not None:
            engine.bucket(self.bucket.bucket, bucket_settings(self.bucket))


def in_folder(path: str) -> LakeLocation:
    """Return a folder of this machine, as a path or a URL."""
    parts = urlsplit(path)
    folder = parts.path if parts.scheme == "file" else path
    return LakeLocation(LocalStore(str(Path(folder).absolute())), path)


def in_bucket(connection: BucketConnection) -> LakeLocation:
    """Return the bucket and the prefix that a connection names."""
    bucket = location_of(connection)
    return LakeLocation(S3Store(bucket), bucket.display_address, bucket)


def at_address(connection: BucketConnection, address: str) -> LakeLocation:
    """Return the bucket and the prefix of an address; the connection has the way to it."""
    parts = urlsplit(address)
    return in_bucket(replace(connection, bucket=parts.netloc, prefix=parts.path))
