"""Blobs in a container of Azure Blob Storage; which tables they are part of is not known here."""

from __future__ import annotations

import base64
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect import bucket
from ematix_flow.connect.azure_client import AzurePlace, asked, client_of, credential_of, once
from ematix_flow.connect.bucket import BucketStore
from ematix_flow.connect.bucket_requests import PROBE_ATTEMPTS, PROBE_SECONDS, MissingObjectError
from ematix_flow.connect.bucket_streams import PART, Upload
from ematix_flow.connect.store import Found, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COPIED_WHOLE = 256 << 20
"""Bytes up to which the service copies a blob before it answers; larger ones pass through this process, in parts."""

MOST_PARTS = 50_000
SCOPE = "https://storage.azure.com/.default"
_RAW = {"max_concurrency": 1, "decompress": False}
"""The bytes as they are stored: sizes and ranges are those of them."""


class AzureStore(BucketStore[AzurePlace]):
    """The blobs below a prefix of a container."""

    def probe(self) -> str:
        """Say that the container answers; nobody waits longer than a few seconds."""
        container = client_of(self.place, PROBE_SECONDS)
        pages = container.list_blobs(name_starts_with=self.place.prefix, results_per_page=1).by_page
        asked(self.place, "list", lambda: next(pages(), None), attempts=PROBE_ATTEMPTS)
        return f"container {self.place.container} at {self.place.service}"

    def now(self) -> datetime:
        """Ask for one name, and take the time of the answer."""
        clock = _Clock()
        arguments = {"name_starts_with": self.place.prefix, "results_per_page": 1}
        pages = client_of(self.place).list_blobs(raw_response_hook=clock.look, **arguments).by_page
        asked(self.place, "list", lambda: next(pages(), None))
        return clock.now

    # Reading

    def read(self, key: str) -> bytes | None:
        """Get a blob."""
        try:
            return cast("bytes", self.ask("read", key, lambda blob: blob.download_blob(**_RAW).readall()))
        except MissingObjectError:
            return None

    def find(self, key: str) -> Found | None:
        """Ask for the properties of a blob."""
        now = _Clock()
        try:
            there = self.ask("read", key, lambda blob: blob.get_blob_properties(raw_response_hook=now.look))
        except MissingObjectError:
            return None
        return Found(key, int(there.size), now.age(there.last_modified), _tag(there.etag))

    def range(self, key: str, first: int, last: int, version: str) -> bytes:
        """Give the bytes from the first to the last of one version of a blob."""
        from azure.core import MatchConditions

        wanted = {"offset": first, "length": last - first + 1, **_RAW}
        same = {"etag": f'"{version}"', "match_condition": MatchConditions.IfNotModified}
        try:
            return cast("bytes", self.ask("read", key, lambda blob: blob.download_blob(**wanted, **same).readall()))
        except MissingObjectError:
            raise FileNotFoundError(f"there is no object {self.address(key)} any more") from None

    def listed(self, prefix: str) -> Iterator[Found]:
        """List page by page; ages are by the clock of the service."""
        return self._listed(prefix, "metadata")

    def _listed(self, prefix: str, include: str) -> Iterator[Found]:
        now = _Clock()
        arguments = {"name_starts_with": self.whole(prefix), "include": [include], "results_per_page": bucket.PAGE}
        pages = client_of(self.place).list_blobs(raw_response_hook=now.look, **arguments)
        for page in self._pages(pages):
            for there in page:
                if not _is_folder(there):
                    size, age = int(there.size or 0), now.age(there.last_modified)
                    yield Found(self.own(there.name), size, age, _tag(there.etag))

    def _pages(self, listing: Any) -> Iterator[list[Any]]:
        """Give the answers to a listing, each asked for again from where the one before ended."""
        token: str | None = None
        while True:
            pages = listing.by_page(continuation_token=token)
            yield asked(self.place, "list", lambda pages=pages: list(next(pages, ())))  # type: ignore[misc]
            token = pages.continuation_token
            if not token:
                return

    def folders(self) -> set[str]:
        """Ask for the names, cut at the first slash."""
        found = client_of(self.place).walk_blobs(name_starts_with=self.place.prefix, delimiter="/")
        names = (there.name for page in self._pages(found) for there in page)
        return {self.own(name).strip("/") for name in names if name.endswith("/")}

    # Writing

    def put(self, key: str, data: bytes) -> None:
        """Put a blob."""
        self.ask("write", key, lambda blob: blob.upload_blob(data, overwrite=True))

    def put_new(self, key: str, data: bytes) -> None:
        """Put a blob that must not be there."""
        once(self.place, "write", lambda: self._blob(key).upload_blob(data, overwrite=False))

    def delete(self, key: str) -> None:
        """Delete a blob, with the snapshots that somebody may have made of it."""
        with suppress(MissingObjectError):
            self.ask("delete", key, lambda blob: blob.delete_blob(delete_snapshots="include"))

    def remove_below(self, prefix: str) -> None:
        """Delete the blobs, and the parts of those that nobody will finish; else the service keeps these for a week."""
        for found in list(self.listed(prefix)):
            self.delete(found.key)
        for found in list(self._listed(prefix, "uncommittedblobs")):
            self.forget_parts(found.key)

    def forget_parts(self, key: str) -> None:
        """Make the service forget the parts of a blob: an empty one takes their place, and goes."""
        self.put(key, b"")
        self.delete(key)

    def copy(self, staged: Found, final: str) -> None:
        """Let the service copy, or send a large blob part by part."""
        if staged.size > COPIED_WHOLE:
            self._copy_parts(staged, final)
            return
        source, proof = self._source(staged.key)
        self.ask("write", final, lambda blob: blob.start_copy_from_url(source, requires_sync=True, **proof))

    def _copy_parts(self, staged: Found, final: str) -> None:
        output = self.output(final)
        try:
            for start in range(0, staged.size, PART):
                last = min(start + PART, staged.size) - 1
                output.stream.write(self.range(staged.key, start, last, staged.version))
            output.keep()
        except BaseException:
            with suppress(StoreError):
                output.abandon()
            raise

    def _source(self, key: str) -> tuple[str, dict[str, str]]:
        """Give the address of a blob with what proves that it may be read: the service asks for it in a copy."""
        from azure.storage.blob import BlobSasPermissions, generate_blob_sas

        url = self._blob(key).url
        if self.place.account_key:
            until = datetime.now(UTC) + timedelta(hours=1)
            token = generate_blob_sas(
                self.place.account, self.place.container, self.whole(key), account_key=self.place.account_key,
                permission=BlobSasPermissions(read=True), expiry=until,
            )  # fmt: skip
            return f"{url}?{token}", {}
        if self.place.sas_token:
            return (url if "?" in url else f"{url}?{self.place.sas_token}"), {}
        return url, {"source_authorization": f"Bearer {credential_of(self.place).get_token(SCOPE).token}"}

    def upload(self, key: str) -> AzureUpload:
        """Begin an upload in parts."""
        return AzureUpload(self, key)

    def ask(self, what: str, key: str, call: Callable[[Any], Any]) -> Any:
        """Give what the service answers about a blob."""
        return asked(self.place, what, lambda: call(self._blob(key)))

    def _blob(self, key: str) -> Any:
        return client_of(self.place).get_blob_client(self.whole(key))


