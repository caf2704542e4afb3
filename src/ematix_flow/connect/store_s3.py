"""Objects in a bucket of an S3 service, with the promises of a store; which tables they are part of is not known here."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import quote

from ematix_flow.connect.s3_client import (
    ATTEMPTS,
    PROBE_SECONDS,
    ConflictError,
    MissingObjectError,
    PreconditionError,
    asked,
    client_of,
    once,
    pause,
)
from ematix_flow.connect.s3_streams import S3Output, S3Reader
from ematix_flow.connect.store import Found, Store, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ematix_flow.connect.s3_client import S3Place
    from ematix_flow.connect.store import Output

PAGE = 1000
"""Keys of one answer to a listing."""

COPIED_WHOLE = 1 << 30
"""Bytes up to which an object is copied by one request; the service allows five times as much, but says nothing meanwhile."""

COPY_PART = 256 << 20
MOST_PARTS = 10_000

_trusted: set[tuple[int, S3Place]] = set()
"""Services that have refused to replace an object when they were asked to, by process."""


@dataclass(frozen=True, slots=True)
class S3Store(Store):
    """The objects below a prefix of a bucket."""

    place: S3Place

    @property
    def shown(self) -> str:
        """Give the address of the bucket and the prefix."""
        return self.place.shown

    def address(self, key: str) -> str:
        """Give the address of an object."""
        return f"s3://{self.place.bucket}/{self.place.prefix}{key}"

    def path(self, key: str) -> str:
        """Give the address that Hadoop's client takes."""
        return f"s3a://{self.place.bucket}/{self.place.prefix}{key}"

    def probe(self) -> str:
        """Say that the bucket answers; nobody waits longer than a few seconds."""
        client = client_of(self.place, PROBE_SECONDS)
        arguments = {"Bucket": self.place.bucket, "Prefix": self.place.prefix, "MaxKeys": 1}
        asked(self.place, "list", lambda: client.list_objects_v2(**arguments), attempts=2)
        return f"bucket {self.place.bucket} at {self.place.endpoint or 'Amazon S3'}"

    # Reading

    def read(self, key: str) -> bytes | None:
        """Get an object."""
        try:
            return asked(self.place, "read", lambda: cast("bytes", self._call("get_object", key)["Body"].read()))
        except MissingObjectError:
            return None

    def reader(self, key: str, found: Found | None = None) -> IO[bytes]:
        """Open an object for reading by ranges."""
        known = found or self.find(key)
        if known is None:
            raise FileNotFoundError(f"there is no object {self.address(key)}")
        return cast("IO[bytes]", S3Reader(self, known))

    def find(self, key: str) -> Found | None:
        """Give what the service says about an object, or None when there is none."""
        try:
            head = self._ask("read", "head_object", key)
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

    def size(self, key: str) -> int | None:
        """Ask for the size of an object."""
        found = self.find(key)
        return None if found is None else found.size

    def listed(self, prefix: str) -> Iterator[Found]:
        """List page by page; ages are by the clock of the service."""
        for page in self.pages(prefix):
            for entry in page.get("Contents", ()):
                if not entry["Key"].endswith("/"):
                    age = _age(page, entry["LastModified"])
                    yield Found(self._own(entry["Key"]), int(entry["Size"]), age, str(entry["ETag"]))

    def pages(self, prefix: str, delimiter: str = "") -> Iterator[dict[str, Any]]:
        """Give the answers to a listing; with a delimiter, keys are cut at the first one after the prefix."""
        arguments = {
            "Bucket": self.place.bucket,
            "Prefix": f"{self.place.prefix}{prefix}",
            "Delimiter": delimiter,
            "MaxKeys": PAGE,
        }
        while True:
            page = asked(self.place, "list", lambda: client_of(self.place).list_objects_v2(**arguments))
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    # Writing

    def write(self, key: str, data: bytes) -> None:
        """Put an object in place of whatever is there."""
        self._ask("write", "put_object", key, Body=data)

    def create(self, key: str, data: bytes) -> bool:
        """Put an object that must not be there yet; after a lost answer its bytes tell whose it is."""
        unsure = False
        for attempt in range(ATTEMPTS):
            try:
                self._create(key, data)
            except PreconditionError:
                return unsure and self.read(key) == data
            except ConflictError:
                pause(attempt)
            except StoreUnavailableError:
                unsure = True
                pause(attempt)
            else:
                self._check_conditions(key, data)
                return True
        found = self.read(key)
        if found is None:
            raise StoreUnavailableError(
                f"{self.address(key)} could not be written; whether it still will be is unknown"
            )
        return unsure and found == data

    def _create(self, key: str, data: bytes) -> None:
        once(self.place, "write", lambda: self._call("put_object", key, Body=data, IfNoneMatch="*"))

    def _check_conditions(self, key: str, data: bytes) -> None:
        """Refuse a service that replaces objects which it was told not to replace: commits would overwrite each other."""
        known = (os.getpid(), self.place)
        if self.place.is_amazon or known in _trusted:
            return
        try:
            asked(self.place, "write", lambda: self._create(key, data))
        except PreconditionError:
            _trusted.add(known)
            return
        message = (
            f"{self.place.endpoint} replaces objects that it is told not to replace (If-None-Match is ignored), "
            "so that loads could overwrite each other's commits: it can be a source, but no target"
        )
        raise StoreError(message)

    def put(self, key: str, data: bytes) -> None:
        """Put an object under a key that nobody else uses."""
        self._ask("write", "put_object", key, Body=data)

    def delete(self, key: str) -> None:
        """Delete an object."""
        with suppress(MissingObjectError):
            self._ask("delete", "delete_object", key)

    def remove_below(self, prefix: str) -> None:
        """Delete the objects, and abort the uploads that nobody will finish."""
        for found in list(self.listed(prefix)):
            self.delete(found.key)
        for upload, found in self._uploads(prefix):
            self.abort_upload(found.key, upload)

    def unfinished(self, prefix: str) -> Iterator[Found]:
        """Give the uploads that were begun and neither finished nor aborted; their sizes are not known."""
        return (found for _, found in self._uploads(prefix))

    def _uploads(self, prefix: str) -> list[tuple[str, Found]]:
        arguments = {"Bucket": self.place.bucket, "Prefix": f"{self.place.prefix}{prefix}"}
        try:
            page = asked(self.place, "list", lambda: client_of(self.place).list_multipart_uploads(**arguments))
        except StoreUnavailableError:
            raise
        except StoreError:
            return []  # not every service, and not everybody, may list uploads
        return [
            (entry["UploadId"], Found(self._own(entry["Key"]), 0, _age(page, entry["Initiated"])))
            for entry in page.get("Uploads", ())
        ]

    def _own(self, key: str) -> str:
        return key.removeprefix(self.place.prefix)

    def output(self, key: str) -> Output:
        """Upload part by part."""
        return S3Output(self, key)

    def move(self, staged: str, final: str) -> None:
        """Copy inside the service and delete the staged object."""
        size = self.size(staged)
        with suppress(MissingObjectError):  # of another session that moves it at the same time
            if size is not None:
                self._copy(staged, final, size)
                self.delete(staged)
                return
        if self.size(final) is None:
            raise FileNotFoundError(f"there is no object {self.address(staged)}")

    def _copy(self, staged: str, final: str, size: int) -> None:
        source = quote(f"{self.place.bucket}/{self.place.prefix}{staged}")
        if size <= COPIED_WHOLE:
            self._ask("write", "copy_object", final, CopySource=source)
            return
        upload = self.begin_upload(final)
        step = max(COPY_PART, -(-size // MOST_PARTS))
        tags = []
        try:
            for number, start in enumerate(range(0, size, step), 1):
                piece = {"CopySourceRange": f"bytes={start}-{min(start + step, size) - 1}", "PartNumber": number}
                answer = self._ask("write", "upload_part_copy", final, UploadId=upload, CopySource=source, **piece)
                tags.append(str(answer["CopyPartResult"]["ETag"]))
            self.complete_upload(final, upload, tags)
        except BaseException:
            with suppress(StoreError):
                self.abort_upload(final, upload)
            raise

    # Uploads

    def begin_upload(self, key: str) -> str:
        """Begin an upload in parts and give its name."""
        return str(self._ask("write", "create_multipart_upload", key)["UploadId"])

    def upload_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Send one part and give its tag."""
        return str(self._ask("write", "upload_part", key, UploadId=upload, PartNumber=number, Body=data)["ETag"])

    def complete_upload(self, key: str, upload: str, tags: Sequence[str]) -> None:
        """Make an object of the parts."""
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        self._ask("write", "complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": parts})

    def abort_upload(self, key: str, upload: str) -> None:
        """Forget the parts; an upload that is gone is no error."""
        with suppress(MissingObjectError):
            self._ask("delete", "abort_multipart_upload", key, UploadId=upload)

    def _ask(self, what: str, operation: str, key: str, **arguments: Any) -> Any:
        return asked(self.place, what, lambda: self._call(operation, key, **arguments))

    def _call(self, operation: str, key: str, **arguments: Any) -> Any:
        whole = f"{self.place.prefix}{key}"
        return getattr(client_of(self.place), operation)(Bucket=self.place.bucket, Key=whole, **arguments)


def _age(answer: dict[str, Any], since: datetime) -> float:
    """Give the seconds between an instant and an answer, both by the clock of the service."""
    now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    return (now - since).total_seconds()
