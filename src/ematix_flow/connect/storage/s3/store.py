"""Objects in a bucket of an S3 service; which tables they are part of is not known here."""

from __future__ import annotations

from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.storage.base import ObjectInfo, StoreError, StoreUnavailableError
from ematix_flow.connect.storage.object_io import PART, Upload
from ematix_flow.connect.storage.object_store import BucketStore, Page
from ematix_flow.connect.storage.requests import MissingObjectError
from ematix_flow.connect.storage.s3 import client as s3_client
from ematix_flow.connect.storage.s3.client import S3Location

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

COPIED_WHOLE = 1 << 30
"""Bytes up to which an object is copied by one request.

The service allows five times as much, but is silent meanwhile.
"""

COPY_PART = 256 << 20
MOST_PARTS = 10_000


class S3Store(BucketStore[S3Location]):
    """The objects below a prefix of a bucket."""

    connect = staticmethod(s3_client.connect)
    error_of = staticmethod(s3_client.error_of)

    def path(self, key: str) -> str:
        """Return the address that Hadoop's client takes."""
        return f"s3a://{self.location.bucket}/{self.whole(key)}"

    def _get(self, key: str) -> bytes:
        return cast("bytes", self.call("get_object", key)["Body"].read())

    def _head(self, key: str) -> ObjectInfo:
        head = self.call("head_object", key)
        age = (_now(head) - head["LastModified"]).total_seconds()
        return ObjectInfo(key, int(head["ContentLength"]), age, str(head["ETag"]))

    def _range(self, key: str, first: int, last: int, version: str) -> bytes:
        response = self.call("get_object", key, Range=f"bytes={first}-{last}", IfMatch=version)
        return cast("bytes", response["Body"].read())

    def _page(self, client: Any, prefix: str, token: Any, size: int, *, cut: bool) -> Page:
        more = {"Delimiter": "/"} if cut else {}
        more |= {"ContinuationToken": token} if token else {}
        page = client.list_objects_v2(Bucket=self.location.bucket, Prefix=prefix, MaxKeys=size, **more)
        now = _now(page)
        objects = [
            ObjectInfo(
                self.own(entry["Key"]), int(entry["Size"]), (now - entry["LastModified"]).total_seconds(), entry["ETag"]
            )
            for entry in page.get("Contents", ())
        ]
        folders = [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
        return Page(now, objects, folders, page.get("NextContinuationToken"))

    def _put(self, key: str, data: bytes, *, new: bool) -> None:
        self.call("put_object", key, Body=data, **({"IfNoneMatch": "*"} if new else {}))

    def _delete(self, key: str) -> None:
        self.call("delete_object", key)

    def remove_below(self, prefix: str) -> None:
        """Delete the objects, and abort the uploads that no writer will finish."""
        super().remove_below(prefix)
        for upload, info in self._uploads(prefix):
            S3Upload(self, info.key, upload).abort()

    def unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """Return the uploads that were begun and neither finished nor aborted; their sizes are not known."""
        return (info for _, info in self._uploads(prefix))

    def _uploads(self, prefix: str) -> list[tuple[str, ObjectInfo]]:
        arguments = {"Bucket": self.location.bucket, "Prefix": self.whole(prefix)}
        try:
            page = self.request("list", lambda: self.client().list_multipart_uploads(**arguments))
        except StoreUnavailableError:
            raise
        except StoreError:
            return []  # not every service, and not every user, may list uploads
        now = _now(page)
        return [
            (entry["UploadId"], ObjectInfo(self.own(entry["Key"]), 0, (now - entry["Initiated"]).total_seconds()))
            for entry in page.get("Uploads", ())
        ]

    def copy(self, staged: ObjectInfo, final: str) -> None:
        """Copy by one request, or let the client copy a large object part by part."""
        # As a table, since the client quotes a text once more.
        source = {"Bucket": self.location.bucket, "Key": self.whole(staged.key)}
        if staged.size <= COPIED_WHOLE:
            self.request("write", lambda: self.call("copy_object", final, CopySource=source))
            return
        from boto3.s3.transfer import TransferConfig

        parts = TransferConfig(multipart_threshold=1, multipart_chunksize=COPY_PART, use_threads=False)
        self.request("write", lambda: self.client().copy(source, self.location.bucket, self.whole(final), Config=parts))

    def upload(self, key: str) -> S3Upload:
        """Begin an upload in parts."""
        begun = self.request("write", lambda: self.call("create_multipart_upload", key))
        return S3Upload(self, key, str(begun["UploadId"]))

    def call(self, operation: str, key: str, **arguments: Any) -> Any:
        """Return the response to one request about an object."""
        return getattr(self.client(), operation)(Bucket=self.location.bucket, Key=self.whole(key), **arguments)


class S3Upload(Upload):
    """A multipart upload of the service."""

    def __init__(self, store: S3Store, key: str, upload: str) -> None:
        self._store = store
        self._key = key
        self._upload = upload
        self._tags: list[str] = []
        self._sent = 0

    def send(self, part: bytes) -> None:
        """Send a part and keep its tag."""
        if len(self._tags) == MOST_PARTS:
            message = (
                f"a file of more than {MOST_PARTS * PART} bytes cannot be written to {self._store.display_address}"
            )
            raise StoreError(message)
        self._tags.append(str(self._request("upload_part", PartNumber=len(self._tags) + 1, Body=part)["ETag"]))
        self._sent += len(part)

    def finish(self, part: bytes) -> None:
        """Send the last part and make an object of all of them."""
        self.send(part)
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(self._tags, 1)]
        try:
            self._request("complete_multipart_upload", MultipartUpload={"Parts": parts})
        except MissingObjectError:
            # The answer to an earlier attempt was lost: the upload is gone because it is complete.
            if self._store.size(self._key) != self._sent:
                raise

    def abort(self) -> None:
        """Forget the parts."""
        with suppress(MissingObjectError):
            self._request("abort_multipart_upload", "delete")

    def _request(self, name: str, operation: str = "write", **arguments: Any) -> Any:
        call = self._store.call
        return self._store.request(operation, lambda: call(name, self._key, UploadId=self._upload, **arguments))


def _now(response: dict[str, Any]) -> datetime:
    return parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
