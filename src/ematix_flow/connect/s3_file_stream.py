"""Objects in a bucket as a source of streams, like the files of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.file_stream import FileStream
from ematix_flow.connect.s3_files import S3Files

if TYPE_CHECKING:
    from ematix_flow.connect.files import Files


class S3FileStream(FileStream):
    """The objects that a path or a pattern means."""

    kind: ClassVar[str] = "object_store_s3"
    system: ClassVar[type[Files]] = S3Files
