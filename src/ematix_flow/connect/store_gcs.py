"""Objects in a bucket of Google Cloud Storage; which tables they are part of is not known here."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect import bucket
from ematix_flow.connect.bucket import BucketStore
from ematix_flow.connect.bucket_requests import (
    ATTEMPTS,
    PROBE_ATTEMPTS,
    PROBE_SECONDS,
    MissingObjectError,
    PreconditionError,
    pause,
)
from ematix_flow.connect.bucket_streams import Upload
from ematix_flow.connect.gcs_client import GcsPlace, asked, client_of, once, refusal
from ematix_flow.connect.store import Found, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ematix_flow.connect.gcs_client import Client

NEVER = 0
"""The generation of an object that is not there."""

_RECEIVED = re.compile(r"bytes=0-(\d+)")


class GcsStore(BucketStore[GcsPlace]):
    """The objects below a prefix of a bucket; what tells one content of them from another is their generation."""

    def probe(self) -> str:
        """Say that the bucket answers; nobody waits longer than a few seconds."""

        def look() -> None:
            client = client_of(self.place, PROBE_SECONDS)
            next(iter(self._listing(client, self.place.prefix, max_results=1)), None)

        asked(self.place, "list", look, attempts=PROBE_ATTEMPTS)
        return f"bucket {self.place.bucket} at {self.place.service}"

    def now(self) -> datetime:
        """Ask for one key, and take the time of the answer."""
        client = client_of(self.place)
        asked(self.place, "list", lambda: next(iter(self._listing(client, self.place.prefix, max_results=1)), None))
        return client.now

    # Reading

    def read(self, key: str) -> bytes | None:
        """Get an object."""
        try:
            return cast("bytes", self.ask("read", key, lambda blob, given: blob.download_as_bytes(**_RAW, **given)))
        except MissingObjectError:
            return None

    def find(self, key: str) -> Found | None:
        """Ask for the metadata of an object."""

        def look(blob: Any, given: dict[str, Any]) -> Found:
            blob.reload(**given)
            return self._found(client_of(self.place), blob)

        try:
            return cast("Found", self.ask("read", key, look))
        except MissingObjectError:
            return None

    def range(self, key: str, first: int, last: int, version: str) -> bytes:
        """Give the bytes from the first to the last of one generation of an object."""

        def get(blob: Any, given: dict[str, Any]) -> bytes:
            return cast("bytes", blob.download_as_bytes(start=first, end=last, **_RAW, **given))

        try:
            return cast("bytes", self.ask("read", key, get, generation=int(version)))
        except MissingObjectError:
            if self.find(key) is not None:
                raise PreconditionError(f"{self.address(key)} is another one") from None
            raise FileNotFoundError(f"there is no object {self.address(key)} any more") from None

    def listed(self, prefix: str) -> Iterator[Found]:
        """List page by page; ages are by the clock of the service."""
        for client, page in self._pages(prefix):
            for blob in page:
                if not blob.name.endswith("/"):
                    yield self._found(client, blob)

    def folders(self) -> set[str]:
        """Ask for the names, cut at the first slash."""
        prefixes = {name for _, page in self._pages("", delimiter="/") for name in page.prefixes}
        return {self.own(name).strip("/") for name in prefixes}

    def _pages(self, prefix: str, **more: Any) -> Iterator[tuple[Client, Any]]:
        token = None
        while True:
            client = client_of(self.place)
            page, token = asked(self.place, "list", partial(self._page, client, prefix, token, **more))
            if page is not None:
                yield client, page
            if not token:
                return

    def _page(self, client: Client, prefix: str, token: str | None, **more: Any) -> tuple[Any, str | None]:
        listing = self._listing(client, self.whole(prefix), page_token=token, page_size=bucket.PAGE, **more)
        return next(listing.pages, None), listing.next_page_token

    def _listing(self, client: Client, prefix: str, **more: Any) -> Any:
        given = {"timeout": client.seconds, "retry": None}
        return client.storage.list_blobs(self.place.bucket, prefix=prefix, **more, **given)

    def _found(self, client: Client, blob: Any) -> Found:
        return Found(self.own(blob.name), int(blob.size), client.age(blob.updated), str(blob.generation))

    # Writing

    def put(self, key: str, data: bytes) -> None:
        """Put an object."""
        self.ask("write", key, lambda blob, given: blob.upload_from_string(data, _BYTES, **given))

    def put_new(self, key: str, data: bytes) -> None:
        """Put an object that must not be there."""

        def create() -> None:
            blob, given = self._blob(key)
            blob.upload_from_string(data, _BYTES, if_generation_match=NEVER, **given)

        once(self.place, "write", create)

    def delete(self, key: str) -> None:
        """Delete an object."""
        with suppress(MissingObjectError):
            self.ask("delete", key, lambda blob, given: blob.delete(**given))

    def copy(self, staged: Found, final: str) -> None:
        """Let the service copy; a large object takes several requests, and is seen after the last one."""
        source = client_of(self.place).storage.bucket(self.place.bucket).blob(self.whole(staged.key))
        token: str | None = None
        while True:
            token, _, _ = self.ask(
                "copy", final, lambda blob, given, token=token: blob.rewrite(source, token=token, **given)
            )
            if token is None:
                return

    def upload(self, key: str) -> GcsUpload:
        """Begin a resumable upload."""
        begun = self.ask("write", key, lambda blob, given: blob.create_resumable_upload_session(_BYTES, **given))
        return GcsUpload(self, key, begun)

    def ask(self, what: str, key: str, call: Callable[..., Any], **which: Any) -> Any:
        """Give what the service answers about an object; `call` takes it and how long it may take."""
        return asked(self.place, what, lambda: call(*self._blob(key, **which)))

    def _blob(self, key: str, **which: Any) -> tuple[Any, dict[str, Any]]:
        client = client_of(self.place)
        blob = client.storage.bucket(self.place.bucket).blob(self.whole(key), **which)
        return blob, {"timeout": client.seconds, "retry": None}


_BYTES = "application/octet-stream"
_RAW = {"raw_download": True, "checksum": None}


class GcsUpload(Upload):
    """A resumable upload: what of a part arrived is asked for after a lost answer."""

    def __init__(self, store: GcsStore, key: str, url: str) -> None:
        self._store = store
        self._key = key
        self._url = url
        self._sent = 0

    def send(self, part: bytes) -> None:
        """Send a part."""
        self._send(part, "*")

    def finish(self, part: bytes) -> None:
        """Send the last part, which says how many bytes there are."""
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
        for attempt in range(ATTEMPTS):
            try:
                self._sent = self._put(part[self._sent - begin :], f"{self._sent}-{end - 1}", total, end)
            except StoreUnavailableError:
                if attempt == ATTEMPTS - 1:
                    raise
                pause(attempt)
                with suppress(StoreUnavailableError):
                    self._sent = self._put(b"", "*", total, end)
            if self._sent == end:
                return
            if not begin <= self._sent < end:
                break
        raise StoreUnavailableError(f"{self._store.address(self._key)}: the service lost a part that it was sent")

    def _put(self, data: bytes, which: str, total: str, end: int) -> int:
        """Send bytes, or none to ask, and give how many have arrived."""
        answer = self._request("PUT", data, {"Content-Range": f"bytes {which}/{total}"})
        if answer.status_code in (200, 201):
            return end
        received = _RECEIVED.fullmatch(answer.headers.get("Range", ""))
        return int(received[1]) + 1 if received else 0

    def _request(self, method: str, data: bytes, headers: dict[str, str]) -> Any:
        place = self._store.place

        def request() -> Any:
            client = client_of(place)
            answer = client.http.request(
                method, self._url, data=data, headers=headers, timeout=client.seconds, allow_redirects=False
            )
            if answer.status_code >= 400:  # noqa: PLR2004 - refused
                raise refusal(place, "upload", answer.status_code, "")
            return answer

        return once(place, "upload", request)
