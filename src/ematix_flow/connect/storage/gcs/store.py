"""Objects in a bucket of Google Cloud Storage; which tables they are part of is not known here."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.storage.base import ObjectInfo, StoreError, StoreUnavailableError
from ematix_flow.connect.storage.gcs import client as gcs_client
from ematix_flow.connect.storage.gcs.client import GcsLocation, refusal
from ematix_flow.connect.storage.object_io import Upload
from ematix_flow.connect.storage.object_store import BucketStore, Page
from ematix_flow.connect.storage.requests import repeated

if TYPE_CHECKING:
    from ematix_flow.connect.storage.gcs.client import Client

NEVER = 0
"""The generation of an object that is not there."""

_RECEIVED = re.compile(r"bytes=0-(\d+)")
_BYTES = "application/octet-stream"
_RAW = {"raw_download": True, "checksum": None}


class GcsStore(BucketStore[GcsLocation]):
    """The objects below a prefix of a bucket; their generation distinguishes one content from another."""

    connect = staticmethod(gcs_client.connect)
    error_of = staticmethod(gcs_client.error_of)

    def _get(self, key: str) -> bytes:
        return cast("bytes", self._blob(key).download_as_bytes(**_RAW, **self._once))

    def _head(self, key: str) -> ObjectInfo:
        blob = self._blob(key)
        blob.reload(**self._once)
        return self._object_info(self.client(), blob)

    def _range(self, key: str, first: int, last: int, version: str) -> bytes:
        blob = self._blob(key, generation=int(version))
        return cast("bytes", blob.download_as_bytes(start=first, end=last, **_RAW, **self._once))

    def _page(self, client: Client, prefix: str, token: Any, size: int, *, cut: bool) -> Page:
        listing = client.storage.list_blobs(
            self.location.bucket, prefix=prefix, page_token=token, page_size=size, delimiter="/" if cut else None,
            timeout=client.seconds, retry=None,
        )  # fmt: skip
        page = next(listing.pages, None)
        objects = [self._object_info(client, blob) for blob in page or ()]
        return Page(client.now, objects, tuple(page.prefixes) if page else (), listing.next_page_token)

    def _object_info(self, client: Client, blob: Any) -> ObjectInfo:
        age = (client.now - blob.updated).total_seconds()
        return ObjectInfo(self.own(blob.name), int(blob.size), age, str(blob.generation))

    def _put(self, key: str, data: bytes, *, new: bool) -> None:
        condition = {"if_generation_match": NEVER} if new else {}
        self._blob(key).upload_from_string(data, _BYTES, **condition, **self._once)

    def _delete(self, key: str) -> None:
        self._blob(key).delete(**self._once)

    def copy(self, staged: ObjectInfo, final: str) -> None:
        """Let the service copy; a large object takes several requests, and is seen after the last one."""
        token: str | None = None
        while True:
            token, _, _ = self.request(
                "copy",
                lambda token=token: self._blob(final).rewrite(self._blob(staged.key), token=token, **self._once),  # type: ignore[misc]
            )
            if token is None:
                return

    def upload(self, key: str) -> GcsUpload:
        """Begin a resumable upload."""
        begun = self.request("write", lambda: self._blob(key).create_resumable_upload_session(_BYTES, **self._once))
        return GcsUpload(self, key, begun)

    def _blob(self, key: str, **which: Any) -> Any:
        return self.client().storage.bucket(self.location.bucket).blob(self.whole(key), **which)

    @property
    def _once(self) -> dict[str, Any]:
        return {"timeout": self.client().seconds, "retry": None}


class GcsUpload(Upload):
    """A resumable upload: what of a part arrived is queried after a lost response."""

    def __init__(self, store: GcsStore, key: str, url: str) -> None:
        self._store = store
        self._key = key
        self._url = url
        self._sent = 0

    def send(self, part: bytes) -> None:
        """Send a part."""
        self._send(part, "*")

    def finish(self, part: bytes) -> None:
        """Send the last part, which states how many bytes there are."""
        size = self._sent + len(part)
        self._send(part, str(size))
        if self._store.size(self._key) != size:
            raise StoreUnavailableError(f"{self._store.address(self._key)} is not what was sent to the service")

    def abort(self) -> None:
        """Cancel the upload."""
        with suppress(StoreError):
            self._request("DELETE", b"", {})

    def _send(self, part: bytes, total: str) -> None:
        begin, end = self._sent, self._sent + len(part)
        again = False

        def send() -> None:
            nonlocal again
            if again:
                self._sent = self._put(b"", "*", total, end)
            again = True
            if begin <= self._sent < end:
                self._sent = self._put(part[self._sent - begin :], f"{self._sent}-{end - 1}", total, end)
            if begin <= self._sent < end:
                raise StoreUnavailableError(f"{self._store.address(self._key)}: a part has arrived by half")

        repeated(send)
        if self._sent != end:
            raise StoreUnavailableError(f"{self._store.address(self._key)}: the service lost a part that it was sent")

    def _put(self, data: bytes, which: str, total: str, end: int) -> int:
        """Send bytes, or none to query, and return how many have arrived."""
        answer = self._request("PUT", data, {"Content-Range": f"bytes {which}/{total}"})
        if answer.status_code in (200, 201):
            return end
        received = _RECEIVED.fullmatch(answer.headers.get("Range", ""))
        return int(received[1]) + 1 if received else 0

    def _request(self, method: str, data: bytes, headers: dict[str, str]) -> Any:
        client = self._store.client()
        sent = {"data": data, "headers": headers, "timeout": client.seconds, "allow_redirects": False}
        response = self._store.once("upload", lambda: client.http.request(method, self._url, **sent))
        if response.status_code >= 400:  # noqa: PLR2004 - refused
            raise refusal(self._store.location, "upload", response.status_code, "")
        return response
