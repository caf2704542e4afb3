"""An S3 service for tests; every test has a bucket of its own, and its keys must never be seen in an output."""

from __future__ import annotations

import signal
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.services.programs import MissingServerError
from tests.services.server import DatabaseServer

KEY = "AKIACANARY5T7W"
SECRET = "canary-s3-8H3v+/q"
REGION = "eu-central-1"


class S3Server(DatabaseServer):
    """moto, behind a gate that knows one key."""

    name = "s3"
    account = "root"
    stop_signal = signal.SIGTERM

    @property
    def endpoint(self) -> str:
        """Return the address of the service."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, database: str = "") -> str:
        """Return the address of a bucket."""
        return f"{self.endpoint}/{database}"

    def client(self, service: str = "s3") -> Any:
        """Return a client that may do everything; the process has other services of AWS, too."""
        import boto3
        from botocore.config import Config

        config = Config(connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1})
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id=KEY,
                            aws_secret_access_key=SECRET, config=config)  # fmt: skip

    def execute(self, statement: str) -> None:
        """Make a bucket; any other word only asks whether the service answers."""
        from botocore.exceptions import BotoCoreError

        verb, _, bucket = statement.partition(" ")
        try:
            if verb == "bucket":
                self.client().create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
            else:
                self.client().list_buckets()
        except BotoCoreError as error:
            raise ConnectionError(str(error)) from error

    def create_database(self) -> str:
        """Make an empty bucket and return its name."""
        bucket = f"t-{uuid.uuid4().hex[:16]}"
        self.execute(f"bucket {bucket}")
        return bucket

    def drop_database(self, url: str) -> None:
        """Leave the bucket: the service keeps its buckets in memory."""

    def initialise(self) -> None:
        """Make sure that the service is installed."""
        if find_spec("moto") is None or find_spec("flask_cors") is None:
            raise MissingServerError("S3")
        self.data.mkdir()

    def command(self) -> list[str]:
        """Return the command line."""
        return [sys.executable, str(Path(__file__).with_name("s3_process.py")), str(self.port), KEY]


def s3_fields(server: S3Server, bucket: str, **more: object) -> dict[str, Any]:
    """Return the settings of a connection to a bucket."""
    fields = {
        "kind": "object_store_s3",
        "endpoint": server.endpoint,
        "bucket": bucket,
        "region": REGION,
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "format": "parquet",
    }
    return {**fields, **more}
