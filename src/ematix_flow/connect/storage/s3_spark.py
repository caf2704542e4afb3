"""What Spark has to know to read and write a bucket through Hadoop's client; no request is sent here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.storage.s3.client import keys_of

if TYPE_CHECKING:
    from ematix_flow.connect.storage.s3.client import S3Location

SDK = "2.29.52"
"""The AWS SDK that this version of Hadoop was made with."""

REQUIREMENTS = SparkRequirements(
    # Java opens a bucket once, with the keys it has then: those of one command are not for the next one.
    own=True,
    packages=(
        "org.apache.hadoop:hadoop-aws:3.4.2",
        f"software.amazon.awssdk:s3-transfer-manager:{SDK}",
        f"software.amazon.awssdk:sts:{SDK}",
    ),
    # The bundle holds every service of Amazon in 616 MB; the rest is in Spark already, or for what is not used here.
    excludes=(
        "software.amazon.awssdk:bundle",
        "software.amazon.s3.analyticsaccelerator:*",
        "org.wildfly.openssl:*",
        "org.apache.httpcomponents:*",
        "io.netty:*",
        "org.slf4j:*",
        "commons-codec:*",
        "commons-logging:*",
    ),
)


def bucket_settings(location: S3Location) -> dict[str, str]:
    """Return Hadoop's settings for a bucket, secrets among them; they are set on a running session only."""
    settings = {
        "endpoint": location.endpoint,
        "endpoint.region": location.region,
        "path.style.access": str(location.path_style).lower(),
        "connection.ssl.enabled": str(not location.endpoint.startswith("http://")).lower(),
        "create.conditional.enabled": "true",
        **_credentials(location),
    }
    return {f"fs.s3a.bucket.{location.bucket}.{name}": value for name, value in settings.items() if value}


def _credentials(location: S3Location) -> dict[str, str]:
    if not location.access_key_id and not location.profile:
        # Java looks for them itself, on every machine that has tasks, and renews what ends.
        return {"aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"}
    keys = keys_of(location)
    return {
        "access.key": keys.access_key_id,
        "secret.key": keys.secret_access_key,
        "session.token": keys.session_token,
        "auth.profile.name": location.profile,
        "aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{'Temporary' if keys.session_token else 'Simple'}"
        "AWSCredentialsProvider",
    }