class AzureUpload(Upload):
    """Blocks that become a blob by one request."""

    def __init__(self, store: AzureStore, key: str) -> None:
        self._store = store
        self._key = key
        self._blocks: list[str] = []

    def send(self, part: bytes) -> None:
        """Send a block."""
        if len(self._blocks) == MOST_PARTS:
            message = f"a file of more than {MOST_PARTS * PART} bytes cannot be written to {self._store.shown}"
            raise StoreError(message)
        name = base64.b64encode(b"%06d" % len(self._blocks)).decode()
        self._store.ask("write", self._key, lambda blob: blob.stage_block(name, part, length=len(part)))
        self._blocks.append(name)

    def finish(self, part: bytes) -> None:
        """Send the last block and make a blob of all; a list that was committed before is committed again."""
        from azure.storage.blob import BlobBlock

        self.send(part)
        blocks = [BlobBlock(name) for name in self._blocks]
        self._store.ask("write", self._key, lambda blob: blob.commit_block_list(blocks))

    def abort(self) -> None:
        """Forget the blocks."""
        self._store.forget_parts(self._key)


class _Clock:
    """The time by the clock of the service, as its last answer told it."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def look(self, response: Any) -> None:
        told = response.http_response.headers.get("Date")
        self.now = parsedate_to_datetime(told) if told else self.now

    def age(self, since: datetime | None) -> float:
        return 0.0 if since is None else (self.now - since).total_seconds()


def _tag(etag: str | None) -> str:
    """Give a tag as both listings and properties tell it, which differ in quotes."""
    return (etag or "").strip('"')


def _is_folder(there: Any) -> bool:
    """Say whether a name stands for a folder only, as accounts with a hierarchical namespace keep them."""
    return there.name.endswith("/") or (there.metadata or {}).get("hdi_isfolder") == "true"
