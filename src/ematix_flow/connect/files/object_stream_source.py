"""Objects in buckets as sources of streams, like the files of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.files.azure import AzureFiles
from ematix_flow.connect.files.gcs import GcsFiles
from ematix_flow.connect.files.s3 import S3Files
from ematix_flow.connect.files.stream_source import FileStream

if TYPE_CHECKING:
    from ematix_flow.connect.files.source import Files


class S3FileStream(FileStream):
    """The objects of a bucket of S3 that a path or a pattern means."""

    kind: ClassVar[str] = "object_store_s3"
    system: ClassVar[type[Files]] = S3Files


class GcsFileStream(FileStream):
    """The objects of a bucket of Google that a path or a pattern means."""

    kind: ClassVar[str] = "object_store_gcs"
    system: ClassVar[type[Files]] = GcsFiles


class AzureFileStream(FileStream):
    """The blobs of a container of Azure that a path or a pattern means."""

    kind: ClassVar[str] = "object_store_azure"
    system: ClassVar[type[Files]] = AzureFiles
