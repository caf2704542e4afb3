"""Stores that keep bytes under keys, with the few promises that a commit needs.

Formats and tables are not known here.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import IO, TYPE_CHECKING

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: its key, how many bytes it has and how many seconds ago it was written."""

    key: str
    size: int
    age: float
    version: str = ""
    """What distinguishes this content of the object from another one, where the store has such a thing."""


class StoreError(OSError):
    """A store refuses, and will refuse again until its settings or permissions change."""


class StoreUnavailableError(StoreError):
    """A store does not answer, or not now."""


class Store(ABC):
    """Objects under keys with `/` between their parts. Whatever a method has returned from survives a crash."""

    @property
    @abstractmethod
    def display_address(self) -> str:
        """Return the location for people; no secret."""

    @abstractmethod
    def probe(self) -> str:
        """Check that the location is there and return a sentence for people; an error states what is wrong with it."""

    def exists(self) -> bool:
        """Return whether the location is there, as far as is known without a request; it is created by its owner."""
        return True

    @abstractmethod
    def now(self) -> datetime:
        """Return the time by the clock of the store, which all who use it share."""

    @abstractmethod
    def path(self, key: str) -> str:
        """Return the address under which Spark finds an object."""

    @abstractmethod
    def read(self, key: str) -> bytes | None:
        """Return an object, or None when there is none."""

    @abstractmethod
    def address(self, key: str) -> str:
        """Return the location of an object for people."""

    @abstractmethod
    def reader(self, key: str, info: ObjectInfo | None = None) -> IO[bytes]:
        """Open an object for reading at any offset, as it was found; FileNotFoundError when there is none."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Write an object that is not there yet, whole or not at all; False when another writer was first."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Write an object, whole or not at all, replacing what is there."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Return the bytes of an object, or None when there is none."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; one that is gone is no error."""

    @abstractmethod
    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """Return the objects whose keys begin with a prefix that ends with `/`, in the order of their keys."""

    def unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """Return what a writer began to write below a prefix and has not finished; there is none by default."""
        del prefix
        return iter(())

    def remove_below(self, prefix: str) -> None:
        """Remove every object whose key begins with a prefix that ends with `/`."""
        for info in list(self.listed(prefix)):
            self.delete(info.key)

    @abstractmethod
    def output(self, key: str) -> Output:
        """Open an object for writing in a task; it is not visible before `finish`."""

    @abstractmethod
    def move(self, staged: str, final: str) -> None:
        """Move a staged object to its final key; a move that was made before is no error."""

    @abstractmethod
    def publish_as(self, staged: str, final: str) -> None:
        """Copy or link a staged object to a second, unused key, under which it stays when the first one goes."""


class Output(ABC):
    """An object that is being written."""

    stream: IO[bytes]
    """Where the bytes go."""

    @abstractmethod
    def finish(self) -> str:
        """Finish the object and return its path: the key that was requested and the bytes that it has."""

    @abstractmethod
    def abandon(self) -> None:
        """Forget what was written."""


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)
"""Errors of a disk that has no links, or not for this file."""


class LocalStore(Store):
    """A folder of this machine, or one that is mounted on it.

    It is no library's, since what was written has to survive a crash of the machine: docs/decisions/object-stores.md.
    """

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    @property
    def display_address(self) -> str:
        """Return the folder."""
        return str(self.root)

    def probe(self) -> str:
        """Return whether the folder is there."""
        if not self.exists():
            message = f"folder {self.root} does not exist"
            raise RunError(message)
        return f"folder {self.root}"

    def exists(self) -> bool:
        """Return whether the folder is there."""
        return self.root.is_dir()

    def now(self) -> datetime:
        """Return the time of this machine."""
        return datetime.now(UTC)

    def path(self, key: str) -> str:
        """Return the path of a file."""
        return str(self.root / key)

    def read(self, key: str) -> bytes | None:
        """Read a file."""
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def address(self, key: str) -> str:
        """Return the path of a file."""
        return str(self.root / key)

    def reader(self, key: str, info: ObjectInfo | None = None) -> IO[bytes]:
        """Open a file."""
        del info
        return (self.root / key).open("rb")

    def create(self, key: str, data: bytes) -> bool:
        """Write next to the name and link: a link never replaces what is there."""
        path = self.root / key
        create_folder(path.parent)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        sync(path.parent)
        return True

    def write(self, key: str, data: bytes) -> None:
        """Write next to the name and rename."""
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        draft.write_bytes(data)
        draft.replace(path)

    def size(self, key: str) -> int | None:
        """Return the size of a file."""
        try:
            return (self.root / key).stat().st_size
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        """Remove a file."""
        (self.root / key).unlink(missing_ok=True)

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """Walk a folder; names that begin with a dot are drafts."""
        return (info for info in self._files(prefix) if not _is_draft(info.key))

    def unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """Return the drafts below a folder; a process that was killed while writing leaves one."""
        return (info for info in self._files(prefix) if _is_draft(info.key))

    def _files(self, prefix: str) -> Iterator[ObjectInfo]:
        now = time.time()
        for key, entry in _walk(str(self.root / prefix), prefix):
            with suppress(FileNotFoundError):
                status = entry.stat()
                if S_ISREG(status.st_mode):
                    yield ObjectInfo(key, status.st_size, now - status.st_mtime)

    def output(self, key: str) -> Output:
        """Write a draft next to the name."""
        return _LocalOutput(self.root, key)

    def move(self, staged: str, final: str) -> None:
        """Rename a file, durably."""
        source, target = self.root / staged, self.root / final
        create_folder(target.parent)
        try:
            source.rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise
        sync(target.parent)

    def publish_as(self, staged: str, final: str) -> None:
        """Link a file, durably; a disk without links has it copied."""
        source, target = self.root / staged, self.root / final
        create_folder(target.parent)
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copyfile(source, target)
            with target.open("rb") as file:
                os.fsync(file.fileno())
        sync(target.parent)

    def remove_below(self, prefix: str) -> None:
        """Remove a folder with all that is in it."""
        shutil.rmtree(self.root / prefix, ignore_errors=True)


class _LocalOutput(Output):
    def __init__(self, root: Path, key: str) -> None:
        path = root / key
        create_folder(path.parent)
        self._root = root
        self._key = key
        self._draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self.stream = self._draft.open("xb")

    def finish(self) -> str:
        self.stream.flush()
        os.fsync(self.stream.fileno())
        size = self.stream.tell()
        self.stream.close()
        self._draft.rename(self._root / self._key)
        sync((self._root / self._key).parent)
        return format_staged_path(self._key, size)

    def abandon(self) -> None:
        self.stream.close()
        self._draft.unlink(missing_ok=True)


def format_staged_path(key: str, size: int) -> str:
    """Return a path that names how many bytes its object has, so that a change from outside is noticed."""
    return f"{key}:{size}"


def parse_staged_path(path: str) -> tuple[str, int]:
    """Return the key and the bytes that a path names."""
    key, _, size = path.rpartition(":")
    return key, int(size)


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Return what is below a folder in the order of its names; a folder that goes meanwhile has nothing in it."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry


def _is_draft(key: str) -> bool:
    return key.rpartition("/")[2].startswith(".")


def create_folder(folder: Path) -> None:
    """Make a folder and those above it, each name durable before anything is put below it."""
    if folder.is_dir():
        return
    create_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Make what is in a file, or the names in a folder, survive a crash of the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
