"""Blobs in a container of Azure Blob Storage; which tables they are part of is not known here."""

from __future__ import annotations

import base64
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.storage.azure import client as azure_client
from ematix_flow.connect.storage.azure.client import AzureLocation, credential_of
from ematix_flow.connect.storage.base import ObjectInfo, StoreError
from ematix_flow.connect.storage.object_io import PART, Upload
from ematix_flow.connect.storage.object_store import BucketStore, Page

if TYPE_CHECKING:
    from collections.abc import Callable

COPIED_WHOLE = 256 << 20
"""Bytes up to which the service copies a blob before it answers; larger ones pass through this process, in parts."""

MOST_PARTS = 50_000
SCOPE = "https://storage.azure.com/.default"
_RAW = {"max_concurrency": 1, "decompress": False}
"""The bytes as they are stored: sizes and ranges are those of them."""


class AzureStore(BucketStore[AzureLocation]):
    """The blobs below a prefix of a container."""

    connect = staticmethod(azure_client.connect)
    error_of = staticmethod(azure_client.error_of)

    def _get(self, key: str) -> bytes:
        return cast("bytes", self.blob(key).download_blob(**_RAW).readall())

    def _head(self, key: str) -> ObjectInfo:
        clock = _Clock()
        return self._object_info(clock, self.blob(key).get_blob_properties(raw_response_hook=clock.read))

    def _range(self, key: str, first: int, last: int, version: str) -> bytes:
        from azure.core import MatchConditions

        same = {"etag": f'"{version}"', "match_condition": MatchConditions.IfNotModified}
        return cast("bytes", self.blob(key).download_blob(first, last - first + 1, **_RAW, **same).readall())

    def _page(self, client: Any, prefix: str, token: Any, size: int, *, cut: bool, include: str = "metadata") -> Page:
        clock, container = _Clock(), client.get_container_client(self.location.container)
        arguments = {"name_starts_with": prefix, "results_per_page": size, "raw_response_hook": clock.read}
        blobs = container.walk_blobs(**arguments) if cut else container.list_blobs(include=[include], **arguments)
        pages = blobs.by_page(continuation_token=token)
        entries = list(next(pages, ()))
        folders = [entry.name for entry in entries if entry.name.endswith("/")]
        objects = [] if cut else [self._object_info(clock, entry) for entry in entries if not _is_folder(entry)]
        return Page(clock.now, objects, folders, pages.continuation_token)

    def _object_info(self, clock: _Clock, blob: Any) -> ObjectInfo:
        age = 0.0 if blob.last_modified is None else (clock.now - blob.last_modified).total_seconds()
        # Listings and properties differ in quotes.
        return ObjectInfo(self.own(blob.name), int(blob.size or 0), age, (blob.etag or "").strip('"'))

    def _put(self, key: str, data: bytes, *, new: bool) -> None:
        self.blob(key).upload_blob(data, overwrite=not new)

    def _delete(self, key: str) -> None:
        self.blob(key).delete_blob(delete_snapshots="include")

    def remove_below(self, prefix: str) -> None:
        """Delete the blobs, and the parts of unfinished ones, which the service would keep for a week."""
        super().remove_below(prefix)
        for page in list(self._pages(prefix, include="uncommittedblobs")):
            for info in page.objects:
                self.forget_parts(info.key)

    def forget_parts(self, key: str) -> None:
        """Make the service forget the parts of a blob: an empty one replaces them, and is deleted."""
        self.put(key, b"")
        self.delete(key)

    def copy(self, staged: ObjectInfo, final: str) -> None:
        """Let the service copy, or send a large blob part by part."""
        if staged.size > COPIED_WHOLE:
            self._copy_parts(staged, final)
            return
        source, proof = self._source(staged.key)
        self.request("write", lambda: self.blob(final).start_copy_from_url(source, requires_sync=True, **proof))

    def _copy_parts(self, staged: ObjectInfo, final: str) -> None:
        output = self.output(final)
        try:
            for start in range(0, staged.size, PART):
                last = min(start + PART, staged.size) - 1
                output.stream.write(self.range(staged.key, start, last, staged.version))
            output.finish()
        except BaseException:
            with suppress(StoreError):
                output.abandon()
            raise

    def _source(self, key: str) -> tuple[str, dict[str, str]]:
        """Return the address of a blob with what proves that it may be read: the service requires it for a copy."""
        from azure.storage.blob import BlobSasPermissions, generate_blob_sas

        url = self.blob(key).url
        if self.location.account_key:
            until = datetime.now(UTC) + timedelta(hours=1)
            token = generate_blob_sas(
                self.location.account, self.location.container, self.whole(key), account_key=self.location.account_key,
                permission=BlobSasPermissions(read=True), expiry=until,
            )  # fmt: skip
            return f"{url}?{token}", {}
        if self.location.sas_token:
            return (url if "?" in url else f"{url}?{self.location.sas_token}"), {}
        return url, {"source_authorization": f"Bearer {credential_of(self.location).get_token(SCOPE).token}"}

    def upload(self, key: str) -> AzureUpload:
        """Begin an upload in parts."""
        return AzureUpload(self, key)

    def blob(self, key: str) -> Any:
        """Return the client of one blob."""
        return self.client().get_blob_client(self.location.container, self.whole(key))


class AzureUpload(Upload):
    """Blocks that become a blob by one request."""

    def __init__(self, store: AzureStore, key: str) -> None:
        self._store = store
        self._key = key
        self._blocks: list[str] = []

    def send(self, part: bytes) -> None:
        """Send a block."""
        if len(self._blocks) == MOST_PARTS:
            message = (
                f"a file of more than {MOST_PARTS * PART} bytes cannot be written to {self._store.display_address}"
            )
            raise StoreError(message)
        name = base64.b64encode(b"%06d" % len(self._blocks)).decode()
        self._request(lambda blob: blob.stage_block(name, part, length=len(part)))
        self._blocks.append(name)

    def finish(self, part: bytes) -> None:
        """Send the last block and make a blob of all; a list that was committed before is committed again."""
        from azure.storage.blob import BlobBlock

        self.send(part)
        blocks = [BlobBlock(name) for name in self._blocks]
        self._request(lambda blob: blob.commit_block_list(blocks))

    def abort(self) -> None:
        """Forget the blocks."""
        self._store.forget_parts(self._key)

    def _request(self, call: Callable[[Any], Any]) -> None:
        self._store.request("write", lambda: call(self._store.blob(self._key)))


class _Clock:
    """The time by the clock of the service, as its last response had it."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def read(self, response: Any) -> None:
        date = response.http_response.headers.get("Date")
        self.now = parsedate_to_datetime(date) if date else self.now


def _is_folder(blob: Any) -> bool:
    """Return whether a name is that of a folder only, as accounts with a hierarchical namespace have them."""
    return blob.name.endswith("/") or (blob.metadata or {}).get("hdi_isfolder") == "true"
