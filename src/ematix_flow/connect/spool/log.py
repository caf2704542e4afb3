"""A durable log on this machine for messages of queues that forget: written and synced first, acknowledged after.

Messages get growing numbers and can be read again until every target has them. One process at a time owns a spool.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import VALUE
from ematix_flow.connect.spool.recovery import (
    IDENTITIES_FILE,
    SEGMENT,
    name_of,
    owned,
    recovered,
    remembered,
    sync_folder,
    write_file,
)
from ematix_flow.connect.spool.segments import IDENTITY, IDENTITY_BYTES, SegmentBatch, frame
from ematix_flow.errors import NO_ROOM, RunError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

ROOT = "EMATIX_FLOW_SPOOL_ROOT"
DEFAULT_ROOT = "~/.ematix-flow/spool"

SEGMENT_BYTES = 64 << 20
"""Size from which a new file is begun; files are removed as a whole."""

REMEMBERED = 100_000
"""Of so many messages it is known whether one comes again."""

RESERVE_BYTES = 64 << 20
"""What a spool leaves free on its disk, so that targets on the same disk can still take what it holds."""


class SpoolFullError(TransientError):
    """There is no room for more messages; none of them was accepted."""


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message of a queue."""

    payload: bytes
    key: str | None = None
    headers: str | None = None
    """As an object of JSON."""
    at: int | None = None
    """Its time in microseconds since 1970."""
    id: str | None = None
    """By which the broker or the publisher knows it."""

    @property
    def identity(self) -> bytes | None:
        """Return what is equal only for the same message; an id that is used twice for other contents is two messages."""
        if not self.id:
            return None
        return hashlib.blake2b(self.id.encode() + b"\0" + self.payload, digest_size=IDENTITY_BYTES).digest()


def spool_folder(name: str) -> Path:
    """Return the folder of the spool for a source."""
    root = Path(os.environ.get(ROOT) or DEFAULT_ROOT).expanduser()
    slug = "".join(character if character.isalnum() else "-" for character in name)[:60]
    return root / f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class Spool:
    """The spool in a folder, owned by this process until it is closed, or only read."""

    def __init__(self, folder: Path, *, own: bool = True) -> None:
        self._folder = folder
        self._owner: int | None = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner = owned(folder) if own else None
            self.id = name_of(folder)
            self._batches = recovered(folder, repair=own)
            self._identities = remembered(folder, self._batches, REMEMBERED) if own else OrderedDict()
        except OSError as error:
            self._disown()
            raise _unusable(folder, error) from None
        except BaseException:
            self._disown()
            raise
        self._turn = threading.Lock()
        self._end = self._batches[-1].end if self._batches else 0
        self._file: int | None = None
        self._path = ""
        self._size = 0

    @property
    def first(self) -> int:
        """Return the number of the oldest message that is retained."""
        with self._turn:
            return self._batches[0].first if self._batches else self._end

    @property
    def end(self) -> int:
        """Return the number that the next message gets; all before it are safe."""
        with self._turn:
            return self._end

    def append(self, messages: Sequence[QueueMessage]) -> int:
        """Bring messages safely to the disk and return how many of them are new; either all are safe or none."""
        new_identities: OrderedDict[bytes, None] = OrderedDict()
        accepted: list[tuple[QueueMessage, bytes | None]] = []
        for message in messages:
            identity = message.identity
            if identity is not None:
                if identity in self._identities or identity in new_identities:
                    continue
                new_identities[identity] = None
            accepted.append((message, identity))
        if accepted:
            batch = self._write_batch(frame(self._end, _table(accepted)), len(accepted))
            with self._turn:
                self._batches.append(batch)
                self._end = batch.end
                self._identities.update(new_identities)
                while len(self._identities) > REMEMBERED:
                    self._identities.popitem(last=False)
        return len(accepted)

    def batches(self, begin: int, end: int) -> list[SegmentBatch]:
        """Return the batches that hold the messages from one number up to another."""
        with self._turn:
            at = max(0, bisect_right(self._batches, begin, key=lambda batch: batch.first) - 1)
            batches = []
            while at < len(self._batches) and self._batches[at].first < end:
                batches.append(self._batches[at])
                at += 1
        return [batch for batch in batches if batch.end > begin]

    def trim(self, least: int) -> None:
        """Remove the files whose messages all lie before a number; the newest one stays, it knows what comes next.

        Where there is no room to note what they held they stay until the next time.
        """
        with self._turn:
            retained = {batch.path for batch in self._batches if batch.end > least}
            retained |= {batch.path for batch in self._batches[-1:]}
            removed = sorted({batch.path for batch in self._batches} - retained)
            identities = b"".join(self._identities)
        if not removed or not self._noted(identities):
            return
        with self._turn:
            self._batches = [batch for batch in self._batches if batch.path not in removed]
        for path in removed:
            Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the spool."""
        self._leave_file()
        self._disown()

    def _noted(self, identities: bytes) -> bool:
        """Write down which messages are known; return False where there is no room for that."""
        try:
            write_file(self._folder, IDENTITIES_FILE, identities)
        except OSError as error:
            if error.errno in NO_ROOM:
                return False
            raise _unusable(self._folder, error) from None
        return True

    def _disown(self) -> None:
        if self._owner is not None:
            os.close(self._owner)
        self._owner = None

    def _write_batch(self, data: bytes, count: int) -> SegmentBatch:
        try:
            self._room_for(len(data))
            file = self._open_file()
            _write_all(file, data)
            failpoint("spool.before_fsync")
            os.fdatasync(file)
            failpoint("spool.after_fsync")
        except OSError as error:
            self._cut()
            raise _unusable(self._folder, error) from None
        batch = SegmentBatch(self._path, self._end, count, self._size, len(data))
        self._size += len(data)
        if self._size >= SEGMENT_BYTES:
            self._leave_file()
        return batch

    def _room_for(self, size: int) -> None:
        if shutil.disk_usage(self._folder).free < RESERVE_BYTES + size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open_file(self) -> int:
        if self._file is None:
            self._path = str(self._folder / f"{self._end:020d}{SEGMENT}")
            # A file of this name has no whole batch: it was begun and never held anything.
            self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            self._size = 0
            sync_folder(self._folder)
        return self._file

    def _cut(self) -> None:
        """Take back what was written of a batch; whatever state the file is in, nothing is written behind it."""
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
        self._leave_file()

    def _leave_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._path = None, ""


def _unusable(folder: Path, error: OSError) -> RunError:
    """Return the error for people; room may come back by itself."""
    if error.errno in NO_ROOM:
        return SpoolFullError(f"there is no room for more messages in {folder}")
    return RunError(f"the spool {folder} cannot be used: {error.strerror}", hint=f"{ROOT} names another place.")


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _table(messages: Sequence[tuple[QueueMessage, bytes | None]]) -> pa.Table:
    import pyarrow as pa

    timestamp = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            VALUE: pa.array([message.payload for message, _ in messages], pa.binary()),
            "_key": pa.array([message.key for message, _ in messages], pa.string()),
            "_headers": pa.array([message.headers for message, _ in messages], pa.string()),
            "_event_ts": pa.array([message.at for message, _ in messages], timestamp),
            "_message_id": pa.array([message.id for message, _ in messages], pa.string()),
            IDENTITY: pa.array([identity for _, identity in messages], pa.binary(IDENTITY_BYTES)),
        }
    )
