"""What a spool finds when it is opened: its owner, its name, its batches and what it remembers; it takes no messages."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections import OrderedDict
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from ematix_flow.connect.spool.segments import (
    IDENTITY,
    IDENTITY_BYTES,
    batches_in,
    later_batch,
    messages_of,
    whole,
)
from ematix_flow.errors import RunError, StreamLostError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ematix_flow.connect.spool.segments import SegmentBatch

SEGMENT = ".seg"
IDENTITIES_FILE = "seen"
"""File with the identities of messages whose own files are gone."""


def owned(folder: Path) -> int:
    """Take the spool in a folder for this process and return the handle by which it is held."""
    handle = os.open(folder / "owner", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        message = f"another process receives into the spool {folder}"
        raise RunError(message, hint="one process reads a queue; stop the other one.") from None
    return handle


def name_of(folder: Path) -> str:
    """Return the name that a spool got when it was made; another one has another name."""
    with suppress(FileNotFoundError):
        return (folder / "id").read_text("ascii")
    name = uuid.uuid4().hex
    write_file(folder, "id", name.encode())
    return name


def recovered(folder: Path, *, repair: bool = True) -> list[SegmentBatch]:
    """Return the batches that are whole; with `repair` what a crash left of the last one is cut off."""
    paths = sorted(folder.glob(f"*{SEGMENT}"))
    intact: list[SegmentBatch] = []
    for number, path in enumerate(paths, 1):
        try:
            batches = list(batches_in(str(path)))
        except FileNotFoundError:
            # Its owner removed it while another process reads it: every target has what it held.
            continue
        if number == len(paths):
            intact += _whole(path, batches, repair=repair)
        else:
            # What lies behind was written, could neither be synced nor taken back, and was written again.
            intact += [batch for batch in batches if batch.first < int(paths[number].stem)]
    for before, after in pairwise(intact):
        if before.end != after.first:
            raise _damaged(before.path, before.end)
    return intact


def remembered(folder: Path, batches: Sequence[SegmentBatch], most: int) -> OrderedDict[bytes, None]:
    """Return the identities of the newest messages, the oldest first."""
    identities: OrderedDict[bytes, None] = OrderedDict()
    with suppress(FileNotFoundError):
        data = (folder / IDENTITIES_FILE).read_bytes()
        identities.update((data[at : at + IDENTITY_BYTES], None) for at in range(0, len(data), IDENTITY_BYTES))
    count, newest = 0, len(batches)
    while newest and count < most:
        newest -= 1
        count += batches[newest].count
    for batch in batches[newest:]:
        identities.update((one, None) for one in messages_of(batch).column(IDENTITY).to_pylist() if one is not None)
    while len(identities) > most:
        identities.popitem(last=False)
    return identities


def write_file(folder: Path, name: str, data: bytes) -> None:
    """Replace a small file as a whole."""
    new = folder / f"{name}.new"
    handle = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / name)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder safely to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _whole(path: Path, batches: list[SegmentBatch], *, repair: bool) -> list[SegmentBatch]:
    """Return the batches before the first that is not whole, and with `repair` cut the file there.

    A batch behind it was written after it was safe: then it is no torn end but damage, and nothing is cut.
    """
    good = 0
    while good < len(batches) and whole(batches[good]):
        good += 1
    end = batches[good - 1].offset + batches[good - 1].length if good else 0
    number = batches[good - 1].end if good else int(path.stem)
    if repair and end < path.stat().st_size:
        if later_batch(str(path), end, number):
            raise _damaged(str(path), number)
        os.truncate(path, end)
    return batches[:good]


def _damaged(path: str, number: int) -> StreamLostError:
    message = f"the spool is damaged from message {number} on, in {path}"
    return StreamLostError(message, hint="restore the file; to go on without its messages, move it away and rewind.")
