"""Objects in a bucket of an S3 service; which tables they are part of is not known here."""

from __future__ import annotations

from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect import bucket
from ematix_flow.connect.bucket import BucketStore
from ematix_flow.connect.bucket_requests import PROBE_ATTEMPTS, PROBE_SECONDS, MissingObjectError
from ematix_flow.connect.bucket_streams import PART, Upload
from ematix_flow.connect.s3_client import S3Place, asked, client_of, once
from ematix_flow.connect.store import Found, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

COPIED_WHOLE = 1 << 30
"""Bytes up to which an object is copied by one request; the service allows five times as much, but says nothing meanwhile."""

COPY_PART = 256 << 20
MOST_PARTS = 10_000


class S3Store(BucketStore[S3Place]):
    """The objects below a prefix of a bucket."""

    def path(self, key: str) -> str:
        """Give the address that Hadoop's client takes."""
        return f"s3a://{self.place.bucket}/{self.whole(key)}"

    def probe(self) -> str:
        """Say that the bucket answers; nobody waits longer than a few seconds."""
        client = client_of(self.place, PROBE_SECONDS)
        arguments = {"Bucket": self.place.bucket, "Prefix": self.place.prefix, "MaxKeys": 1}
        asked(self.place, "list", lambda: client.list_objects_v2(**arguments), attempts=PROBE_ATTEMPTS)
        return f"bucket {self.place.bucket} at {self.place.endpoint or 'Amazon S3'}"

    def now(self) -> datetime:
        """Ask for one key, and take the time of the answer."""
        arguments = {"Bucket": self.place.bucket, "Prefix": self.place.prefix, "MaxKeys": 1}
        return _now(asked(self.place, "list", lambda: client_of(self.place).list_objects_v2(**arguments)))

    # Reading

    def read(self, key: str) -> bytes | None:
        """Get an object."""
        try:
            return asked(self.place, "read", lambda: cast("bytes", self._call("get_object", key)["Body"].read()))
        except MissingObjectError:
            return None

    def find(self, key: str) -> Found | None:
        """Give what the service says about an object, or None when there is none."""
        try:
            head = self.ask("read", "head_object", key)
        except MissingObjectError:
            return None
        return Found(key, int(head["ContentLength"]), _age(head, head["LastModified"]), str(head["ETag"]))

    def range(self, key: str, first: int, last: int, version: str) -> bytes:
        """Give the bytes from the first to the last of one version of an object."""
        wanted = {"Range": f"bytes={first}-{last}", "IfMatch": version}
        try:
            return asked(
                self.place, "read", lambda: cast("bytes", self._call("get_object", key, **wanted)["Body"].read())
            )
        except MissingObjectError:
            raise FileNotFoundError(f"there is no object {self.address(key)} any more") from None

    def listed(self, prefix: str) -> Iterator[Found]:
        """List page by page; ages are by the clock of the service."""
        for page in self.pages(prefix):
            for entry in page.get("Contents", ()):
                if not entry["Key"].endswith("/"):
                    age = _age(page, entry["LastModified"])
                    yield Found(self.own(entry["Key"]), int(entry["Size"]), age, str(entry["ETag"]))

    def pages(self, prefix: str, delimiter: str = "") -> Iterator[dict[str, Any]]:
        """Give the answers to a listing; with a delimiter, keys are cut at the first one after the prefix."""
        arguments = {
            "Bucket": self.place.bucket,
            "Prefix": self.whole(prefix),
            "Delimiter": delimiter,
            "MaxKeys": bucket.PAGE,
        }
        while True:
            page = asked(self.place, "list", lambda: client_of(self.place).list_objects_v2(**arguments))
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def folders(self) -> set[str]:
        """Ask for the keys, cut at the first slash."""
        found = (entry["Prefix"] for page in self.pages("", "/") for entry in page.get("CommonPrefixes", ()))
        return {self.own(prefix).strip("/") for prefix in found}

    # Writing

    def put(self, key: str, data: bytes) -> None:
        """Put an object."""
        self.ask("write", "put_object", key, Body=data)

    def put_new(self, key: str, data: bytes) -> None:
        """Put an object that must not be there."""
        once(self.place, "write", lambda: self._call("put_object", key, Body=data, IfNoneMatch="*"))

    def delete(self, key: str) -> None:
        """Delete an object."""
        with suppress(MissingObjectError):
            self.ask("delete", "delete_object", key)

    def remove_below(self, prefix: str) -> None:
        """Delete the objects, and abort the uploads that nobody will finish."""
        for found in list(self.listed(prefix)):
            self.delete(found.key)
        for upload, found in self._uploads(prefix):
            S3Upload(self, found.key, upload).abort()

    def unfinished(self, prefix: str) -> Iterator[Found]:
        """Give the uploads that were begun and neither finished nor aborted; their sizes are not known."""
        return (found for _, found in self._uploads(prefix))

    def _uploads(self, prefix: str) -> list[tuple[str, Found]]:
        arguments = {"Bucket": self.place.bucket, "Prefix": self.whole(prefix)}
        try:
            page = asked(self.place, "list", lambda: client_of(self.place).list_multipart_uploads(**arguments))
        except StoreUnavailableError:
            raise
        except StoreError:
            return []  # not every service, and not everybody, may list uploads
        return [
            (entry["UploadId"], Found(self.own(entry["Key"]), 0, _age(page, entry["Initiated"])))
            for entry in page.get("Uploads", ())
        ]

    def copy(self, staged: Found, final: str) -> None:
        """Copy by one request, or a large object part by part."""
        # As a table, since the client quotes a text once more.
        source = {"Bucket": self.place.bucket, "Key": self.whole(staged.key)}
        if staged.size <= COPIED_WHOLE:
            self.ask("write", "copy_object", final, CopySource=source)
            return
        upload = self.upload(final)
        step = max(COPY_PART, -(-staged.size // MOST_PARTS))
        try:
            for start in range(0, staged.size, step):
                upload.send_copy(source, start, min(start + step, staged.size) - 1)
            upload.complete()
        except BaseException:
            with suppress(StoreError):
                upload.abort()
            raise

    def upload(self, key: str) -> S3Upload:
        """Begin an upload in parts."""
        return S3Upload(self, key, str(self.ask("write", "create_multipart_upload", key)["UploadId"]))

    def ask(self, what: str, operation: str, key: str, **arguments: Any) -> Any:
        """Give what the service answers about an object."""
        return asked(self.place, what, lambda: self._call(operation, key, **arguments))

    def _call(self, operation: str, key: str, **arguments: Any) -> Any:
        return getattr(client_of(self.place), operation)(Bucket=self.place.bucket, Key=self.whole(key), **arguments)


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
            message = f"a file of more than {MOST_PARTS * PART} bytes cannot be written to {self._store.shown}"
            raise StoreError(message)
        self._tags.append(str(self._ask("upload_part", PartNumber=len(self._tags) + 1, Body=part)["ETag"]))
        self._sent += len(part)

    def send_copy(self, source: dict[str, str], first: int, last: int) -> None:
        """Let the service take a part from another object."""
        which = f"bytes={first}-{last}"
        number = len(self._tags) + 1
        answer = self._ask("upload_part_copy", CopySource=source, CopySourceRange=which, PartNumber=number)
        self._tags.append(str(answer["CopyPartResult"]["ETag"]))
        self._sent += last - first + 1

    def finish(self, part: bytes) -> None:
        """Send the last part and complete the upload."""
        self.send(part)
        self.complete()

    def complete(self) -> None:
        """Make an object of the parts."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(self._tags, 1)]
        try:
            self._ask("complete_multipart_upload", MultipartUpload={"Parts": parts})
        except MissingObjectError:
            # The answer to an earlier attempt was lost: the upload is gone because it is complete.
            if self._store.size(self._key) != self._sent:
                raise

    def abort(self) -> None:
        """Forget the parts."""
        with suppress(MissingObjectError):
            self._store.ask("delete", "abort_multipart_upload", self._key, UploadId=self._upload)

    def _ask(self, operation: str, **arguments: Any) -> Any:
        return self._store.ask("write", operation, self._key, UploadId=self._upload, **arguments)


def _age(answer: dict[str, Any], since: datetime) -> float:
    """Give the seconds between an instant and an answer, both by the clock of the service."""
    return (_now(answer) - since).total_seconds()


def _now(answer: dict[str, Any]) -> datetime:
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
